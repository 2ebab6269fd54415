"""Tests for the training source with real processes, run files, logs and event files."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.runs.rows import write_record
from tests.unit.sources.runs.trainer import (
    Trainer,
    compose_run_file,
    kernel_tells_exits,
)
from trainvitals.runfile import ABSENT, ALERTS, STATE, STEP, STEP_AT, State
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.attempts import Losses
from trainvitals.sources.runs.candidates import NameLister
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.reading import FollowedFiles, RankReading, RunReading, RunsReading
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource


class Clock:
    """The time of day, which a test may move forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return time.time() + self.ahead


class Holders(MachineState):
    """A machine state in which a test determines the accelerators that processes hold."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, tuple[str, ...]] = {}

    def holders(self) -> dict[int, tuple[str, ...]]:
        """Return the accelerators that the test set."""
        return self.held


class Machine:
    """A run directory and the training source that reads it."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.runs = directory / "runs"
        self.runs.mkdir()
        self.clock = Clock()
        self.reloads = 0
        self.surroundings = Holders()
        self.source = TrainingSource(
            TrainingOptions(self.runs, **options),  # type: ignore[arg-type]
            roots=Roots(),
            machine=self.surroundings,
            clock=self.clock,
            reloads=lambda: self.reloads,
        )

    def read(self) -> RunsReading:
        """Read all runs."""
        return self.source.read(time.monotonic() + 5)

    def rank(self) -> RankReading:
        """Read all runs and return the only rank."""
        (rank,) = self.read().ranks
        return rank

    def run(self) -> RunReading:
        """Read all runs and return the only run."""
        (run,) = self.read().runs
        return run


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine without runs."""
    machine = Machine(tmp_path)
    yield machine
    machine.source.close()


def leave_file(machine: Machine, name: str, **words: object) -> Path:
    """Write the run file of a dead process, such as a process of an earlier boot."""
    path = machine.runs / f"{name}.tv"
    path.write_bytes(compose_run_file(**words))  # type: ignore[arg-type]
    return path


def test_a_machine_without_runs_is_quiet(machine: Machine):
    """An empty or missing run directory causes no complaint."""
    assert machine.read() == RunsReading()
    machine.runs.rmdir()
    assert machine.read() == RunsReading()


def test_a_run_that_trains_is_alive_and_gets_on(machine: Machine):
    """A training run is alive and not stalled, and a single rank is not compared with others."""
    with Trainer(machine.runs) as trainer:
        trainer.do("step 0.25")
        rank = machine.rank()
        assert (rank.run, rank.rank, rank.source) == ("run", "0", "client")
        assert rank.liveness is not None
        assert rank.liveness.is_alive
        assert rank.liveness.host_pid == trainer.pid
        assert rank.ending is None
        assert rank.stall is not None
        assert rank.stall.cause is None
        assert rank.record.step[STEP["loss"]] == 0.25
        assert rank.slowness is None
        assert rank.start_timestamp_seconds == pytest.approx(time.time(), abs=20)
        run = machine.run()
        assert (run.ranks_alive, run.world_size) == (1, None)
        assert set(run.exits.values()) == {0}


def test_a_killed_run_is_told_in_the_next_reading(machine: Machine, caplog):
    """The reading after the kill contains the reason, and the ending is logged once."""
    with Trainer(machine.runs) as trainer:
        trainer.do("step 0.25")
        machine.read()
        with caplog.at_level(logging.INFO, logger="trainvitals"):
            trainer.kill(signal.SIGKILL)
            rank = machine.rank()
            assert rank.ending is not None
            assert rank.stall is None
            assert rank.ending.time == pytest.approx(time.time(), abs=5)
            machine.clock.ahead = 11
            run = machine.run()
    reason = "signal" if kernel_tells_exits() else "unknown"
    assert rank.ending.reason == reason
    assert run.exits[reason] == 1
    assert sum(run.exits.values()) == 1
    assert run.ranks_alive == 0
    words = (
        "was killed by signal 9 (SIGKILL)" if kernel_tells_exits() else "died for an unknown reason"
    )
    assert [r.getMessage() for r in caplog.records if r.name == "trainvitals"] == [
        f"run run rank 0 {words}"
    ]
    assert "memory_available_bytes" in rank.ending.machine


def test_how_a_run_ended_is_noted_beside_its_file(machine: Machine, tmp_path: Path):
    """Another exporter reads the ending from the note, and does not log the ending again."""
    with Trainer(machine.runs) as trainer:
        machine.read()
        trainer.kill(signal.SIGTERM)
        ending = machine.rank().ending
    note = json.loads(trainer.path.with_name(trainer.path.name + ".end").read_text())
    assert ending is not None
    assert note["reason"] == ending.reason
    assert note["machine"]["memory_total_bytes"] > 0
    other = TrainingSource(TrainingOptions(machine.runs), roots=Roots())
    (rank,) = other.read(time.monotonic() + 5).ranks
    other.close()
    assert rank.ending == ending


def test_a_run_that_finished_says_so_itself(machine: Machine):
    """A run that recorded its end counts as finished, although its process continues."""
    with Trainer(machine.runs) as trainer:
        machine.read()
        trainer.do("finish")
        rank = machine.rank()
        assert rank.ending is not None
        assert rank.ending.reason == "finished"
        assert machine.run().exits["finished"] == 1


def test_a_run_that_failed_has_its_exception(machine: Machine):
    """The class of the exception is reported, and the exit is counted once."""
    with Trainer(machine.runs) as trainer:
        trainer.do("fail ValueError")
        rank = machine.rank()
        assert rank.ending is not None
        assert (rank.ending.reason, rank.ending.exception) == ("exception", "ValueError")
        assert machine.run().exits["exception"] == 1
        assert machine.run().exits["exception"] == 1


def test_a_stopped_run_stands_still(machine: Machine):
    """A run is stalled while its process is stopped by SIGSTOP, until SIGCONT."""
    with Trainer(machine.runs) as trainer:
        machine.read()
        os.kill(trainer.pid, signal.SIGSTOP)
        wait_until(lambda: _cause(machine.rank()) == "stopped")
        os.kill(trainer.pid, signal.SIGCONT)
        wait_until(lambda: _cause(machine.rank()) is None)


def _cause(rank: RankReading) -> str | None:
    assert rank.stall is not None
    return rank.stall.cause


def test_a_dead_rank_is_shown_for_a_quarter_of_an_hour(machine: Machine):
    """A dead rank is shown for 15 minutes, and its run file is kept longer."""
    with Trainer(machine.runs) as trainer:
        machine.read()
        trainer.kill()
    machine.read()
    machine.clock.ahead = 899
    assert len(machine.read().ranks) == 1
    machine.clock.ahead = 901
    assert machine.read() == RunsReading()
    assert trainer.path.exists()


def test_a_run_that_is_started_again_counts_as_such(machine: Machine):
    """The new process replaces the dead process, and the restart is counted."""
    with Trainer(machine.runs) as first:
        machine.read()
        first.kill()
        machine.read()
        with Trainer(machine.runs) as second:
            rank = machine.rank()
            assert rank.liveness is not None
            assert rank.liveness.host_pid == second.pid
            losses = machine.run().losses
            assert losses is not None
            assert losses.restarts == 1


def test_the_accelerators_of_a_rank_are_those_that_its_process_holds(machine: Machine):
    """A rank's accelerators remain known after its process has died."""
    with Trainer(machine.runs) as trainer:
        assert machine.rank().gpu_uuids == ()
        machine.surroundings.held = {trainer.pid: ("GPU-7", "GPU-8"), 1: ("GPU-9",)}
        assert machine.rank().gpu_uuids == ("GPU-7", "GPU-8")
        trainer.kill()
        machine.surroundings.held = {}
        assert machine.rank().gpu_uuids == ("GPU-7", "GPU-8")


def test_at_most_64_ranks_and_16_runs_are_shown(machine: Machine):
    """The other ranks are counted as omitted, and living ranks are shown first."""
    now = time.time()
    for number in range(20):
        for rank in range(5):
            leave_file(
                machine,
                f"run{number}.{rank}",
                run=f"run{number}",
                rank=rank,
                boot_id=b"a former boot id",
                wall_time=now,
                state=State.FINISHED,
            )
    with Trainer(machine.runs, rank=5):
        reading = machine.read()
    assert len(reading.ranks) == 64
    assert len(reading.runs) == 14  # the living run, and 13 runs of up to five ranks
    assert reading.omitted == 101 - 64
    (alive,) = [rank for rank in reading.ranks if rank.liveness and rank.liveness.is_alive]
    assert (alive.run, alive.rank) == ("run", "5")


def test_an_end_is_told_though_too_many_runs_live(machine: Machine):
    """If 17 runs are alive, one of the 16 shown runs that ends keeps its place for 2 minutes."""
    with ExitStack() as living:
        trainers = [
            living.enter_context(Trainer(machine.runs, run=f"run{number:02}"))
            for number in range(17)
        ]
        first = [f"run{number:02}" for number in range(16)]
        assert [rank.run for rank in machine.read().ranks] == first
        trainers[3].kill()
        ranks = machine.read().ranks
        assert [rank.run for rank in ranks] == first
        assert [rank.run for rank in ranks if rank.ending is not None] == ["run03"]
        machine.clock.ahead = 121.0
        assert [rank.run for rank in machine.read().ranks] == [
            *(name for name in first if name != "run03"),
            "run16",
        ]


def test_runs_of_two_users_by_one_name_are_two(machine: Machine):
    """The run whose name was used first keeps it, and the other run's name contains the user ID."""
    now = time.time()
    words = {"boot_id": b"a former boot id", "wall_time": now, "state": State.FINISHED}
    leave_file(machine, "first", **words)
    machine.read()
    other = leave_file(machine, "other", **words)
    os.chown(other, 12345, -1)
    reading = machine.read()
    assert [rank.run for rank in reading.ranks] == ["run", "run (uid 12345)"]
    assert [run.exits["finished"] for run in reading.runs] == [1, 1]
    other.unlink()
    assert [rank.run for rank in machine.read().ranks] == ["run"]


def test_what_is_overtaken_alive_is_counted(machine: Machine):
    """Of two processes with the same run and rank, the later one is shown; the other is counted."""
    with Trainer(machine.runs) as old, Trainer(machine.runs) as new:
        reading = machine.read()
        (rank,) = reading.ranks
        assert rank.liveness is not None
        assert rank.liveness.host_pid == new.pid != old.pid
        assert reading.omitted == 1


def test_a_container_that_hangs_costs_its_own_runs(machine: Machine, monkeypatch):
    """If reading a container's directory hangs, only the runs in containers are missing."""
    freed = threading.Event()
    with Trainer(machine.runs):
        assert len(machine.read().ranks) == 1
        containers = machine.source._containers
        monkeypatch.setattr(containers, "is_idle", lambda _: False)
        monkeypatch.setattr(containers, "read", lambda _: freed.wait(60) and ())
        for _ in range(2):
            reading = machine.read()
            assert len(reading.ranks) == 1
            assert reading.complaint == (
                "run directories in containers could not be read in time; "
                "check what is mounted there"
            )
        freed.set()
        wait_until(lambda: machine.read().complaint is None)


def test_too_many_names_are_complained_about(machine: Machine):
    """If the directory has too many names, the reading contains a complaint."""
    machine.source._directory._names = NameLister(2)
    for number in range(3):
        (machine.runs / f"{number}").touch()
    complaint = machine.read().complaint
    assert complaint is not None
    assert "so many names" in complaint


def test_files_that_are_no_run_files_are_counted(machine: Machine):
    """A file that is not a run file is counted as incompatible, and the other runs are read."""
    (machine.runs / "junk.tv").write_bytes(os.urandom(16384))
    with Trainer(machine.runs):
        reading = machine.read()
    assert reading.incompatible_files == 1
    assert len(reading.ranks) == 1


def test_a_run_directory_that_cannot_be_read_is_complained_about(tmp_path: Path):
    """The complaint names the run directory, and no ranks are reported."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    source = TrainingSource(TrainingOptions(loop))
    reading = source.read(time.monotonic() + 5)
    source.close()
    assert reading.ranks == ()
    assert reading.complaint is not None
    assert str(loop) in reading.complaint


def test_a_log_becomes_a_run(tmp_path: Path):
    """A line in the log of a script without the training client is reported as a run."""
    log = tmp_path / "train.log"
    log.write_text("Epoch 1: val_loss: 0.9075 | val_iou: 0.0902 | val_dice: 0.1623\n")
    machine = Machine(tmp_path, globs=(str(log),))
    rank = machine.rank()
    run = machine.run()
    machine.source.close()
    assert (rank.run, rank.rank, rank.source) == ("train", "0", "log")
    assert rank.record.state[STATE["validation_loss"]] == 0.9075
    assert rank.record.state[STATE["epoch"]] == 1
    assert rank.record.step[STEP["loss"]] == ABSENT
    assert dict(
        zip(
            [name for name, _ in rank.record.metrics],
            rank.record.state[STATE["metric_0"] :],
            strict=False,
        )
    ) == {"val_iou": 0.0902, "val_dice": 0.1623}
    assert rank.liveness is None
    assert rank.ending is None
    assert run == RunReading("train", "log")
    assert rank.stall is not None
    assert rank.stall.progress_timestamp_seconds == pytest.approx(time.time(), abs=10)


def test_a_log_that_nobody_writes_to_leaves_the_page_after_an_hour(tmp_path: Path):
    """A log's end is unknown, so its run is shown for one hour after the last write."""
    log = tmp_path / "train.log"
    log.write_text("Epoch 1: val_loss: 0.9075\n")
    machine = Machine(tmp_path, globs=(str(log),))
    assert len(machine.read().ranks) == 1
    machine.clock.ahead = 3500
    assert len(machine.read().ranks) == 1
    machine.clock.ahead = 3700
    assert machine.read() == RunsReading(followed=FollowedFiles(understood=1))
    machine.source.close()


def test_a_run_that_tells_of_itself_is_not_told_by_its_log_too(tmp_path: Path):
    """A run with a run file is not also reported from its log, which contains less."""
    log = tmp_path / "run.log"
    log.write_text("Epoch 1: val_loss: 0.9075\n")
    machine = Machine(tmp_path, globs=(str(log),))
    with Trainer(machine.runs):
        assert machine.rank().source == "client"
    machine.source.close()


def test_own_patterns_come_before_those_that_are_built_in(tmp_path: Path):
    """A line that matches a user's pattern and a built-in pattern is read by the user's pattern."""
    log, patterns = tmp_path / "train.log", tmp_path / "patterns.yml"
    log.write_text("it 7 objective 0.5\n")
    patterns.write_text(
        "patterns:\n  - name: own\n    regex: 'it (?P<step>\\d+) objective (?P<loss>\\S+)'\n"
    )
    machine = Machine(tmp_path, globs=(str(log),), patterns=patterns)
    rank = machine.rank()
    machine.source.close()
    assert rank.record.step[STEP["loss"]] == 0.5
    assert rank.record.step[STEP["global_step"]] == 7


def test_alerts_that_were_active_are_remembered(machine: Machine, monkeypatch):
    """An alert that was active remains recorded after it has ended.

    Invalid numbers do not change the record.
    """
    path = leave_file(machine, "a", wall_time=time.time(), boot_id=b"a former boot id")
    assert machine.rank().alerts_seen == 0
    directory = machine.source._directory
    (file,) = directory._files.values()
    file.record = write_record(identity=file.identity, alerts=5.0)
    monkeypatch.setattr(type(file), "read", lambda *_: None)
    assert machine.rank().alerts_seen == 0b101
    file.record = write_record(identity=file.identity, alerts=0.0)
    assert machine.rank().alerts_seen == 0b101
    for nonsense in (float("nan"), float("inf"), -1.0, float(1 << len(ALERTS))):
        file.record = write_record(identity=file.identity, alerts=nonsense, state=nonsense)
        assert machine.rank().alerts_seen == 0b101
    assert path.exists()


def test_a_dead_run_is_still_followed_by_its_successor_after_many_readings(machine: Machine):
    """The ending of a dead run and the restart remain known after many readings."""
    with Trainer(machine.runs) as first:
        machine.read()
        first.kill(signal.SIGKILL)
        machine.clock.ahead = 60
        for _ in range(4):
            ending = machine.rank().ending
        with Trainer(machine.runs):
            assert machine.run().losses == Losses(1, 0, 0)
            assert machine.run().losses == Losses(1, 0, 0)
    assert machine.rank().ending is not None
    assert machine.rank().ending != ending
    assert sum(machine.run().exits.values()) in (1, 2)


PATTERNS = "patterns:\n  - name: own\n    regex: 'it (?P<step>\\d+) {word} (?P<loss>\\S+)'\n"
BASELINES = "baselines:\n  - run: train\n    epochs_per_hour: {pace}\n"


def test_patterns_and_baselines_are_read_again(tmp_path: Path):
    """Both files are read again on a reload; if one file is invalid, both keep their old content.

    The reading then contains a complaint.
    """
    log, patterns = tmp_path / "train.log", tmp_path / "patterns.yml"
    baselines = tmp_path / "baselines.yml"
    patterns.write_text(PATTERNS.format(word="objective"))
    baselines.write_text(BASELINES.format(pace=1))
    log.write_text("it 1 objective 0.5\n")
    machine = Machine(tmp_path, globs=(str(log),), patterns=patterns, baselines=baselines)

    def write(line: str) -> tuple[float, float | None, str | None]:
        with log.open("a") as file:
            file.write(line + "\n")
        reading = machine.read()
        (rank,), (run,) = reading.ranks, reading.runs
        assert run.expected is not None
        return rank.record.step[STEP["loss"]], run.expected.epoch_seconds, reading.complaint

    assert write("it 2 objective 0.4") == (0.4, 3600, None)
    patterns.write_text(PATTERNS.format(word="target"))
    baselines.write_text(BASELINES.format(pace=2))
    assert write("it 3 target 0.3") == (0.4, 3600, None)
    machine.reloads += 1
    assert write("it 4 target 0.2") == (0.2, 1800, None)
    patterns.write_text("patterns: {")
    baselines.write_text(BASELINES.format(pace=4))
    machine.reloads += 1
    loss, pace, complaint = write("it 5 target 0.1")
    assert (loss, pace) == (0.1, 1800)
    assert complaint is not None
    assert "patterns.yml" in complaint
    assert complaint.endswith("(the previous configuration stays in force)")
    patterns.write_text(PATTERNS.format(word="loss"))
    machine.reloads += 1
    assert write("it 6 loss 0.05") == (0.05, 900, None)
    machine.source.close()


def test_a_damaged_file_of_the_same_run_does_not_hide_it(tmp_path):
    """A newer, damaged file without a record does not hide the run of an older file."""
    good = compose_run_file("bert", wall_time=time.time())
    (tmp_path / "good.tv").write_bytes(good)
    (tmp_path / "newer.tv").write_bytes(good[:STEP_AT].ljust(len(good), b"\0"))
    os.utime(tmp_path / "good.tv", (time.time() - 60,) * 2)
    source = TrainingSource(TrainingOptions(tmp_path), roots=Roots())
    assert {rank.run for rank in source.read(time.monotonic() + 5).ranks} == {"bert"}
    source.close()
