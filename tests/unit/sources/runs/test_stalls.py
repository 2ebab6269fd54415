"""Tests for the detection of stalled runs, with a simulated clock."""

from __future__ import annotations

import pytest

from tests.unit.sources.runs.rows import NOON, at, write_record
from trainvitals.runfile import ABSENT, Identity, Phase, Record, State
from trainvitals.sources.runs.stalls import Stall, detect_stall

MINUTE = 60.0
HOUR = 3600.0


def judge(record: Record, seconds: float, *, is_stopped: bool = False) -> Stall:
    """Return the stall that is detected a number of seconds after noon."""
    return detect_stall(record, at(seconds), is_stopped=is_stopped)


def test_a_hang_within_a_step_is_a_stall_after_a_minute():
    """A run with steps of half a second is stalled after 60 s without progress."""
    record = write_record(steps=5000, slowest_step_seconds=0.5)
    assert judge(record, 59).cause is None
    stalled = judge(record, 61)
    assert stalled.cause == "no_progress"
    assert stalled.threshold_seconds == 60
    assert stalled.progress_timestamp_seconds == NOON


def test_a_slower_run_gets_six_of_its_slowest_steps():
    """A run with steps of 40 s is stalled after six times its slowest step."""
    record = write_record(steps=200, slowest_step_seconds=40)
    assert judge(record, 4 * MINUTE - 1).cause is None
    assert judge(record, 4 * MINUTE + 1).cause == "no_progress"


def test_a_stall_ends_with_the_next_step():
    """The next record ends a stall, and a second hang is detected again."""
    assert judge(write_record(steps=99, slowest_step_seconds=1), 600).cause == "no_progress"
    assert judge(write_record(written=600, steps=100, slowest_step_seconds=1), 601).cause is None
    assert (
        judge(write_record(written=600, steps=100, slowest_step_seconds=1), 700).cause
        == "no_progress"
    )


def test_a_checkpoint_of_fifteen_minutes_is_none():
    """A checkpoint, even the first one, is a stall only after 30 minutes."""
    record = write_record(Phase.CHECKPOINT, steps=5000, slowest_step_seconds=0.5)
    assert judge(record, 15 * MINUTE).cause is None
    assert judge(record, 31 * MINUTE).cause == "no_progress"


def test_a_checkpoint_that_always_takes_long_gets_three_times_that():
    """A checkpoint is a stall only after three times the longest checkpoint."""
    record = write_record(Phase.CHECKPOINT, steps=50, longest_checkpoint_seconds=20 * MINUTE)
    assert judge(record, 59 * MINUTE).cause is None
    assert judge(record, 61 * MINUTE).cause == "no_progress"


@pytest.mark.parametrize(
    ("slowest", "threshold"),
    [(12 * MINUTE, 30 * MINUTE), (20 * MINUTE, 40 * MINUTE), (45 * MINUTE, 90 * MINUTE)],
)
def test_steps_of_many_minutes_are_none(slowest: float, threshold: float):
    """The limit for steps of many minutes is 30 minutes, but at least twice the slowest step."""
    record = write_record(steps=20, slowest_step_seconds=slowest)
    assert judge(record, slowest + MINUTE).cause is None
    assert judge(record, slowest).threshold_seconds == threshold
    assert judge(record, threshold + 1).cause == "no_progress"


def test_a_validation_is_none():
    """A validation is a stall after 30 minutes, or after three times the longest validation."""
    first = write_record(Phase.VALIDATION, steps=5000, slowest_step_seconds=0.5)
    assert judge(first, 25 * MINUTE).cause is None
    assert judge(first, 31 * MINUTE).cause == "no_progress"
    later = write_record(Phase.VALIDATION, steps=9, longest_validation_seconds=25 * MINUTE)
    assert judge(later, HOUR).cause is None
    assert judge(later, 76 * MINUTE).cause == "no_progress"


def test_the_first_step_after_a_long_pause_is_none():
    """The time limit of a step begins with its phase, not with the progress before a pause."""
    record = write_record(
        Phase.DATA_WAIT,
        written=900,
        steps=5000,
        slowest_step_seconds=0.5,
        last_progress_time=NOON,
        phase_start_time=NOON + 900,
    )
    assert judge(record, 950).cause is None
    assert judge(record, 961).cause == "no_progress"


@pytest.mark.parametrize("phase", [Phase.INIT, Phase.COMPILE, Phase.FORWARD])
def test_a_slow_first_step_is_none(phase: Phase):
    """During the first five steps, a run is stalled only after one hour without progress."""
    record = write_record(phase, steps=0, slowest_step_seconds=0)
    assert judge(record, 59 * MINUTE).cause is None
    assert judge(record, 61 * MINUTE).cause == "no_progress"
    assert judge(write_record(steps=4, slowest_step_seconds=9), 59 * MINUTE).cause is None


@pytest.mark.parametrize("state", [State.FINISHED, State.FAILED, State.SWITCHED_OFF])
def test_a_run_that_said_that_it_is_over_is_not_judged(state: State):
    """A run that recorded its end is never stalled, although its process may live on for days."""
    record = write_record(steps=5000, slowest_step_seconds=0.5, state=float(state))
    assert judge(record, 1e6) == Stall(None, None, NOON)


def test_an_idle_run_has_no_limit():
    """A run in the idle phase is never stalled, because it may wait for a person."""
    record = write_record(Phase.IDLE, steps=5000, slowest_step_seconds=0.5)
    assert judge(record, 1e6) == Stall(None, None, NOON)


def test_a_stopped_process_stands_still_at_once():
    """A process that is stopped by SIGSTOP is stalled at once, in every phase."""
    record = write_record(steps=5000, slowest_step_seconds=0.5)
    assert judge(record, 1, is_stopped=True).cause == "stopped"
    assert judge(write_record(Phase.IDLE), 1, is_stopped=True).cause == "stopped"
    assert judge(record, 1).cause is None


def test_the_live_word_tells_a_phase_that_no_record_has_told_yet():
    """A checkpoint that is marked after the last record has the time limit of a checkpoint."""
    record = write_record(
        Phase.OPTIMIZER, steps=5000, slowest_step_seconds=0.5, live=(20, Phase.CHECKPOINT)
    )
    verdict = judge(record, 10 * MINUTE)
    assert verdict.cause is None
    assert verdict.threshold_seconds == 30 * MINUTE
    assert verdict.progress_timestamp_seconds == NOON + 20


def test_a_mark_within_a_step_is_progress():
    """A phase mark within a long step, such as one that accumulates batches, is progress."""
    record = write_record(steps=5000, slowest_step_seconds=0.5, live=(50, Phase.FORWARD))
    assert judge(record, 100).cause is None
    assert judge(record, 111).cause == "no_progress"


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_was_set_stalls_nobody(jump: float):
    """Setting the clock causes no stall, because ages are measured by CLOCK_MONOTONIC."""
    record = write_record(written=0, steps=5000, slowest_step_seconds=0.5)
    verdict = detect_stall(record, at(5, clock_is_off_by=jump), is_stopped=False)
    assert verdict.cause is None
    assert verdict.progress_timestamp_seconds == NOON + jump
    late = detect_stall(record, at(90, clock_is_off_by=jump), is_stopped=False)
    assert late.cause == "no_progress"


def test_a_record_of_another_boot_is_judged_by_the_time_of_day():
    """The age of a record of another boot is measured by the time of day."""
    other = Identity("llama", boot_id=b"another boot id!", created_time=NOON - 600)
    record = write_record(steps=50, slowest_step_seconds=1, mono_ns=5e18, identity=other)
    assert judge(record, 50).cause is None
    assert judge(record, 70).cause == "no_progress"


def test_a_run_without_a_record_is_judged_from_its_file_on():
    """The time limit of a run without a record begins when its run file was created."""
    record = write_record(
        None,
        mono_ns=ABSENT,
        wall_time=ABSENT,
        last_progress_time=ABSENT,
        phase_start_time=ABSENT,
        live=(-600, Phase.INIT),
    )
    assert judge(record, 49 * MINUTE).cause is None
    assert judge(record, 51 * MINUTE).cause == "no_progress"
    silent = write_record(
        None,
        mono_ns=ABSENT,
        wall_time=ABSENT,
        last_progress_time=ABSENT,
        phase_start_time=ABSENT,
    )
    assert judge(silent, 1e6) == Stall(None, None, NOON - 600)
