"""A module of Lightning with validation, in the shape of its quick start."""

import time

import lightning.pytorch as pl
import torch
from measure import Measure
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pl.seed_everything(1, verbose=False)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, _):
        time.sleep(0.01)
        return nn.functional.mse_loss(self.inner(batch[0]), batch[1])

    def validation_step(self, batch, _):
        time.sleep(0.01)
        self.log("val_loss", nn.functional.mse_loss(self.inner(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Watch(pl.Callback):
    def on_train_epoch_start(self, trainer, module):
        measure.begin()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        measure.step(len(batch[0]), outputs["loss"])


def load(count):
    return DataLoader(TensorDataset(torch.randn(count, 8), torch.randn(count, 1)), batch_size=8)


measure = Measure(60)
trainer = pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[Watch()],
    default_root_dir="lightning",
)
trainer.fit(Net(), load(480), load(64))
