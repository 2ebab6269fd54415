"""A small regression in plain Python that prints the learned parameters as JSON.

Run as `python -S -E regression_training.py SOURCE_ROOT TROUBLE`. TROUBLE is `alone`, to train
without the monitor, or the change to the run directory during the training: `none`, `wipe` or
`fill`.
"""

import errno
import json
import os
import random
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

EPOCHS, STEPS, BATCH = 3, 60, 8
RATE = 0.05


class Nobody:
    """A stand-in for the monitor, whose methods do nothing."""

    def __getattr__(self, _):
        return lambda *_, **__: nullcontext()


def make_monitor(root):
    """Return the monitor of a run, from the package in `root`."""
    sys.path.insert(0, root)
    from trainvitals import TrainingMonitor  # noqa: PLC0415 - a run without the monitor does not import it

    return TrainingMonitor("regression", total_epochs=EPOCHS, publish_seconds=0)


def make_trouble(kind):
    """Delete or fill the run directory."""
    directory = Path(os.environ["TRAINVITALS_RUN_DIR"])
    if kind == "wipe":
        shutil.rmtree(directory)
    if kind == "fill":
        with (directory / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def main():
    """Fit y = 3x - 2 to noisy points."""
    _, root, trouble = sys.argv
    monitor = Nobody() if trouble == "alone" else make_monitor(root)
    points = random.Random(7)
    slope = intercept = 0.0
    for epoch in range(EPOCHS):
        monitor.start_epoch(epoch, steps=STEPS)
        if epoch == 1:
            make_trouble(trouble)
        for _ in range(STEPS):
            monitor.mark("data_wait")
            xs = [points.uniform(-1, 1) for _ in range(BATCH)]
            ys = [3 * x - 2 + points.gauss(0, 0.1) for x in xs]
            monitor.mark("forward")
            errors = [slope * x + intercept - y for x, y in zip(xs, ys, strict=True)]
            loss = sum(error * error for error in errors) / BATCH
            monitor.mark("backward")
            slope_gradient = sum(2 * error * x for error, x in zip(errors, xs, strict=True)) / BATCH
            intercept_gradient = sum(2 * error for error in errors) / BATCH
            monitor.mark("optimizer")
            slope -= RATE * slope_gradient
            intercept -= RATE * intercept_gradient
            monitor.update_batch(BATCH, loss=loss)
        for number in range(epoch * 20, epoch * 20 + 20):
            monitor.log({f"metric {number} of a rather long name": slope})
        with monitor.phase("validation"):
            monitor.log_validation(loss=abs(slope - 3) + abs(intercept + 2))
        with monitor.phase("checkpoint"):
            monitor.checkpoint_saved()
    monitor.finish()
    print(json.dumps([slope, intercept]))


main()
