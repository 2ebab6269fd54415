"""A Lightning fit on a machine with eight GPUs whose driver fails during the fit."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.run_files import decode
from tests.support.trainers import SOURCE_ROOT
from trainvitals.runfile import STATE, STEP, State

FIT = Path(__file__).parents[2] / "fakes/watched_fit.py"
MIB = 1 << 20
UNKNOWN_ERROR = 999
BLOCK = re.compile(r"^\[Resources\] Batch (\d+):\n((?:  .*\n)*)", re.MULTILINE)


class Fit:
    """A fit in a process of its own, which pauses before given batches.

    Args:
        directory: The directory of its files.
        machine: The fake machine with the GPUs.
        pauses: The numbers of the batches before which the fit pauses.
        visible: The value of CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, directory: Path, machine: FakeMachine, *pauses: int, visible: str) -> None:
        environ = {**os.environ, **machine.environment(), "CUDA_VISIBLE_DEVICES": visible}
        environ |= {"PYTHONPATH": str(SOURCE_ROOT), "OMP_NUM_THREADS": "1"}
        environ |= {"TRAINVITALS_RUN_DIR": str(directory / "runs"), "PYTHONIOENCODING": "utf-8"}
        self._errors = directory / "fit.log"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, FIT, directory / "csv", "16", *map(str, pauses)],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )
        self._said: list[str] = []

    def wait_until(self, batch: int) -> None:
        """Wait until the fit pauses before a batch."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == f"at {batch}\n":
                return
            self._said.append(line)
        raise AssertionError(self.log())

    def go_on(self) -> None:
        """End a pause."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """Wait for the end of the fit and return its standard output."""
        rest, _ = self._process.communicate(timeout=200)
        assert self._process.returncode == 0, self.log()
        return "".join(self._said) + rest

    def log(self) -> str:
        """Return the standard error output of the fit."""
        return self._errors.read_text()

    def __enter__(self) -> Fit:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def read_rows(path: Path) -> list[Mapping[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def machine(tmp_path: Path):
    """Start a fake machine with eight GPUs, of which only the third is busy."""
    with FakeMachine(tmp_path, gpus=8) as machine:
        for slot in range(8):
            machine.gpu(slot).utilization = 1
        busy = machine.gpu(2)
        busy.utilization = 85
        busy.memory_total_bytes = 16384 * MIB
        busy.memory_used_bytes = 8192 * MIB
        busy.temperature = 72
        busy.power_milliwatts = 180_500
        yield machine


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # a fit that stalls has further gaps
def test_a_fit_shows_its_card_and_outlives_the_driver(tmp_path: Path, machine: FakeMachine):
    """Console and CSV have the visible GPU's values, and gaps while its driver fails or hangs."""
    with Fit(tmp_path, machine, 4, 8, 12, visible="2") as fit:
        fit.wait_until(4)
        machine.fail("nvml*", None, UNKNOWN_ERROR)
        fit.go_on()
        fit.wait_until(8)
        machine.fail("nvml*", None, 0)
        machine.hang("nvmlDeviceGetTemperature", 2)
        fit.go_on()
        fit.wait_until(12)
        machine.unhang("nvmlDeviceGetTemperature", 2)
        machine.gpu(2).utilization = 60
        time.sleep(0.5)
        fit.go_on()
        printed = fit.end()
    assert printed.endswith("fitted 16 steps, 0 errors\n")

    rows = read_rows(tmp_path / "csv/epoch_0.csv")
    assert [row["step"] for row in rows] == [str(step) for step in range(16)]
    expected = ["85.0"] * 4 + [""] * 8 + ["60.0"] * 4
    assert [row["gpu_0_util"] for row in rows] == expected
    assert {name: rows[0][name] for name in rows[0] if name.startswith("gpu_")} == {
        "gpu_0_util": "85.0",
        "gpu_0_memory_pct": "50.0",
        "gpu_0_memory_total_mb": "16384.0",
        "gpu_0_memory_used_mb": "8192.0",
        "gpu_0_power_w": "180.5",
        "gpu_0_temp_c": "72.0",
    }
    assert all(float(row["memory_percent"]) > 0 for row in rows)

    blocks = {int(number): lines for number, lines in BLOCK.findall(printed)}
    assert sorted(blocks) == list(range(16))
    assert blocks[3].startswith("  GPU 0: 85.0% util, 8192/16384 MB (50%), 72°C\n  CPU: ")
    for batch in range(4, 12):
        assert blocks[batch].startswith("  CPU: "), batch
    assert blocks[15].startswith("  GPU 0: 60.0% util, 8192/16384 MB (50%), 72°C\n  CPU: ")
    assert "GPU 1" not in printed
    assert fit.log().count("GPU values are missing") == 1
    assert machine.calls("nvmlDeviceGetUtilizationRates", 0) == 0

    (path,) = (tmp_path / "runs").glob("*.tv")
    record = decode(path.read_bytes())
    assert record.state[STATE["state"]] == State.FINISHED
    assert (record.step[STEP["steps"]], record.step[STEP["errors"]]) == (16, 0), fit.log()
