"""The overhead of trainvitals in training loops on the CPU, with Lightning and without a framework.

Run by `training_bench` in a separate process. Writes JSON to `answer.json`: the seconds per step
for each loop and variant, one number per block of steps.

The variants alternate block by block within one fit, in random order. The seconds are CPU seconds
of the training thread, so that other processes of the machine have less influence; no compared code
waits. The mean of a block is `(9 ordinary steps + 1 with a read) / 10` for each variant: the
ordinary steps count by their median, and the step in which the callback reads the resources as
measured. The variant `bare` is a Lightning callback that does nothing and shows how long
Lightning's calls of the hooks take.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from trainvitals import TrainingMonitor
from trainvitals.lightning import ResourceMonitorCallback

STEP_SECONDS = 0.005
WIDTH = 256
BLOCK = 10  # the callback's log_interval
Batch = tuple[Tensor, Tensor]


class Batches(IterableDataset[Batch]):
    """A data set that repeats the same batch."""

    def __init__(self, batch: Batch, count: int) -> None:
        self._batch = batch
        self._count = count

    def __iter__(self) -> Iterator[Batch]:
        return iter([self._batch] * self._count)


class Model(LightningModule):
    """A small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 1),
        )

    def training_step(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        inputs, targets = batch
        return nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an Adam optimizer."""
        return torch.optim.Adam(self.parameters(), lr=1e-4)


class Turns(Callback):
    """A callback that switches between variants during a fit and times the steps.

    It is the last callback, so that a step ends after the hooks of all other callbacks.

    Args:
        variants: The callbacks of each variant.
    """

    def __init__(self, variants: dict[str, list[Callback]]) -> None:
        self._variants = variants
        self.blocks: list[tuple[str, list[float]]] = []
        self._order: list[str] = []
        self._ended_at = 0.0

    def on_train_batch_end(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Record the duration of a step, and begin the next block when the current one is full."""
        now = time.thread_time()
        if self.blocks:
            self.blocks[-1][1].append(now - self._ended_at)
        if not self.blocks or len(self.blocks[-1][1]) == BLOCK:
            self._begin_block(trainer)
        self._ended_at = time.thread_time()

    def _begin_block(self, trainer: Trainer) -> None:
        if not self._order:
            self._order = random.sample(list(self._variants), len(self._variants))
        name = self._order.pop()
        self.blocks.append((name, []))
        trainer.callbacks = [*self._variants[name], self]


def make_batch(size: int) -> Batch:
    """Return a batch of random numbers."""
    return torch.randn(size, WIDTH), torch.randn(size, 1)


def choose_size() -> int:
    """Return a batch size for which one step takes about five milliseconds."""
    model, size = Model(), 64
    optimizer = model.configure_optimizers()
    while True:
        batch = make_batch(size)
        seconds = []
        for _ in range(12):
            started_at = time.thread_time()
            step(model, optimizer, batch)
            seconds.append(time.thread_time() - started_at)
        if min(seconds) > STEP_SECONDS * 0.8 or size > 1 << 16:
            return size
        size *= 2 if min(seconds) < STEP_SECONDS / 3 else 1
        size += size // 4


def step(model: Model, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """Run one training step without a framework."""
    optimizer.zero_grad()
    loss = model.training_step(batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def step_watched(
    model: Model, optimizer: torch.optim.Optimizer, batch: Batch, monitor: TrainingMonitor
) -> None:
    """Run one training step with the calls of `TrainingMonitor` that the documentation shows."""
    monitor.mark("forward")
    optimizer.zero_grad()
    loss = model.training_step(batch)
    monitor.mark("backward")
    loss.backward()
    monitor.mark("optimizer")
    optimizer.step()
    monitor.update_batch(len(batch[0]), loss=loss)


def fit(rounds: int, batch: Batch, run_dir: Path) -> list[tuple[str, list[float]]]:
    """Train with Lightning and return the step durations of each block."""
    with TrainingMonitor("fit", rank=0, run_dir=run_dir) as monitor:
        options = {"log_interval": BLOCK, "timeseries_path": str(run_dir / "csv")}
        enabled = ResourceMonitorCallback(monitor=monitor, **options)
        disabled = ResourceMonitorCallback(enabled=False, **options)
        variants = {
            "absent": [],
            "bare": [Callback()],
            "disabled": [disabled],
            "enabled": [enabled],
        }
        turns = Turns(variants)
        trainer = Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[enabled, disabled, turns],
            default_root_dir=run_dir,
        )
        data = Batches(batch, 1 + (rounds + 2) * len(variants) * BLOCK)
        trainer.fit(Model(), DataLoader(data, batch_size=None))
    if enabled.errors.count:
        raise AssertionError("the callback failed; see its log")
    return turns.blocks


def loop(rounds: int, batch: Batch, run_dir: Path) -> list[tuple[str, list[float]]]:
    """Train without a framework and return the step durations of each block."""
    model = Model()
    optimizer = model.configure_optimizers()
    blocks = []
    with TrainingMonitor("loop", rank=0, run_dir=run_dir) as monitor:
        monitor.start_epoch()
        variants: dict[str, Callable[[], object]] = {
            "plain": lambda: step(model, optimizer, batch),
            "watched": lambda: step_watched(model, optimizer, batch, monitor),
        }
        for _ in range(rounds + 2):
            for name in random.sample(list(variants), len(variants)):
                seconds = []
                for _ in range(BLOCK):
                    started_at = time.thread_time()
                    variants[name]()
                    seconds.append(time.thread_time() - started_at)
                blocks.append((name, seconds))
    return blocks


def sum_up(blocks: list[tuple[str, list[float]]], variants: int) -> dict[str, list[float]]:
    """Return the mean seconds per step of each variant and round, without the first two rounds.

    The callback reads the resources on the first step of its block.
    """
    rounds: dict[str, list[float]] = {}
    whole = [(name, seconds) for name, seconds in blocks if len(seconds) == BLOCK]
    for name, (look, *ordinary) in whole[2 * variants : len(whole) // variants * variants]:
        seconds = (statistics.median(ordinary) * (BLOCK - 1) + look) / BLOCK
        rounds.setdefault(name, []).append(seconds)
    return rounds


def main() -> None:
    """Train in both ways and write the answer."""
    run_dir, rounds = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    random.seed(1)
    batch = make_batch(choose_size())
    answer = {
        "lightning": sum_up(fit(rounds, batch, run_dir), 4),
        "loop": sum_up(loop(rounds, batch, run_dir), 2),
    }
    (run_dir / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
