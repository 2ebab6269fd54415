"""Busy time is integrated from sample buffers; the expected results were calculated by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.accelerators.nvidia_samples import integrate_samples

PERIOD = 166_667


def test_the_first_look_counts_nothing():
    """The first reading counts no busy time and only returns the newest timestamp."""
    stamps = [1_000_000, 1_166_667]
    assert integrate_samples(stamps, [50, 50], since=None, is_full=True) == (1_166_667, 0.0, 0.0)


@pytest.mark.parametrize(("since", "newest"), [(None, 0), (0, 0), (7, 7)])
def test_no_samples_are_no_time(since, newest):
    """Without new samples, no busy time is counted and the newest timestamp is kept."""
    assert integrate_samples([], [], since=since, is_full=False) == (newest, 0.0, 0.0)


def test_each_sample_counts_for_the_time_since_the_one_before():
    """Busy time of 200 ms at 50 %, 100 ms at 100 % and 150 ms at 20 % is 230 ms."""
    stamps = [1_200_000, 1_300_000, 1_450_000]
    newest, busy, lost = integrate_samples(stamps, [50, 100, 20], since=1_000_000, is_full=False)
    assert newest == 1_450_000
    assert busy == pytest.approx(0.230)
    assert lost == 0


def test_the_first_sample_of_a_buffer_that_was_empty_counts_for_one_period():
    """The first sample counts for one period, which is 100 ms, the interval of the samples."""
    stamps = [5_000_000, 5_100_000, 5_200_000]
    _, busy, lost = integrate_samples(stamps, [100, 0, 100], since=0, is_full=False)
    assert busy == pytest.approx(0.2)
    assert lost == 0


def test_a_gap_in_a_buffer_with_room_is_idle_time():
    """A gap in a buffer with room is idle time, and the next sample counts for one period."""
    stamps = [11_000_000, 11_100_000, 11_200_000]
    _, busy, lost = integrate_samples(stamps, [60, 100, 100], since=1_000_000, is_full=False)
    assert busy == pytest.approx(0.26)
    assert lost == 0


def test_a_gap_before_a_full_buffer_takes_the_mean_of_what_it_holds():
    """Overwritten time counts with the mean of the samples: 9.9 s at 50 % are 4.95 s."""
    stamps = [11_000_000, 11_100_000, 11_200_000]
    _, busy, lost = integrate_samples(stamps, [50, 0, 100], since=1_000_000, is_full=True)
    assert lost == pytest.approx(9.9)
    assert busy == pytest.approx(4.95 + 0.15)


def test_a_gap_within_a_full_buffer_is_idle_time():
    """A gap within a full buffer is idle time, since only older samples can be overwritten."""
    stamps = [1_100_000, 1_200_000, 9_000_000, 9_100_000]
    _, busy, lost = integrate_samples(stamps, [100, 100, 100, 100], since=1_000_000, is_full=True)
    assert busy == pytest.approx(0.4)
    assert lost == 0


def test_a_single_late_sample_counts_for_the_usual_period():
    """A single sample after a gap counts for the default period of one sixth of a second."""
    _, busy, lost = integrate_samples([9_000_000], [100], since=1_000_000, is_full=False)
    assert busy == pytest.approx(0.166667)
    assert lost == 0


@given(
    percents=st.lists(st.integers(0, 100), min_size=1, max_size=100),
    cuts=st.lists(st.integers(0, 100)),
)
def test_however_often_it_is_asked_the_sum_is_the_same(percents, cuts):
    """Several readings count the same busy time as one reading of all samples."""
    stamps = [(number + 1) * PERIOD for number in range(len(percents))]
    _, whole, _ = integrate_samples(stamps, percents, since=0, is_full=False)
    since, parts = 0, 0.0
    for end in [*sorted(set(cuts)), 100]:
        chosen = [at for at, stamp in enumerate(stamps[:end]) if stamp > since]
        since, busy, _ = integrate_samples(
            [stamps[at] for at in chosen],
            [percents[at] for at in chosen],
            since=since,
            is_full=False,
        )
        parts += busy
    assert parts == pytest.approx(whole)
