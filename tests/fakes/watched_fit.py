"""A small fit by Lightning whose resources the ResourceMonitorCallback records.

Run as `python watched_fit.py FOLDER BATCHES PAUSES...`. At each batch whose number is among PAUSES,
the fit prints the number and waits for a line on standard input.
"""

import sys
import warnings

import lightning.pytorch as pl
import torch

from trainvitals.lightning import ResourceMonitorCallback


class Model(pl.LightningModule):
    """A linear model that pauses at the given batches."""

    def __init__(self, pauses):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
        self.pauses = pauses

    def training_step(self, batch, batch_idx):
        """Return a loss."""
        if batch_idx in self.pauses:
            print(f"at {batch_idx}", flush=True)
            sys.stdin.readline()
        return (self.linear(batch[0]) - batch[1]).square().mean()

    def configure_optimizers(self):
        """Return an optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    """Fit."""
    warnings.simplefilter("ignore")  # Lightning would warn of a small machine
    torch.set_num_threads(1)
    folder, batches, *pauses = sys.argv[1:]
    data = torch.utils.data.TensorDataset(torch.ones(int(batches), 4), torch.ones(int(batches), 1))
    callback = ResourceMonitorCallback(
        log_interval=1, timeseries_path=folder, run="watched", sample_seconds=0
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(list(map(int, pauses))), torch.utils.data.DataLoader(data))
    print(f"fitted {trainer.global_step} steps, {callback.errors.count} errors", flush=True)


main()
