"""A small fit by Lightning without instrumentation, which logs with the TensorBoardLogger.

Run as `python logging_fit.py FOLDER`. Each line of standard input is a number of epochs. For each
line, a new process fits, starting from the checkpoint in the folder if there is one. An epoch has 4
steps. The logged values depend only on the epoch.
"""

# ruff: noqa: ARG002 - Lightning defines the parameters of its hooks

import os
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import TensorBoardLogger


class Model(pl.LightningModule):
    """A linear model that logs values which depend only on the epoch."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        """Return the loss, and log a made-up loss."""
        self.log("train_loss", 0.5**self.current_epoch)
        return (self.linear(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        """Log made-up validation metrics."""
        self.log("val_loss", 0.75**self.current_epoch)
        self.log("val_iou", 0.25 + 0.25 * self.current_epoch)

    def configure_optimizers(self):
        """Return an optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(folder, epochs):
    """Fit, print `written` when the logger has written all events, and save a checkpoint."""
    data = torch.utils.data.TensorDataset(torch.ones(16, 4), torch.ones(16, 1))
    checkpoint = folder / "last.ckpt"
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=TensorBoardLogger(folder, name="net", version=0),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Model(),
        torch.utils.data.DataLoader(data, batch_size=4),
        torch.utils.data.DataLoader(data, batch_size=16),
        ckpt_path=checkpoint if checkpoint.exists() else None,
    )
    print("written", flush=True)
    trainer.save_checkpoint(checkpoint)


def main():
    """Fit in a new process for each line of standard input."""
    warnings.simplefilter("ignore")  # Lightning would warn of a small machine
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        # A forked process does not spend seconds on importing Lightning again.
        pid = os.fork()
        if not pid:
            fit(Path(sys.argv[1]), int(line))
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            sys.exit("the fit failed")


main()
