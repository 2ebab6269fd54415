"""The past of numbers: means of steps, gaps, lines where nobody looked, and what is forgotten."""

from __future__ import annotations

import math

from trainvitals.views.machine.picture import TRACE_POINTS
from trainvitals.views.machine.traces import Traces

NOON = 1_700_049_600.0


def play(*seen: tuple[float, float | None], most: int = 1024) -> Traces:
    """Return traces to which these values of `x` were added, so many seconds after noon each."""
    traces = Traces(most)
    for seconds, value in seen:
        traces.advance(NOON + seconds)
        traces.add("x", value)
    return traces


def end(traces: Traces, count: int) -> list[float | None]:
    """Return the last points of `x`."""
    return list(traces.read("x")[-count:])


def test_a_point_is_the_mean_of_its_step():
    """What was seen within the same ten seconds counts together."""
    traces = play((0, 1.0), (4, 3.0), (9.9, 5.0), (10, 7.0))
    assert end(traces, 3) == [None, 3.0, 7.0]
    assert len(traces.read("x")) == TRACE_POINTS


def test_steps_in_which_nobody_looked_lie_on_the_line():
    """A scrape every 30 s leaves no gaps."""
    assert end(play((0, 1.0), (30, 4.0)), 4) == [1.0, 2.0, 3.0, 4.0]


def test_a_long_absence_is_a_gap():
    """Who comes back after 70 s knows nothing of the time between."""
    assert end(play((0, 1.0), (70, 8.0)), 8) == [1.0, None, None, None, None, None, None, 8.0]


def test_what_was_not_known_is_a_gap_and_no_line():
    """A lost device is not drawn through."""
    assert end(play((0, 1.0), (10, None), (20, 3.0)), 3) == [1.0, None, 3.0]


def test_a_number_that_is_none_is_a_gap():
    """A loss that is NaN has no place on the curve, and does not spoil what else is in its step."""
    traces = play((0, 1.0), (10, math.nan), (20, math.inf), (21, 3.0))
    assert end(traces, 3) == [1.0, None, 3.0]


def test_a_failed_collector_is_a_gap_for_all_that_it_told_of():
    """Somebody looked, and there was nothing to be seen."""
    traces = play((0, 1.0))
    traces.advance(NOON + 10)
    traces.add_gaps()
    traces.advance(NOON + 20)
    traces.add("x", 3.0)
    assert end(traces, 3) == [1.0, None, 3.0]


def test_the_past_ends_after_a_quarter_of_an_hour():
    """The oldest point goes when a new one comes."""
    traces = play(*((10.0 * step, float(step)) for step in range(TRACE_POINTS + 5)))
    assert traces.read("x") == tuple(float(step) for step in range(5, TRACE_POINTS + 5))


def test_what_is_not_seen_any_more_is_forgotten():
    """A device that was taken out leaves nothing behind after a quarter of an hour."""
    traces = play((0, 1.0))
    for step in range(1, TRACE_POINTS + 1):
        traces.advance(NOON + 10 * step)
        traces.add("y", 2.0)
    assert traces.read("x") == ()
    assert list(traces._rings) == ["y"]


def test_there_are_never_more_than_the_bound():
    """Of a thousand names that come and go, the newest stay."""
    traces = Traces(8)
    for number in range(1000):
        traces.advance(NOON + number)
        traces.add(number, 1.0)
    assert len(traces._rings) == 8
    assert traces.read(999) != ()


def test_a_clock_that_is_set_back_begins_anew():
    """The past of another time is none."""
    traces = play((600, 1.0), (0, 2.0))
    assert [point for point in traces.read("x") if point is not None] == [2.0]


def test_what_nobody_knows_has_no_past():
    """A trace without a point is empty, whether it was ever heard of or not."""
    assert play((0, None)).read("x") == ()
    assert play().read("x") == ()
