"""Tests for the evidence about runs and processes, as opposed to containers."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.support.run_files import (
    NOON,
    RunFile,
    find,
    run_dir,
    training,
    wait_for_zombie,
)
from trainvitals.cli import main
from trainvitals.sources.containers.evidence import OomKill
from trainvitals.sources.host.kernel_log import KernelNews
from trainvitals.sources.runs.evidence import find_run, read_process, read_run
from trainvitals.sources.runs.history import choose_run, read_run_history
from trainvitals.sources.runs.launches import Launch, encode_launch
from trainvitals.verdicts.causes.judge import judge

__all__ = ["run_dir"]


def kill(pid, time):
    """Return an OOM kill because of the memory limit of a control group."""
    return OomKill(time, "CONSTRAINT_MEMCG", "/job", "/job", "python", pid, 60 << 20)


@contextmanager
def sleeping(*words):
    """Start a process that sleeps, and yield it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print('.', flush=True); time.sleep(60)", *words],
        stdout=subprocess.PIPE,
    )
    try:
        process.stdout.read(1)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_run_whose_rank_was_killed_is_judged_by_the_common_table(run_dir, capsys):
    """`diagnose` finds a run by its name, and reports a SIGKILL without an OOM kill as external."""
    with training(run_dir) as process:
        process.send_signal(signal.SIGKILL)
        wait_for_zombie(process)
        code = main(
            ["diagnose", "bert", "--json", f"--run-dir={run_dir}", "--engine=none"],
        )
        document = json.loads(capsys.readouterr().out)
    assert (code, document["subject"], document["name"]) == (1, "run", "bert")
    assert document["reason"] == "kill-outside"
    assert document["evidence"]["signal"] == 9
    assert document["origin"] == "its run file"


def test_a_rank_that_is_asked_for_by_its_number_tells_of_its_run(run_dir):
    """The PID of a rank finds the run of the rank, and an unknown PID finds no run."""
    with training(run_dir) as process:
        run = find_run(read_run_history(run_dir), process.pid)
        assert run.name == "bert"
        evidence = read_run(run, None)
        assert (evidence.ended, judge(evidence).reason) == (None, "running")
        assert find_run(read_run_history(run_dir), 4194305) is None


@pytest.mark.parametrize(
    ("reason", "number", "verdict"),
    [("finished", None, "finished"), ("signal", 15, "term-outside"), ("oom", 9, "oom-cgroup")],
)
def test_what_the_exporter_noted_is_evidence(tmp_path, reason, number, verdict):
    """An ending that the exporter noted is evidence, even if no kernel log can be read."""
    RunFile(tmp_path).note(
        reason,
        after=60.0,
        signal_=number,
        machine={"memory_available_bytes": 5.0, "memory_total_bytes": 10.0},
    )
    evidence = read_run(choose_run(find(tmp_path), "bert"), None)
    assert (evidence.started, evidence.ended) == (NOON, NOON + 60)
    assert (evidence.host.memory_available_bytes, evidence.host.memory_total_bytes) == (5, 10)
    assert judge(evidence).reason == verdict


@pytest.mark.parametrize(
    ("reason", "code", "error", "runs", "expected"),
    [
        # Like a program that executes a notebook, and whose Jupyter kernel is killed or finishes.
        ("signal", 1, "ValueError: a cell", ("bert",), (1, None)),
        ("finished", 1, "ValueError: a cell", ("bert",), (1, None)),
        ("finished", 1, "ValueError: of the second one", ("bert", "second"), (0, None)),
        ("finished", 1, None, ("bert",), (0, None)),
        ("signal", 1, None, ("bert",), (None, 15)),
        ("signal", 0, None, ("bert",), (None, 15)),
    ],
)
def test_a_command_that_fails_by_an_exception_is_the_cause(
    tmp_path, reason, code, error, runs, expected
):
    """The exception of a command is the cause even if its only run finished or received SIGTERM."""
    RunFile(tmp_path).note(reason, after=60.0, signal_=15 if reason == "signal" else None)
    launch = Launch("bert", runs, NOON - 60, NOON + 62, code, None, error, owner=os.geteuid())
    (tmp_path / "run.1.aa.launch").write_bytes(encode_launch(launch))
    evidence = read_run(choose_run(find(tmp_path), "bert"), None)
    assert (evidence.exit_code, evidence.signal) == expected
    assert ("ended with exit code 1" in evidence.training.source) == (expected == (1, None))


def test_a_process_that_runs_is_told_with_its_command_masked():
    """A living process is described by its name, its PID and its command with secrets masked."""
    with sleeping("--token", "geheim1234") as process:
        evidence = read_process(process.pid, KernelNews())
    assert evidence.name.endswith(f" ({process.pid})")
    assert evidence.settings.command[-2:] == ("--token", "***")
    assert "geheim1234" not in repr(evidence)
    assert (evidence.ended, evidence.oom_kills, judge(evidence).reason) == (None, (), "running")


def test_a_process_that_nobody_collected_has_ended():
    """A zombie process counts as ended."""
    with sleeping() as process:
        process.kill()
        wait_for_zombie(process)
        evidence = read_process(process.pid, None, clock=lambda: 5.0)
    assert evidence.ended == 5.0


def test_a_process_that_the_kernel_killed_is_known_by_its_number(monkeypatch):
    """An OOM kill in the kernel log is assigned to the ended process with the same PID."""
    with sleeping() as process:
        gone = process.pid
    news = KernelNews(oom_kills=(kill(gone, 100.0), kill(gone + 1, 200.0)))
    evidence = read_process(gone, news)
    assert (evidence.subject, evidence.name) == ("process", f"python ({gone})")
    assert (evidence.ended, evidence.signal, evidence.cgroup) == (100.0, 9, "/job")
    assert judge(evidence).reason.startswith("oom-")
    assert read_process(gone, None) is None
    assert os.getpid() != gone


def test_a_kill_before_the_start_of_a_process_was_of_another():
    """An OOM kill before the start of a process is ignored, as the kernel reuses PIDs."""
    with sleeping() as process:
        now = time.time()
        news = KernelNews(oom_kills=(kill(process.pid, now - 3600), kill(process.pid, now + 60)))
        assert [each.time for each in read_process(process.pid, news).oom_kills] == [now + 60]
