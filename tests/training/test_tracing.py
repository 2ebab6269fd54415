"""Requests and answers survive every damage, and a loop may ask for its own trace."""

import gzip
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import TrainingMonitor, runfile
from trainvitals.runfile import TRACE_ANSWER_AT, TraceAnswer, TraceRequest, TraceStage

REQUESTS = st.builds(
    TraceRequest,
    st.integers(1, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(REQUESTS, st.integers(0, 19), st.integers(1, 255))
def test_a_request_is_read_whole_or_not_at_all(request_, at, flip):
    """Who reads while it is written sees none."""
    data = runfile.encode_trace_request(request_).ljust(64, b"\0")
    assert runfile.decode_trace_request(data, 0) == request_
    torn = bytearray(data)
    torn[at] ^= flip
    assert runfile.decode_trace_request(bytes(torn), 0) is None


@given(
    st.integers(0, 2**64 - 1),
    st.sampled_from(TraceStage),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=200),
)
def test_an_answer_is_read_as_it_was_written(number, stage, steps, text):
    """Its text comes back, in printable signs."""
    answer = TraceAnswer(number, stage, steps, text)
    data = runfile.encode_trace_answer(answer)
    assert len(data) <= runfile.TRACE_BYTES - TRACE_ANSWER_AT
    assert runfile.decode_trace_answer(data.ljust(1024, b"\0"), 0) == answer


@given(st.binary(min_size=1024, max_size=1024))
def test_what_is_no_answer_says_nothing(data):
    """Whatever stands there is read without an error."""
    assert runfile.decode_trace_answer(data, 0).stage in TraceStage
    runfile.decode_trace_request(data, 0)


def test_a_long_text_is_cut_to_what_fits():
    """A path of more than 900 bytes loses its end."""
    answer = TraceAnswer(1, TraceStage.DONE, 1, "ä" * 2000)
    read = runfile.decode_trace_answer(runfile.encode_trace_answer(answer), 0)
    assert read.text == "ä" * 468


def test_the_records_leave_room_for_it():
    """The state record in slot A ends before the request."""
    assert runfile.STATE_AT + 8 * (len(runfile.STATE_WORDS) + 1) <= runfile.TRACE_AT
    assert runfile.TRACE_AT + runfile.TRACE_BYTES == runfile.STATE_AT + runfile.STATE_SLOT_BYTES


@pytest.fixture
def monitor(tmp_path):
    """Give a monitor whose traces go into a folder of the test."""
    environ = {"TRAINVITALS_PROFILE_DIR": str(tmp_path / "traces")}
    with TrainingMonitor("own", run_dir=tmp_path / "runs", environ=environ) as monitor:
        yield monitor


def read_answer(monitor):
    """Read what the run file says of the trace."""
    return runfile.decode_trace_answer(monitor.path.read_bytes())


def test_a_loop_asks_for_its_own_trace(monitor, tmp_path):
    """The first step is thrown away, the next ones are there, and the reviews go on as before."""
    torch = pytest.importorskip("torch")
    assert read_answer(monitor).stage is TraceStage.READY
    for step in range(200):
        if step == 100:
            monitor.profile(3, record_shapes=True)
            monitor.profile(3)
        torch.ones(4).add(1.0)
        monitor.update_batch(1)
    deadline = time.monotonic() + 30
    while read_answer(monitor).stage is not TraceStage.DONE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (folder,) = (tmp_path / "traces").iterdir()
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    assert sum(event["name"] == "aten::add" for event in events) == 3
    assert monitor._review_due == monitor._full_review_due == 256.0
    assert monitor.errors.count == 0
    assert monitor._tracing.errors.count == 0


def test_a_step_that_is_too_much_is_the_trace(monitor, tmp_path, monkeypatch):
    """Where no two steps fit, the one that was measured is kept."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("trainvitals.training.tracing.MOST_EVENTS", 60)
    monitor.profile(5)
    for _ in range(4):
        for _ in range(20):
            torch.ones(4).add(1.0)
        monitor.update_batch(1)
    deadline = time.monotonic() + 30
    while read_answer(monitor).stage is not TraceStage.DONE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    answer = read_answer(monitor)
    assert (answer.steps, answer.text.partition("\t")[2]) == (1, "one step is all that fits")
    assert monitor.errors.count == 0


def test_an_error_of_our_own_ends_the_trace_alone(monitor, monkeypatch):
    """What nobody thought of is caught at the edge, the request is answered, the loop goes on."""
    pytest.importorskip("torch")

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


def test_a_monitor_that_is_over_takes_no_request(monitor):
    """Nothing happens, and nothing is raised."""
    monitor.finish()
    monitor.profile()
    monitor.update_batch(1)
