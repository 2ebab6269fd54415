"""Tests for choosing the traceback that explains the end of a command."""

import json

from trainvitals.runner.failures import (
    Failure,
    FailureDirectory,
    choose_failure,
    choose_thread_failure,
)

AGENT = Failure(10, 105.0, "agent")
FIRST = Failure(12, 101.0, "first", is_rank=True, attempt=1)
SECOND = Failure(11, 102.0, "second", is_rank=True, attempt=1)
EARLIER = Failure(13, 95.0, "earlier attempt", is_rank=True)
HELPER = Failure(14, 50.0, "a helper that was expected to fail")


def test_the_first_rank_of_the_last_attempt_is_the_cause():
    """The first failure of a rank of the last attempt is the cause of the other failures."""
    everything = [AGENT, SECOND, FIRST, EARLIER, HELPER]
    assert choose_failure(everything, (), 106.0) is FIRST
    assert choose_failure(everything, {11}, 106.0) is SECOND  # the first rank never trained


def test_without_ranks_the_last_failure_before_the_end_is_the_cause():
    """Without ranks, the last failure is the cause unless it was long before the end."""
    assert choose_failure([HELPER, AGENT], (), 106.0) is AGENT
    assert choose_failure([HELPER], (), 106.0) is None
    assert choose_failure([], (), 106.0) is None


def test_the_failure_of_a_thread_ends_no_command():
    """The failure of a thread is not the cause, but the last such failure is also returned."""
    thread = Failure(12, 105.5, "a thread", is_of_thread=True)
    assert choose_failure([AGENT, thread], {12}, 106.0) is AGENT
    assert choose_thread_failure([AGENT, Failure(1, 9.0, "x", is_of_thread=True), thread]) is thread
    assert choose_thread_failure([AGENT]) is None


def test_damaged_files_are_left_out():
    """Invalid files in the directory of failures are ignored."""
    directory = FailureDirectory()
    assert directory.path is not None
    whole = {"rank": 1, "attempt": None, "time": 5.0, "text": "x"}
    for name, data in {
        "7.json": json.dumps(whole),
        "8.json": "{",
        "7.thread.json": json.dumps(whole),
        "7.other.json": json.dumps(whole),
        "9.json": "[]",
        "x.json": json.dumps(whole),
        "10.json": json.dumps(whole | {"time": "5"}),
        "11.json": json.dumps(whole | {"text": 1}),
    }.items():
        (directory.path / name).write_text(data)
    assert directory.read() == [
        Failure(7, 5.0, "x", is_rank=True),
        Failure(7, 5.0, "x", is_rank=True, is_of_thread=True),
    ]
    directory.close()
    assert not directory.path.exists()
