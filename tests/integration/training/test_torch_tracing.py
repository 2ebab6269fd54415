"""Traces with PyTorch's profiler."""

import gzip
import json

import torch

from tests.support.waiting import wait_until
from tests.unit.training.test_tracing import monitor, read_answer
from trainvitals.runfile.traces import TraceStage

__all__ = ["monitor"]


def test_a_loop_asks_for_its_own_trace(monitor, tmp_path):
    """`monitor.profile(3)` traces three steps and does not change the schedule of reviews."""
    assert read_answer(monitor).stage is TraceStage.READY
    for step in range(200):
        if step == 100:
            monitor.profile(3, record_shapes=True)
            monitor.profile(3)
        torch.ones(4).add(1.0)
        monitor.update_batch(1)
    wait_until(lambda: read_answer(monitor).stage is TraceStage.DONE)
    (folder,) = (tmp_path / "traces").iterdir()
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    assert sum(event["name"] == "aten::add" for event in events) == 3
    assert monitor._review_due == monitor._full_review_due == 256.0
    assert monitor.errors.count == 0
    assert monitor._tracing.errors.count == 0


def test_a_step_that_is_too_much_is_the_trace(monitor, tmp_path, monkeypatch):
    """If only one step fits into the limit of events, the trace has this step."""
    monkeypatch.setattr("trainvitals.training.tracing.MOST_EVENTS", 60)
    monitor.profile(5)
    for _ in range(4):
        for _ in range(20):
            torch.ones(4).add(1.0)
        monitor.update_batch(1)
    wait_until(lambda: read_answer(monitor).stage is TraceStage.DONE)
    answer = read_answer(monitor)
    assert (answer.steps, answer.text.partition("\t")[2]) == (1, "one step is all that fits")
    assert monitor.errors.count == 0


def test_an_error_of_our_own_ends_the_trace_alone(monitor, monkeypatch):
    """An unexpected error of the tracer fails the trace request, and the loop continues."""

    def fail(*_, **__):
        raise KeyError("nobody thought of it")

    monkeypatch.setattr("trainvitals.training.tracing.TorchTrace", fail)
    monitor.profile()
    for _ in range(30):
        monitor.update_batch(1)
    answer = read_answer(monitor)
    assert answer.stage is TraceStage.FAILED
    assert "the run's log has" in answer.text
    assert monitor.errors.count == 1
