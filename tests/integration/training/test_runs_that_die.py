"""A real exporter shows training processes that are killed, stopped, replaced or forked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.exporter_process import ExporterProcess, Page
from tests.support.run_files import decode
from tests.support.trainers import (
    LONG,
    SOURCE_ROOT,
    Restless,
    burning,
    check_record,
    read_footprint,
    train_with_workers,
)
from tests.unit.sources.runs.trainer import kernel_tells_exits
from trainvitals.metrics.runner import REUSE_SECONDS
from trainvitals.runfile import STATE, STEP, Record, State

KILLS = 300 if LONG else 30
BATCH = 5
WARM_UP_ROUNDS = KILLS // BATCH // 2
MIB = 1 << 20
ENDED = "training_process_end_timestamp_seconds"
INCOMPATIBLE = "training_client_incompatible_files"


def scrape_anew(exporter: ExporterProcess) -> Page:
    """Scrape after the cached page has expired."""
    time.sleep(1.25 * REUSE_SECONDS)
    return exporter.scrape_until(
        lambda page: page.value("trainvitals_collector_success", collector="training") == 1,
        "training",
    )


def meet(exporter: ExporterProcess, trainers: Sequence[Restless]) -> Page:
    """Scrape while trainers are alive, because only then can the exporter learn how they end."""
    assert all(trainer.path.exists() for trainer in trainers)
    return scrape_anew(exporter)


def check_dead(page: Page, trainer: Restless, rank: dict[str, str]) -> None:
    """Assert that a page shows a killed trainer with its last record."""
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
    """Each killed run is shown as dead with a whole last record, and the exporter does not grow."""
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
            # An ending without a kernel report is counted later, when none can arrive any more.
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


def test_a_kill_before_the_first_scrape_is_a_death_without_a_reason(
    exporter: ExporterProcess, runs: Path
):
    """A process that was killed before the first scrape is dead for an unknown reason.

    The kernel reports how a process ended only to observers that watched it alive.
    """
    with Restless(runs) as trainer:
        assert trainer.path.exists()
        trainer.kill()
    page = scrape_anew(exporter)
    rank = {"run": "restless", "rank": "0"}
    assert page.value("training_process_up", **rank) == 0
    assert set(page.values(ENDED, "reason", **rank)) == {"unknown"}
    assert page.value("training_process_exit_code", **rank) is None
    assert page.value("training_samples_total", **rank) == 7 * check_record(trainer.read())


def test_a_kill_while_the_run_begins_leaves_a_whole_file_or_none(
    exporter: ExporterProcess, runs: Path
):
    """A kill during the start of a run leaves a valid run file or none."""
    moments = random.Random(6)
    with ExitStack() as stack:
        for number in range(KILLS // 3):
            trainer = stack.enter_context(Restless(runs, "early", number))
            time.sleep(moments.uniform(0, 0.15))
            trainer.kill()
    page = scrape_anew(exporter)
    assert page.value(INCOMPATIBLE) == 0
    files = list(runs.glob("*.tv"))
    for path in files:
        check_record(decode(path.read_bytes()))
    up = page.values("training_process_up", "rank", run="early")
    assert list(up.values()) == [0] * min(64, len(files))


def test_a_stopped_rank_stalls_alone_and_can_be_killed(exporter: ExporterProcess, runs: Path):
    """A stopped rank is reported as stopped and stalled, until SIGCONT or until it is killed."""
    with Restless(runs, "pair", 0) as other, Restless(runs, "pair", 1) as trainer:
        meet(exporter, (other, trainer))
        os.kill(trainer.pid, signal.SIGSTOP)
        page = scrape_anew(exporter)
        for name in ("training_process_stopped", "training_stalled"):
            assert page.values(name, "rank", run="pair") == {"0": 0, "1": 1}
        assert page.values("training_process_up", "rank", run="pair") == {"0": 1, "1": 1}
        steps = page.value("training_steps_total", run="pair", rank="1")
        os.kill(trainer.pid, signal.SIGCONT)
        page = exporter.scrape_until(
            lambda page: page.value("training_steps_total", run="pair", rank="1") != steps,
            "training",
        )
        for name in ("training_process_stopped", "training_stalled"):
            assert page.values(name, "rank", run="pair") == {"0": 0, "1": 0}
        os.kill(trainer.pid, signal.SIGSTOP)
        assert scrape_anew(exporter).value("training_process_stopped", run="pair", rank="1") == 1
        trainer.kill()
        page = scrape_anew(exporter)
        check_dead(page, trainer, {"run": "pair", "rank": "1"})
        assert page.value("training_process_up", run="pair", rank="0") == 1
        assert page.value("training_ranks_seen", run="pair") == 1


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.skipif(not LONG, reason="waits for more than a minute; run it with `make test-long`")
def test_a_step_that_hangs_is_a_stall_after_its_limit(exporter: ExporterProcess, runs: Path):
    """A run of short steps is stalled after a minute without a step, until its next progress."""
    rank = {"run": "restless", "rank": "0"}
    with Restless(runs, hold_seconds=70) as trainer:
        meet(exporter, [trainer])
        trainer.hold()
        held_at = time.monotonic()
        time.sleep(50)
        page = scrape_anew(exporter)
        assert page.value("training_stall_threshold_seconds", **rank) == 60
        assert page.value("training_stalled", **rank) == 0
        exporter.scrape_until(
            lambda page: page.value("training_stalled", **rank) == 1, "training", seconds=18
        )
        assert 60 < time.monotonic() - held_at < 70
        exporter.scrape_until(lambda page: page.value("training_stalled", **rank) == 0, "training")
        assert page.value("training_process_stopped", **rank) == 0


@dataclass(frozen=True)
class Family:
    """A run whose script had child processes.

    Attributes:
        pid: The PID of the training process.
        path: The path of its run file.
        answers: For each worker, the run files of its monitors.
        record: The content of the run file after the end of all children.
        page: The exporter's page at the same time.
        code: The exit code of the script.
        complaints: The standard error output of the script.
    """

    pid: int
    path: str
    answers: list[list[str | None]]
    record: Record
    page: Page
    code: int
    complaints: str


KINDS = ("fork", "spawn", "forkserver", "bare")


@pytest.fixture(scope="module")
def families(tmp_path_factory) -> tuple[dict[str, Family], Page, list[str]]:
    """Return a run of each kind, the page after all have ended, and the remaining run files."""
    directory = tmp_path_factory.mktemp("families")
    runs = directory / "runs"
    families = {}
    with ExporterProcess(directory, arguments=(f"--run-dir={runs}",)) as exporter, ExitStack() as s:
        processes = {kind: s.enter_context(train_with_workers(runs, kind)) for kind in KINDS}
        told = {kind: json.loads(read_line(process)) for kind, process in processes.items()}
        page = scrape_anew(exporter)
        for kind, process in processes.items():
            path, answers = told[kind]
            record = decode(Path(path).read_bytes())
            _, complaints = process.communicate("\n", timeout=60)
            families[kind] = Family(
                process.pid, path, answers, record, page, process.returncode, complaints
            )
        return families, scrape_anew(exporter), [str(path) for path in runs.glob("*.tv")]


def read_line(process: subprocess.Popen[str]) -> str:
    """Read a line of a process's standard output."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("kind", KINDS)
def test_children_of_a_run_leave_no_trace(families, kind: str):
    """Child processes of a run do not change its run file or lock, and make no run file."""
    everybody, last, files = families
    family = everybody[kind]
    rank = {"run": f"loader {kind}", "rank": "0"}
    assert (family.code, family.complaints) == (0, "")
    assert all(own is None for _, own in family.answers)
    words = {name: family.record.step[STEP[name]] for name in ("steps", "samples", "loss")}
    assert words == {"steps": 10, "samples": 70, "loss": 0.5}
    assert family.record.state[STATE["state"]] == State.RUNNING
    assert family.record.state[STATE["checkpoints"]] == 0
    assert family.record.state[STATE["evaluations"]] == 1
    assert family.record.metrics == (("own", "validation"),)
    assert family.page.value("training_process_up", **rank) == 1
    assert family.page.value("training_rank_info", host_pid=str(family.pid), **rank) == 1
    assert set(last.values(ENDED, "reason", **rank)) == {"finished"}
    assert sorted(files) == sorted(each.path for each in everybody.values())


@pytest.mark.parametrize("is_seen_before", [True, False])
def test_a_program_that_takes_the_place_of_a_run_is_not_the_run(
    exporter: ExporterProcess, runs: Path, *, is_seen_before: bool
):
    """A run is over for an unknown reason if its process executes another program."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import trainvitals;"
        "monitor = trainvitals.TrainingMonitor('replaced', run_dir=sys.argv[2], publish_seconds=0);"
        "monitor.update_batch(7); print(flush=True); sys.stdin.readline();"
        "os.execlp('sh', 'sh', '-c', 'echo; exec sleep 60')"
    )
    rank = {"run": "replaced", "rank": "0"}
    command = [sys.executable, "-S", "-E", "-c", script, SOURCE_ROOT, runs]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        if is_seen_before:
            assert scrape_anew(exporter).value("training_process_up", **rank) == 1
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        page = scrape_anew(exporter)
        process.kill()
        later = scrape_anew(exporter)
    for each in (page, later):
        assert each.value("training_process_up", **rank) == 0
        assert set(each.values(ENDED, "reason", **rank)) == {"unknown"}
        assert each.value("training_process_exit_code", **rank) is None
        assert each.value("training_samples_total", **rank) == 7
