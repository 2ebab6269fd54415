"""The part of the resource callbacks that needs no framework."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trainvitals.training.resourcemonitor import ResourceMonitor

SAME = "  (the same sample as above)"


class Watched(ResourceMonitor):
    """A resource monitor that reads memory from a list, on a clock that the test sets."""

    def __init__(self, directory: Path, percents: list[float], **options: float) -> None:
        self.seconds = 0.0
        self.percents = percents
        self.texts: list[str] = []
        super().__init__(
            gpu_monitoring=False,
            io_monitoring=False,
            timeseries_path=str(directory),
            clock=lambda: self.seconds,
            write=self.texts.append,
            **options,
        )

    def get_cpu_memory_metrics(self) -> dict[str, float]:
        """Return the next reading."""
        return {"memory_percent": self.percents.pop(0)}

    def sample(self, *times: float) -> list[str]:
        """Sample at these times, ten batches apart, and return the printed blocks."""
        for number, self.seconds in enumerate(times):
            self._sample_batch(10 * number, 10 * number, prints=True)
        self._end()
        return self.texts


def read_columns(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Return some columns of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [tuple(row[name] for name in names) for row in csv.DictReader(file)]


def test_lines_of_one_sample_have_its_number(tmp_path: Path) -> None:
    """Lines of the CSV file that repeat a reading have the same sample number."""
    Watched(tmp_path, [50.0, 50.0, 60.0]).sample(0.0, 0.4, 0.9, 1.0, 2.5)
    assert read_columns(tmp_path / "epoch_0.csv", "step", "memory_percent", "sample") == [
        ("0", "50.0", "1"),
        ("10", "50.0", "1"),
        ("20", "50.0", "1"),
        ("30", "50.0", "2"),
        ("40", "60.0", "3"),
    ]


def test_a_block_that_repeats_a_sample_says_so(tmp_path: Path) -> None:
    """A printed block that repeats the previous reading ends with a line that says so."""
    blocks = Watched(tmp_path, [50.0, 60.0]).sample(0.0, 0.5, 1.0)
    assert [block.splitlines() for block in blocks] == [
        ["[Resources] Batch 0:"],
        ["[Resources] Batch 10:", SAME],
        ["[Resources] Batch 20:"],
    ]


def test_with_no_time_between_each_line_is_a_sample_of_its_own(tmp_path: Path) -> None:
    """With `sample_seconds=0`, each line has a new reading."""
    blocks = Watched(tmp_path, [50.0, 50.0], sample_seconds=0.0).sample(0.0, 0.0)
    assert SAME not in "".join(blocks)
    assert read_columns(tmp_path / "epoch_0.csv", "sample") == [("1",), ("2",)]


@pytest.mark.parametrize("is_training", [True, False])
def test_the_reading_alone_decides_what_check_alerts_says(
    tmp_path: Path, *, is_training: bool
) -> None:
    """`check_alerts` depends only on the reading, not on earlier calls or the run's state."""
    monitor = Watched(tmp_path, [])
    if not is_training:
        monitor._pause()
    reading = {"gpu_0_util": 42.3, "memory_percent": 92.1, "io_wait_pct": 35.0, "gpu_0_temp_c": 81}
    told = [
        "⚠️ GPU underutilized: 42.3% (threshold: 50%)",
        "⚠️ High memory usage: 92.1% (threshold: 90%)",
        "⚠️ I/O bottleneck: 35.0% wait time (threshold: 30%)",
        "⚠️ GPU temperature high: 81°C",
    ]
    assert [monitor.check_alerts(reading) for _ in range(3)] == [told] * 3
    assert monitor.check_alerts({"gpu_0_util": 50, "memory_percent": 90, "gpu_0_temp_c": 80}) == []
