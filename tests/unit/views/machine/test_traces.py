"""Traces of values: means, gaps, interpolation and discarded points."""

from __future__ import annotations

import math

from trainvitals.views.machine.picture import TRACE_POINTS
from trainvitals.views.machine.traces import Traces

NOON = 1_700_049_600.0


def play(*seen: tuple[float, float | None], most: int = 1024) -> Traces:
    """Return traces with these values of `x`, at these seconds after noon."""
    traces = Traces(most)
    for seconds, value in seen:
        traces.advance(NOON + seconds)
        traces.add("x", value)
    return traces


def end(traces: Traces, count: int) -> list[float | None]:
    """Return the last points of `x`."""
    return list(traces.read("x")[-count:])


def test_a_point_is_the_mean_of_its_step():
    """A point is the mean of the values in its ten seconds."""
    traces = play((0, 1.0), (4, 3.0), (9.9, 5.0), (10, 7.0))
    assert end(traces, 3) == [None, 3.0, 7.0]
    assert len(traces.read("x")) == TRACE_POINTS


def test_steps_in_which_nobody_looked_lie_on_the_line():
    """Points between two readings 30 s apart are interpolated."""
    assert end(play((0, 1.0), (30, 4.0)), 4) == [1.0, 2.0, 3.0, 4.0]


def test_a_long_absence_is_a_gap():
    """After 70 s without readings, the trace has a gap."""
    assert end(play((0, 1.0), (70, 8.0)), 8) == [1.0, None, None, None, None, None, None, 8.0]


def test_what_was_not_known_is_a_gap_and_no_line():
    """An unknown value leaves a gap and is not interpolated."""
    assert end(play((0, 1.0), (10, None), (20, 3.0)), 3) == [1.0, None, 3.0]


def test_a_number_that_is_none_is_a_gap():
    """NaN and infinity leave a gap and do not affect other values of the same point."""
    traces = play((0, 1.0), (10, math.nan), (20, math.inf), (21, 3.0))
    assert end(traces, 3) == [1.0, None, 3.0]


def test_a_failed_collector_is_a_gap_for_all_that_it_told_of():
    """A failed collector leaves a gap in its traces."""
    traces = play((0, 1.0))
    traces.advance(NOON + 10)
    traces.add_gaps()
    traces.advance(NOON + 20)
    traces.add("x", 3.0)
    assert end(traces, 3) == [1.0, None, 3.0]


def test_the_past_ends_after_a_quarter_of_an_hour():
    """Points older than a quarter of an hour are discarded."""
    traces = play(*((10.0 * step, float(step)) for step in range(TRACE_POINTS + 5)))
    assert traces.read("x") == tuple(float(step) for step in range(5, TRACE_POINTS + 5))


def test_what_is_not_seen_any_more_is_forgotten():
    """A trace without new values for a quarter of an hour is discarded."""
    traces = play((0, 1.0))
    for step in range(1, TRACE_POINTS + 1):
        traces.advance(NOON + 10 * step)
        traces.add("y", 2.0)
    assert traces.read("x") == ()
    assert list(traces._rings) == ["y"]


def test_there_are_never_more_than_the_bound():
    """If there are more traces than allowed, the newest are kept."""
    traces = Traces(8)
    for number in range(1000):
        traces.advance(NOON + number)
        traces.add(number, 1.0)
    assert len(traces._rings) == 8
    assert traces.read(999) != ()


def test_a_clock_that_is_set_back_begins_anew():
    """Earlier points are discarded if the clock is set back."""
    traces = play((600, 1.0), (0, 2.0))
    assert [point for point in traces.read("x") if point is not None] == [2.0]


def test_what_nobody_knows_has_no_past():
    """A trace without a known value is empty."""
    assert play((0, None)).read("x") == ()
    assert play().read("x") == ()
