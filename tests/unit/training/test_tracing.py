"""Trace requests and answers in the run file, including damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import TrainingMonitor, runfile
from trainvitals.runfile import TRACE_ANSWER_AT, traces
from trainvitals.runfile.traces import TraceAnswer, TraceRequest, TraceStage

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
    """A request with one damaged byte is not read at all."""
    data = traces.encode_trace_request(request_).ljust(64, b"\0")
    assert traces.decode_trace_request(data, 0) == request_
    torn = bytearray(data)
    torn[at] ^= flip
    assert traces.decode_trace_request(bytes(torn), 0) is None


@given(
    st.integers(0, 2**64 - 1),
    st.sampled_from(TraceStage),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=200),
)
def test_an_answer_is_read_as_it_was_written(number, stage, steps, text):
    """An answer is read with the text, stage and steps with which it was written."""
    answer = TraceAnswer(number, stage, steps, text)
    data = traces.encode_trace_answer(answer)
    assert len(data) <= runfile.TRACE_BYTES - TRACE_ANSWER_AT
    assert traces.decode_trace_answer(data.ljust(1024, b"\0"), 0) == answer


@given(st.binary(min_size=1024, max_size=1024))
def test_what_is_no_answer_says_nothing(data):
    """Arbitrary bytes are read as an answer or a request without an error."""
    assert traces.decode_trace_answer(data, 0).stage in TraceStage
    traces.decode_trace_request(data, 0)


def test_a_long_text_is_cut_to_what_fits():
    """The text of an answer is cut to the room in the record."""
    answer = TraceAnswer(1, TraceStage.DONE, 1, "ä" * 2000)
    read = traces.decode_trace_answer(traces.encode_trace_answer(answer), 0)
    assert read.text == "ä" * 468


def test_the_records_leave_room_for_it():
    """The state record in slot A ends before the trace request begins."""
    assert runfile.STATE_AT + 8 * (len(runfile.STATE_WORDS) + 1) <= runfile.TRACE_AT
    assert runfile.TRACE_AT + runfile.TRACE_BYTES == runfile.STATE_AT + runfile.STATE_SLOT_BYTES


@pytest.fixture
def monitor(tmp_path):
    """Yield a monitor whose traces are written to a folder of the test."""
    environ = {"TRAINVITALS_PROFILE_DIR": str(tmp_path / "traces")}
    with TrainingMonitor("own", run_dir=tmp_path / "runs", environ=environ) as monitor:
        yield monitor


def read_answer(monitor):
    """Return the trace answer in a monitor's run file."""
    return traces.decode_trace_answer(monitor.path.read_bytes())


def test_a_monitor_that_is_over_takes_no_request(monitor):
    """A finished monitor accepts no trace request, and its answer in the file stays the same."""
    monitor.finish()
    before = read_answer(monitor)
    monitor.profile()
    monitor.update_batch(1)
    assert read_answer(monitor) == before
    assert not (monitor.path.parents[1] / "traces").exists()
