"""The training runs of the golden scrape: two ranks that train, one that was killed, and a log.

This module writes the run files itself, and a child process holds the locks of the live ranks'
files. All times follow the golden machine's clock.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    FILE_BYTES,
    LIVE_AT,
    NAMES_AT,
    PHASE_NAMES,
    STATE,
    STATE_AT,
    STATE_SLOT_BYTES,
    STEP,
    STEP_AT,
    STEP_SLOT_BYTES,
    Identity,
    Phase,
)
from trainvitals.runfile.codec import encode_header, encode_name
from trainvitals.sources.runs.source import TrainingOptions

BOOT_ID = "6d0f2a4e-8a55-4f2c-9a62-1f7f0a3c5b11"
UPTIME_SECONDS = 49_600.0
START_TICKS = 4_600_000
# The ranks' last record is a quarter of a second old when the page is read, 2.5 s after noon.
TOLD_AT = 2.25
LINE = "Epoch 12: val_loss: 0.9075 | val_iou: 0.0902 | val_dice: 0.1623\n"
BASELINES = """\
baselines:
  - {run: "llama-*", epochs_per_hour: 4, memory_by_batch_size: {16: 30GiB, 32: 50GiB}}
"""
NAMES = (("val_iou", "validation"), ("val_dice", "validation"))
_HOLD = (
    "import fcntl, os, sys\n"
    "for path in sys.argv[1:]:\n"
    "    fcntl.lockf(os.open(path, os.O_RDWR), fcntl.LOCK_EX, 1, 0)\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)
# The values that the ranks have reported by noon.
STEP_VALUES = {
    "phase": float(Phase.FORWARD),
    "steps": 5000.0,
    "samples": 160_000.0,
    "tokens": 327_680_000.0,
    "global_step": 25_000.0,
    "epoch_step": 1000.0,
    "loss": 1.875,
    "accuracy": 0.625,
    "learning_rate": 0.0003,
    "gradient_norm": 0.75,
    "loss_ema": 1.9375,
    "nonfinite_losses": 1.0,
    "step_seconds": 0.25,
    "slowest_step_seconds": 0.5,
    "train_seconds": 1250.0,
    "forward_seconds": 0.0625,
    "backward_seconds": 0.125,
    "optimizer_seconds": 0.03125,
    "window_train_seconds": 1240.0,
    "window_steps": 4960.0,
    "window_samples": 158_720.0,
    "window_tokens": 325_058_560.0,
    "overhead_seconds": 0.0125,
    "errors": 0.0,
    **{f"step_bucket_{index}": 0.0 for index in range(11)},
    "step_bucket_4": 4800.0,
    "step_bucket_5": 200.0,
}
SECONDS = {
    "init": 30.0,
    "compile": 45.0,
    "data_wait": 125.0,
    "h2d": 12.5,
    "forward": 312.5,
    "backward": 625.0,
    "optimizer": 156.25,
    "other": 18.75,
    "validation": 60.0,
    "checkpoint": 40.0,
    "idle": 20.0,
}
STATE_VALUES = {
    "state": 0.0,
    "epoch": 2.0,
    "total_steps": 100_000.0,
    "epoch_steps": 4000.0,
    "first_global_step": 20_000.0,
    "nonfinite_gradients": 0.0,
    "nonfinite_evaluations": 0.0,
    "data_errors": 2.0,
    "loss_spikes": 1.0,
    "loss_spike": 0.0,
    "dropped_names": 0.0,
    "alerts": 0.0,
    "memory_allocated_bytes": 40.0 * (1 << 30),
    "memory_reserved_bytes": 44.0 * (1 << 30),
    "memory_peak_bytes": 42.0 * (1 << 30),
    "memory_alloc_retries": 1.0,
    "memory_ooms": 1.0,
    "flops_per_token": 1.5e9,
    "peak_flops": 989e12,
}
# Only the first rank validates and saves checkpoints.
FIRST_STATE_VALUES = {
    **STATE_VALUES,
    "validation_loss": 2.0,
    "validation_accuracy": 0.5,
    "evaluations": 5.0,
    "evaluations_since_improvement": 1.0,
    "checkpoints": 2.0,
    "checkpoint_max_age_seconds": 3600.0,
    "names": float(len(NAMES)),
    "metric_0": 0.5,
    "metric_1": 0.25,
}
# The second rank has a baseline and has raised an alert. To leave room for these values, its
# framework reports neither memory nor epochs.
SECOND_STATE_VALUES = {
    **{
        name: value
        for name, value in STATE_VALUES.items()
        if not name.startswith(("memory", "epoch"))
    },
    "alerts": 2.0,
    "nan_filter_active": 1.0,
    "baseline_step_seconds": 0.25,
    "baseline_samples_per_second": 128.0,
    "baseline_utilization_ratio": 0.875,
}


class GoldenRuns:
    """The run files, a log, and the process that holds the locks of the run files.

    Args:
        directory: The existing directory in which the files are written.
        procfs: The golden machine's `/proc`.
        noon: The golden machine's time, Unix seconds.
    """

    def __init__(self, directory: Path, procfs: Path, noon: float) -> None:
        self._noon = noon
        self._directory = directory / "runs"
        self._directory.mkdir()
        boot = procfs / "sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text(f"{BOOT_ID}\n", encoding="ascii")
        self._paths = [self._directory / f"llama-7b.{rank}.99.golden.tv" for rank in range(3)]
        self._sequence = 0
        log = directory / "train.log"
        log.write_text(LINE, encoding="utf-8")
        os.utime(log, (noon - 20, noon - 20))
        baselines = directory / "baselines.yml"
        baselines.write_text(BASELINES, encoding="utf-8")
        self.options = TrainingOptions(self._directory, globs=(str(log),), baselines=baselines)
        for rank, path in enumerate(self._paths):
            path.write_bytes(self._compose(rank))
        self.train(0)
        self._kill_the_third()
        self._holder = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _HOLD, *self._paths[:2]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self._show_process(procfs)

    def train(self, steps: int) -> None:
        """Report more steps of both ranks; the second rank waits long for its data."""
        self._sequence += 1
        for rank, values in enumerate((FIRST_STATE_VALUES, SECOND_STATE_VALUES, STATE_VALUES)):
            self._publish(rank, steps if rank < 2 else 0, values)

    def close(self) -> None:
        """End the process that holds the locks."""
        self._holder.communicate()

    def _compose(self, rank: int) -> bytes:
        identity = Identity(
            "llama-7b",
            rank=rank,
            local_rank=rank,
            node_rank=0,
            world_size=3,
            attempt=1,
            pid=98 + rank,
            start_ticks=START_TICKS,
            boot_id=bytes.fromhex(BOOT_ID.replace("-", "")),
            created_time=self._noon - 3595,
            created_mono_ns=int((UPTIME_SECONDS - 3595) * 1e9),
            static={
                "framework": "torch",
                "framework_version": "2.13.0",
                "client_version": "0.1.0",
                "clock": "host",
                "hostname": "golden",
                "accelerator_uuids": [f"GPU-{rank}"],
            },
        )
        data = bytearray(FILE_BYTES)
        data[:NAMES_AT] = encode_header(identity)
        if rank == 0:
            for number, name in enumerate(NAMES):
                data[NAMES_AT + 64 * number : NAMES_AT + 64 * (number + 1)] = encode_name(*name)
        struct.pack_into("<d", data, LIVE_AT + 8 * Phase.FORWARD, UPTIME_SECONDS + TOLD_AT)
        return bytes(data)

    def _publish(self, rank: int, steps: int, state_values: Mapping[str, float]) -> None:
        step, state = list(EMPTY_STEP), list(EMPTY_STATE)
        done = 40.0 * (self._sequence - 1) if steps else 0.0
        values = {**STEP_VALUES, **{f"total_{name}": SECONDS[name] for name in PHASE_NAMES}}
        for name, each in (("steps", 1), ("global_step", 1), ("epoch_step", 1), ("samples", 32)):
            values[name] += each * done
        values["tokens"] += 65_536 * done
        values["train_seconds"] += 0.25 * done
        values["step_bucket_4"] += done
        values["total_data_wait"] += (0.125 if rank == 1 else 0.025) * done
        values["total_forward"] += 0.0625 * done
        values["total_optimizer"] += 0.03125 * done
        for name in ("wall_time", "last_progress_time"):
            values[name] = self._noon + (TOLD_AT if rank < 2 else -31)
        values["phase_start_time"] = self._noon - 600
        for name, value in values.items():
            step[STEP[name]] = value
        times = {"wall_time": 5.0, "state_time": 3595.0, "epoch_start_time": 250.0}
        if rank == 0:
            times["last_checkpoint_time"] = 600.0
        else:
            times |= {"last_nonfinite_time": 900.0, "last_oom_time": 1800.0}
        for name, ago in times.items():
            state[STATE[name]] = self._noon - ago
        for name, value in state_values.items():
            state[STATE[name]] = value
        with self._paths[rank].open("r+b", buffering=0) as file:
            for at, slot_bytes, row in (
                (STEP_AT, STEP_SLOT_BYTES, step),
                (STATE_AT, STATE_SLOT_BYTES, state),
            ):
                row[2] = (UPTIME_SECONDS + TOLD_AT) * 1e9
                words = struct.pack("<2Q", self._sequence, len(row))
                words += struct.pack(f"<{len(row) - 2}d", *row[2:])
                file.seek(at + self._sequence % 2 * slot_bytes)
                file.write(words + struct.pack("<Q", zlib.crc32(words)))

    def _kill_the_third(self) -> None:
        """Write the note of an exporter that saw the kernel kill the third rank."""
        note = {
            "format": 1,
            "reason": "oom",
            "exit_code": None,
            "signal": 9,
            "exception": None,
            "time": self._noon - 30,
            "evidence": "The kernel said so.",
            "machine": {},
        }
        path = self._paths[2]
        path.with_name(f"{path.name}.end").write_text(json.dumps(note), encoding="utf-8")

    def _show_process(self, procfs: Path) -> None:
        """Add the process that holds the locks to `/proc`, in state S."""
        folder = procfs / str(self._holder.pid)
        folder.mkdir()
        columns = " ".join(["0"] * 18 + [str(START_TICKS)] + ["0"] * 31)
        stat = f"{self._holder.pid} (python3) S {columns}\n"
        (folder / "stat").write_text(stat, encoding="ascii")
