"""Tests for the messages of `trainvitals profile` while a trace is recorded."""

import itertools
from pathlib import Path

import pytest

from trainvitals.errors import TrainvitalsError
from trainvitals.record.profiling import Target, follow
from trainvitals.runfile.traces import TraceAnswer, TraceRequest, TraceStage

TARGET = Target(Path("/nowhere/run.tv"), "bert", 0, None)
REQUEST = TraceRequest(7, 5)
FAILED = TraceAnswer(7, TraceStage.FAILED, 0, "PyTorch is not loaded in this process")
TRACING = TraceAnswer(7, TraceStage.TRACING, 2)


def read_after(looks, *answers):
    """Return a function that returns no answer some times, then these answers, then the last."""
    last = itertools.repeat(answers[-1])
    seen = itertools.chain([TraceAnswer()] * looks, answers, last)
    return lambda: next(seen)


def test_an_answer_that_comes_at_once_is_all_that_is_said():
    """If the request is answered soon, no message about an unseen request is printed."""
    lines = []
    read = read_after(3, FAILED)
    assert follow(TARGET, REQUEST, read, timeout_seconds=9, report=lines.append) == FAILED
    assert lines == []


def test_progress_is_reported_once():
    """The progress of the trace is reported once."""
    lines = []
    read = read_after(1, TRACING, TRACING, FAILED)
    follow(TARGET, REQUEST, read, timeout_seconds=9, report=lines.append)
    assert lines == ["rank 0 of run bert is tracing, 2 steps so far"]


def test_a_request_that_is_not_seen_is_reported_and_given_up(monkeypatch):
    """An unseen request is reported after a second and given up after the timeout."""
    monkeypatch.setattr("trainvitals.record.profiling._is_alive", lambda _: True)
    lines = []
    with pytest.raises(TrainvitalsError, match=r"bert has not seen the request yet after 1\.2s"):
        follow(TARGET, REQUEST, TraceAnswer, timeout_seconds=1.2, report=lines.append)
    assert lines == ["rank 0 of run bert has not seen the request yet"]
