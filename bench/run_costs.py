"""The overhead of the observation by `trainvitals run` in a plain training loop on the CPU.

Run by `training_bench` in a separate process. Writes JSON to `observed.json`: the seconds per step
for each variant, one number per block of steps.

The variants alternate block by block within one process, in random order. For the variant `bare`,
every function of PyTorch is restored and every hook removed, so that the loop runs as without
`trainvitals run`. The seconds are CPU seconds of the training thread, as in `fit_costs`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader

from bench.fit_costs import BLOCK, Batch, Batches, Model, choose_size, make_batch, step, sum_up
from trainvitals.training.autolog.observer import Autolog

PLACES = (
    (torch.autograd, "backward"),
    (torch.amp.GradScaler, "scale"),
    (torch.amp.GradScaler, "step"),
    (torch.optim.Optimizer, "zero_grad"),
    (torch.nn.Module, "zero_grad"),
    (torch.nn.Module, "train"),
    (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__"),  # noqa: SLF001
)
HOOKS = (
    optimizers._global_optimizer_pre_hooks,  # noqa: SLF001
    optimizers._global_optimizer_post_hooks,  # noqa: SLF001
)


def save_state() -> Callable[[], None]:
    """Return a function that restores the current functions and hooks of PyTorch."""
    functions = [(owner, name, getattr(owner, name)) for owner, name in PLACES]
    hooks = [(each, dict(each)) for each in HOOKS]

    def restore() -> None:
        for owner, name, function in functions:
            setattr(owner, name, function)
        for registered, before in hooks:
            registered.clear()
            registered.update(before)

    return restore


def loop(rounds: int, batch: Batch) -> list[tuple[str, list[float]]]:
    """Train with and without the observation in turn; return the step durations of each block."""
    bare = save_state()
    autolog = Autolog(torch)
    autolog.install()
    variants = {"bare": bare, "observed": save_state()}
    model = Model()
    optimizer = model.configure_optimizers()
    data = Batches(batch, 1 + (rounds + 3) * len(variants) * BLOCK)
    batches: Iterator[Batch] = iter(DataLoader(data, batch_size=None))
    step(model, optimizer, next(batches))
    blocks = []
    for _ in range(rounds + 2):
        for name in random.sample(list(variants), len(variants)):
            variants[name]()
            seconds = []
            for _ in range(BLOCK):
                started_at = time.thread_time()
                step(model, optimizer, next(batches))
                seconds.append(time.thread_time() - started_at)
            blocks.append((name, seconds))
    if autolog.monitor is None or autolog.monitor.errors.count:
        raise AssertionError("the observation failed; see its log")
    return blocks


def main() -> None:
    """Train in both ways and write the answer."""
    run_dir, rounds = Path(sys.argv[1]), int(sys.argv[2])
    os.environ["TRAINVITALS_RUN_DIR"] = str(run_dir)
    torch.set_num_threads(1)
    random.seed(1)
    batch = make_batch(choose_size())
    (run_dir / "observed.json").write_text(json.dumps(sum_up(loop(rounds, batch), 2)))


if __name__ == "__main__":
    main()
