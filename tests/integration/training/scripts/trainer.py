"""A model with the Trainer of Transformers, which accumulates and evaluates."""

import time

import torch
from measure import Measure
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x, labels=None):
        time.sleep(0.005)
        y = self.inner(x).squeeze(-1)
        return {"loss": (y - labels).square().mean(), "logits": y}


class Watch(TrainerCallback):
    def on_epoch_begin(self, args, state, control, **kwargs):
        measure.begin()

    def on_step_end(self, args, state, control, **kwargs):
        measure.step(16, 0)


def make(count):
    return [{"x": torch.randn(8), "labels": torch.randn(())} for _ in range(count)]


measure = Measure(60)
arguments = TrainingArguments(
    "trainer",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    num_train_epochs=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
Trainer(
    Net(), arguments, train_dataset=make(960), eval_dataset=make(64), callbacks=[Watch()]
).train()
