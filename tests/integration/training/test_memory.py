"""The memory of the training collector while runs begin and end for hours."""

from __future__ import annotations

import gc
import logging
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sources.runs.trainer import compose_run_file
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.exposition import Exposition
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource

SCRAPE_SECONDS = 15.0
BIRTHS_PER_SCRAPE = 8
# The limited caches of 1024 runs, of 256 files and of page texts are full after the warm-up.
WARM_UP_SCRAPES, SCRAPES, LOOK_EVERY = 150, 100, 5
BAND_BYTES = 1 << 20


class Machine:
    """A run directory whose runs end with their first record, and a collector that reads it.

    Args:
        runs: The run directory.
    """

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.now = time.time()
        self.births = 0
        source = TrainingSource(TrainingOptions(runs), clock=lambda: self.now)
        self.collector = TrainingCollector(source)
        self.expositions = (Exposition(), Exposition(openmetrics=True))

    def bear(self) -> None:
        """Write the run file of a dead run; the collector writes its ending note later."""
        self.births += 1
        run = f"run {self.births}"
        data = compose_run_file(run, wall_time=self.now, created_time=self.now, loss=self.births)
        path = self.runs / f"{run}.0.1.0.tv"
        path.write_bytes(data)
        os.utime(path, (self.now, self.now))

    def scrape(self) -> bytes:
        """Write the page in both formats and return the one in Prometheus' text format."""
        self.now += SCRAPE_SECONDS
        reading = self.collector.read(time.monotonic() + 5.0)
        blocks = self.collector.express(reading)
        page, _ = [exposition.write(blocks) for exposition in self.expositions]
        return page


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine with an empty run directory while memory allocations are traced."""
    machine = Machine(tmp_path)
    logging.disable(logging.WARNING)  # pytest would keep every line in memory
    tracemalloc.start(1)
    yield machine
    tracemalloc.stop()
    logging.disable(logging.NOTSET)
    machine.collector.close()


def test_births_and_deaths_reach_a_plateau(machine: Machine):
    """The collector's memory reaches a plateau while 2000 runs die within an hour."""
    traced = []
    for number in range(WARM_UP_SCRAPES + SCRAPES):
        for _ in range(BIRTHS_PER_SCRAPE):
            machine.bear()
        page = machine.scrape()
        assert page.count(b"\ntraining_process_up{") == min(16, machine.births)
        if number % LOOK_EVERY == 0:
            gc.collect()
        if number >= WARM_UP_SCRAPES and number % LOOK_EVERY == 0:
            traced.append(tracemalloc.get_traced_memory()[0])
    print("KiB:", [size >> 10 for size in traced])
    assert max(traced) - min(traced) < BAND_BYTES
    assert traced[-1] - traced[0] < BAND_BYTES / 2
