"""A rank of a training run that reports every value of a run with the real client.

Run as `python training_loop.py RUN RANK WORLD ATTEMPT STEP SECONDS DIVERGES`. The rank continues
from STEP and ends after SECONDS; with 0 it trains until it is killed. The last of several ranks
waits for its data three times as long as the others. With 1 for DIVERGES, the loss is NaN after 250
steps. A stand-in for torch reports the state of its allocator.
"""

from __future__ import annotations

import math
import sys
import time
from types import ModuleType, SimpleNamespace

GIB = 1 << 30
BATCH, TOKENS = 32, 2048
SECONDS = {"data_wait": 0.010, "h2d": 0.002, "forward": 0.015, "backward": 0.025, "optimizer": 0.01}


def make_torch() -> ModuleType:
    """Return a stand-in for torch that has only the figures of an allocator."""
    figures = {
        "allocated_bytes": {"all": {"current": 40 * GIB, "peak": 52 * GIB}},
        "reserved_bytes": {"all": {"current": 56 * GIB}},
        "num_alloc_retries": 1,
        "num_ooms": 0,
    }
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: True,
        current_device=lambda: 0,
        get_device_properties=lambda _device: None,
        memory_stats_as_nested_dict=lambda _device=None: figures,
    )
    return torch


def main() -> None:
    """Train for the given time, or until the process is killed."""
    run, rank, world, attempt, first, seconds, diverges = sys.argv[1], *map(int, sys.argv[2:8])
    sys.modules["torch"] = make_torch()
    from trainvitals import TrainingMonitor  # noqa: PLC0415 - it imports the stand-in

    until = time.monotonic() + seconds if seconds else math.inf
    is_slow = rank > 0 and rank == world - 1
    with TrainingMonitor(
        run,
        rank=rank,
        world_size=world,
        attempt=attempt,
        total_steps=5000,
        epoch_steps=100,
        global_step=first,
        framework="torch",
        framework_version="2.13.0",
        flops_per_sample=1.4e12,
        peak_flops=989e12,
        checkpoint_max_age_seconds=3600,
    ) as monitor:
        print("trains", flush=True)
        step = first
        while time.monotonic() < until:
            if step % 100 == 0 or step == first:
                monitor.start_epoch(step // 100)
            step += 1
            for phase, length in SECONDS.items():
                monitor.mark(phase)
                time.sleep(3 * length if is_slow and phase == "data_wait" else length)
            is_bad = diverges and step - first > 250
            loss = math.nan if is_bad else 4 * math.exp(-step / 2000)
            monitor.update_batch(
                BATCH,
                TOKENS,
                loss=loss,
                accuracy=1 - math.exp(-step / 3000),
                learning_rate=3e-4,
                gradient_norm=0.5 + 1 / step,
            )
            look_after(monitor, step, step - first)


def look_after(monitor, step, done):  # type: ignore[no-untyped-def]
    """Do what happens only at some steps, such as validation and checkpoints."""
    if done == 20:
        monitor.set_baseline(
            step_seconds=0.06, samples_per_second=500.0, utilization_ratio=0.9, deviations=1
        )
        monitor.raise_alert("adaptive_step_time")
        monitor.count_data_error()
        monitor.set_nan_filter(active=True)
    if done % 40 == 0 and monitor.rank == 0:
        with monitor.phase("validation"):
            time.sleep(0.3)
            quality = 1 - math.exp(-step / 4000)
            monitor.log_validation(
                loss=3.9 * math.exp(-step / 2000), accuracy=quality, iou=quality, dice=quality
            )
    if done % 60 == 0 and monitor.rank == 0:
        with monitor.phase("checkpoint"):
            time.sleep(0.4)
            monitor.checkpoint_saved()


if __name__ == "__main__":
    main()
