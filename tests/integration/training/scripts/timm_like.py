"""An image model with an average of its weights, in the shape of timm's train.py."""

import copy
import time

import torch
from measure import Measure
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)


class Slow(TensorDataset):
    def __getitem__(self, at):
        time.sleep(0.001)
        return super().__getitem__(at)


def create_loader(count, batch_size, *, is_training):
    data = Slow(torch.randn(count, 3, 16, 16), torch.randint(0, 4, (count,)))
    return DataLoader(data, batch_size, shuffle=is_training, drop_last=is_training)


class ModelEma(nn.Module):
    def __init__(self, model, decay):
        super().__init__()
        self.module, self.decay = copy.deepcopy(model), decay
        self.module.eval()

    def update(self, model):
        with torch.no_grad():
            for mine, its in zip(self.module.parameters(), model.parameters(), strict=True):
                mine.lerp_(its, 1 - self.decay)


def validate(model, loader, loss_fn):
    model.eval()
    with torch.inference_mode():
        for images, target in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss_fn(model(images), target)


model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
model_ema = ModelEma(model, 0.9)
loader_train = create_loader(160, 8, is_training=True)
loader_eval = create_loader(48, 16, is_training=False)
loss_fn = nn.CrossEntropyLoss()
epochs = 3
measure = Measure(epochs * len(loader_train))
for epoch in range(epochs):
    model.train()
    for images, target in loader_train:
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_fn(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        measure.step(len(images), loss.item())
        model_ema.update(model)
    scheduler.step()
    with measure.apart("validation"):
        validate(model, loader_eval, loss_fn)
    with measure.apart("validation"):
        validate(model_ema.module, loader_eval, loss_fn)
    with measure.apart("checkpoint"):
        torch.save({"epoch": epoch, "state_dict": model.state_dict()}, "last.pth.tar")
        torch.save({"epoch": epoch, "ema": model_ema.state_dict()}, "ema.pth.tar")
