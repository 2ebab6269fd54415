"""Rises and rates of counters, for readings at irregular times."""

from __future__ import annotations

from trainvitals.views.machine.counters import Counters


def play(*seen: tuple[float, float | None], spacing: float = 1.0, most: int = 16) -> Counters:
    """Return counters with one counter that had these values at these times."""
    counters = Counters(spacing_seconds=spacing, most=most)
    for time, value in seen:
        counters.take(time, (value,))
    return counters


def test_a_rate_is_that_of_the_last_seconds():
    """The rate covers only the last ten seconds."""
    seen = [(float(second), 100.0 * second) for second in range(5)]
    seen += [(float(second), 400.0 + 7 * (second - 4)) for second in range(5, 20)]
    assert play(*seen, most=64).rate(0, 10.0) == 7.0


def test_the_first_reading_tells_no_rate():
    """There is no rate after the first reading."""
    assert play((0.0, 5.0)).rate(0) is None


def test_a_rare_reading_reaches_back_to_the_one_before():
    """With one reading a minute, the rate covers that minute."""
    assert play((0.0, 0.0), (60.0, 600.0)).rate(0, 10.0) == 10.0


def test_a_counter_that_was_set_back_rose_to_what_it_is():
    """A counter that was reset counts its new value as the rise."""
    counters = play((0.0, 1000.0), (2.0, 1010.0), (4.0, 6.0))
    assert counters.rise(0, 10.0) == (16.0, 4.0)


def test_a_gap_does_not_hide_that_it_was_set_back():
    """A reset is recognised even if the value between was unknown."""
    counters = play((0.0, 100.0), (2.0, None), (4.0, 3.0))
    assert counters.rise(0, 10.0) == (3.0, 4.0)


def test_what_is_not_known_now_has_no_rate():
    """There is no rate if the current value is unknown."""
    assert play((0.0, 1.0), (2.0, 2.0), (4.0, None)).rate(0) is None


def test_readings_at_the_same_moment_count_once():
    """Two readings at the same time give no rate."""
    assert play((0.0, 1.0), (0.0, 1.0)).rate(0) is None


def test_no_more_is_kept_than_the_bound():
    """At most 64 readings are kept."""
    counters = play(*((float(at), float(at)) for at in range(3600)), spacing=10.0, most=64)
    assert len(counters._times) == 64
    assert counters.rise(0, 600.0) == (600.0, 600.0) or counters.rise(0, 600.0)[1] > 589


def test_a_clock_that_is_set_back_begins_anew():
    """Earlier readings are discarded if the clock is set back."""
    assert play((1000.0, 5.0), (0.0, 7.0)).rate(0) is None
