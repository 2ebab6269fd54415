"""Training processes that are killed, stopped, replaced and forked, seen through the real exporter."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.exporter_process import ExporterProcess, Page
from tests.sources.training.trainer import kernel_tells_exits
from tests.trainers import (
    LONG,
    SOURCE_ROOT,
    Restless,
    burning,
    check_record,
    read_footprint,
    train_with_workers,
)
from trainvitals.runfile import STATE, STEP, State, decode
from trainvitals.scrape import REUSE_SECONDS

KILLS = 300 if LONG else 30
BATCH = 3
WARM_UP_ROUNDS = 4
MIB = 1 << 20
ENDED = "training_process_end_timestamp_seconds"
INCOMPATIBLE = "training_client_incompatible_files"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The run directory."""
    return tmp_path / "runs"


@pytest.fixture
def exporter(tmp_path: Path, runs: Path) -> Iterator[ExporterProcess]:
    """An exporter that reads the run directory."""
    with ExporterProcess(tmp_path, arguments=(f"--run-dir={runs}",)) as exporter:
        yield exporter


def scrape_anew(exporter: ExporterProcess) -> Page:
    """Scrape once the page that may have been made before is no longer served."""
    time.sleep(1.25 * REUSE_SECONDS)
    page = exporter.scrape("training")
    assert page.value("trainvitals_collector_success", collector="training") == 1
    return page


def meet(exporter: ExporterProcess, trainers: Sequence[Restless]) -> Page:
    """Let the exporter see trainers alive, for only then can it learn how they end."""
    assert all(trainer.path.exists() for trainer in trainers)
    return scrape_anew(exporter)


def check_dead(page: Page, trainer: Restless, rank: dict[str, str]) -> None:
    """Check that a page tells of a trainer that was killed, and what it did at last."""
    steps = check_record(trainer.read())
    assert page.value("training_process_up", **rank) == 0
    assert page.value("training_steps_total", **rank) == steps
    assert page.value("training_samples_total", **rank) == 7 * steps
    reason, code = ("signal", 137) if kernel_tells_exits() else ("unknown", None)
    assert set(page.values(ENDED, "reason", **rank)) == {reason}
    assert page.value("training_process_exit_code", **rank) == code
    assert page.value("training_stalled", **rank) is None


@pytest.mark.long
def test_every_kill_leaves_a_whole_record_and_shows_at_once(exporter: ExporterProcess, runs: Path):
    """Under load and at any moment; the living train on, and the exporter keeps nothing of the dead."""
    moments = random.Random(5)
    with burning(2), ExitStack() as stack:

        def start(number: int) -> Sequence[Restless]:
            trainers = [Restless(runs, f"round {number}", rank) for rank in range(BATCH)]
            return [stack.enter_context(trainer) for trainer in trainers]

        doomed, before = start(0), (0, 0, 0)
        meet(exporter, doomed)
        for number in range(KILLS // BATCH):
            living = start(number + 1)
            for trainer in doomed:
                time.sleep(moments.uniform(0, 0.02))
                trainer.kill()
            page = meet(exporter, living)
            run = f"round {number}"
            for rank, trainer in enumerate(doomed):
                check_dead(page, trainer, {"run": run, "rank": str(rank)})
            reason = "signal" if kernel_tells_exits() else "unknown"
            exits = page.values("training_process_exits_total", "reason", run=run)
            # What the kernel has not told yet is counted once it will not tell it any more.
            assert exits[reason] == (BATCH if kernel_tells_exits() else 0)
            assert sum(exits.values()) == exits[reason]
            assert page.value("training_ranks_seen", run=run) == 0
            assert page.value(INCOMPATIBLE) == 0
            for trainer in doomed:
                trainer.path.unlink()
            if number == WARM_UP_ROUNDS:
                before = read_footprint(exporter.pid)
            doomed = living
        after = read_footprint(exporter.pid)
    print("descriptors, threads, bytes:", before, after)
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2] - before[2] < 2 * MIB
