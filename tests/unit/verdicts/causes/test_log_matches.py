"""The confidence of a log line, by its position in the log and the exit code."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.deaths import tell
from tests.unit.verdicts.causes.evidences import death
from trainvitals.sources.containers.evidence import Evidence, Settings, State
from trainvitals.verdicts.causes.case import open_case
from trainvitals.verdicts.causes.judge import judge
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.signs import contains

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB."
TRACEBACK = ("Traceback (most recent call last):", '  File "/app/train.py", line 3, in main', OOM)
STEPS = tuple(f"step {step} loss {3 - step / 1000:.3f}" for step in range(0, 1000, 10))
OTHER = (
    "Traceback (most recent call last):",
    '  File "/app/data.py", line 9, in read',
    "KeyError: 'x'",
)
is_oom = contains("CUDA out of memory")


def weigh(*log, code=1, **more):
    """Return the confidence that a log indicates a CUDA OOM, or None without a sign of it."""
    sign = find_match(open_case(death(code, log=log, **more)), is_oom)
    return None if sign is None else sign.confidence


@pytest.mark.parametrize(
    ("log", "confidence"),
    [
        ((*STEPS, *TRACEBACK), "high"),
        ((*STEPS, OOM), "high"),
        ((*STEPS, OOM, "wandb: run history", "wandb: done"), "high"),
        ((OOM, *STEPS), "low"),
        ((*STEPS, OOM, *(f"line {number}" for number in range(70))), "medium"),
        ((OOM, *STEPS, *OTHER), "low"),
        ((*STEPS, OOM, *OTHER), "medium"),
        ((*TRACEBACK, *STEPS, *OTHER), "low"),
        ((*STEPS,), None),
    ],
)
def test_what_stands_near_the_end_is_worth_the_most(log, confidence):
    """An error in the last traceback or line has high confidence, and a survived one low."""
    assert weigh(*log) == confidence


@pytest.mark.parametrize(
    ("code", "confidence"), [(1, "high"), (134, "high"), (137, "medium"), (143, "medium")]
)
def test_what_was_ended_from_outside_did_not_end_by_itself(code, confidence):
    """After SIGKILL or SIGTERM, a traceback has only medium confidence."""
    assert weigh(*TRACEBACK, code=code) == confidence


def test_an_exit_code_of_zero_is_not_a_death_by_it():
    """With exit code 0, only a traceback at the end contributes, with advice on `pipefail`."""
    assert weigh(OOM, *STEPS, code=0) is None
    verdict = judge(death(0, log=TRACEBACK))
    assert verdict.reason == "finished"
    assert "set -o pipefail" in "\n".join(map(tell, verdict.contributing))


@pytest.mark.parametrize(
    ("settings", "confidence"),
    [
        (Settings(command=("python", "train.py")), "high"),
        (None, "medium"),
        (Settings(command=("python", "-u", "train.py"), is_unbuffered=True), "low"),
        (Settings(command=("python", "train.py"), has_tty=True), "low"),
    ],
)
def test_steps_behind_a_traceback_may_be_a_late_buffer(settings, confidence):
    """Steps after a traceback do not weaken it if Python's standard output is buffered."""
    assert weigh(*TRACEBACK, *STEPS, settings=settings) == confidence


def test_more_than_a_buffer_of_steps_is_no_buffer():
    """More than 8 KiB of steps after a traceback cannot be buffered output."""
    many = STEPS * 5
    assert sum(len(line) + 1 for line in many) > 8192
    assert weigh(*TRACEBACK, *many, settings=Settings()) == "low"


def test_what_runs_on_has_not_died_of_it():
    """While the container runs, an error in its log has only medium confidence."""
    running = Evidence(
        "container", "train", state=State("running", 0, started=1.0), started=1.0, log=TRACEBACK
    )
    sign = find_match(open_case(running), is_oom)
    assert sign is not None
    assert sign.confidence == "medium"


def test_the_exception_of_a_run_is_in_its_run_file():
    """Without a log, the exception class in the run file determines the verdict."""
    run = Evidence("run", "llm", exception="OutOfMemoryError", ended=2.0)
    assert judge(run).reason == "cuda-oom"
    run = dataclasses.replace(run, exception="ZeroDivisionError")
    verdict = judge(run)
    assert (verdict.reason, verdict.finding.summary) == (
        "exception",
        "The run ended with `ZeroDivisionError`.",
    )


def test_the_exception_of_a_run_is_found_in_its_log():
    """The exception class of the run file selects the traceback in the log."""
    run = Evidence("run", "llm", exception="KeyError", ended=2.0, log=(*STEPS, *OTHER))
    assert (
        judge(run).finding.summary
        == "The run ended with `KeyError: 'x'`, raised at /app/data.py:9 in read."
    )


def test_a_rank_that_was_killed_makes_the_others_words_a_consequence():
    """If one rank was ended by SIGKILL, the error of another rank has low confidence."""
    log = (
        *(f"[rank0]: {line}" for line in TRACEBACK),
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -9 (pid: 12)  (SIGKILL)",
    )
    assert weigh(*log) == "low"


@pytest.mark.parametrize(
    ("code", "confidence"), [(-9, "low"), (-11, "low"), (-6, "high"), (1, "high")]
)
def test_a_line_before_a_killed_rank_is_a_consequence(code, confidence):
    """A log line is the cause if a rank aborted or failed, but not if the rank was killed."""
    log = (
        OOM,
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 1 (local_rank: 1)",
        f"  exitcode  : {code} (pid: 12)",
    )
    assert weigh(*log) == confidence
