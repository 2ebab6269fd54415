"""What watching costs a real training loop on the CPU: Lightning's, and one of one's own.

Run by `training_bench` in a process of its own. Leaves JSON in `answer.json`: for each loop and each
variant the seconds of a step, one number a block of steps.

The variants take turns block by block within one fit, in random order. Seconds are those of the
training thread on a CPU, so that what others do on the machine counts less; nothing that is compared
waits for anything. Of a block the ordinary steps count by their median and the one on which the
callback looks at the resources as what it is: `(9 ordinary steps + 1 with a look) / 10`, in the same
way for each variant. The bare variant is a callback of Lightning's that does nothing: it tells what
Lightning's calls of the hooks cost.
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
    """The same batch so many times."""

    def __init__(self, batch: Batch, count: int) -> None:
        self._batch = batch
        self._count = count

    def __iter__(self) -> Iterator[Batch]:
        return iter([self._batch] * self._count)


class Model(LightningModule):
    """A perceptron."""

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
        """Return the loss."""
        inputs, targets = batch
        return nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the usual one."""
        return torch.optim.Adam(self.parameters(), lr=1e-4)


class Turns(Callback):
    """Has callbacks take turns in a fit, and times the steps.

    It stands last, so that a step ends when everybody's hooks at its end are done.

    Args:
        variants: The callbacks of each variant.
    """

    def __init__(self, variants: dict[str, list[Callback]]) -> None:
        self._variants = variants
        self.blocks: list[tuple[str, list[float]]] = []
        self._order: list[str] = []
        self._ended_at = 0.0

    def on_train_batch_end(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Note the seconds of a step, and begin the next block when this one is full."""
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
    """Make a batch of noise."""
    return torch.randn(size, WIDTH), torch.randn(size, 1)


def choose_size() -> int:
    """Find the size of a batch whose step takes about five milliseconds."""
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
    """Take one step without any framework."""
    optimizer.zero_grad()
    loss = model.training_step(batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def step_watched(
    model: Model, optimizer: torch.optim.Optimizer, batch: Batch, monitor: TrainingMonitor
) -> None:
    """Take one step as the documentation shows it."""
    monitor.mark("forward")
    optimizer.zero_grad()
    loss = model.training_step(batch)
    monitor.mark("backward")
    loss.backward()
    monitor.mark("optimizer")
    optimizer.step()
    monitor.update_batch(len(batch[0]), loss=loss)


def fit(rounds: int, batch: Batch, run_dir: Path) -> list[tuple[str, list[float]]]:
    """Train with Lightning; give the blocks."""
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
    """Train without a framework; give the blocks."""
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
    """Return the seconds of a step of each variant, one number a round; the first two are left out.

    The callback looks at the resources on the first step of its block.
    """
    rounds: dict[str, list[float]] = {}
    whole = [(name, seconds) for name, seconds in blocks if len(seconds) == BLOCK]
    for name, (look, *ordinary) in whole[2 * variants : len(whole) // variants * variants]:
        seconds = (statistics.median(ordinary) * (BLOCK - 1) + look) / BLOCK
        rounds.setdefault(name, []).append(seconds)
    return rounds


def main() -> None:
    """Train both ways."""
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
