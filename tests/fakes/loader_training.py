"""A training whose data loader has worker processes.

    loader_training.py fork|spawn PATH

The first argument is the start method of the workers. The monitor is created outside of `if
__name__`, so spawned workers create one as well, and the data set refers to the monitor, so that
workers also receive it with the data set. After the last batch, the training waits, with its
workers alive, until a file exists at PATH.
"""

import sys
import time
from pathlib import Path

import torch

from trainvitals import TrainingMonitor

monitor = TrainingMonitor("loader")


class Rows(torch.utils.data.Dataset):
    """Eight rows; loading a row calls the monitor, which must have no effect in a worker.

    Args:
        monitor: A monitor, which workers receive with the data set.
    """

    def __init__(self, monitor):
        self.monitor = monitor

    def __len__(self):
        return 8

    def __getitem__(self, index):
        for known in (monitor, self.monitor):
            known.count_data_error()
            known.update_batch(1000)
        return torch.ones(3) * index


def train(start_method, stop):
    """Load all rows with two workers, and wait until a file exists at `stop`."""
    loader = torch.utils.data.DataLoader(
        Rows(monitor), batch_size=2, num_workers=2, multiprocessing_context=start_method,
        persistent_workers=True,
    )  # fmt: skip
    for batch in monitor.batches(loader):
        monitor.update_batch(len(batch))
    print("loaded", flush=True)
    while not stop.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(sys.argv[1], Path(sys.argv[2]))
