"""Totals never decrease, even if the driver's counters do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.accelerators.row import EMPTY_ROW, LINK_ERRORS, SLOT
from trainvitals.sources.accelerators.totals import Totals

ENERGY, ERRORS = SLOT["energy_joules_total"], SLOT["link_errors_total"]


def count(totals: Totals, value: float | None) -> float | None:
    """Return the exported energy for the given energy from the driver."""
    row = list(EMPTY_ROW)
    row[ENERGY] = value
    totals.continue_with(row)
    return row[ENERGY]


def test_a_counter_that_starts_anew_goes_on():
    """After a restart that a second reading confirms, the counter's earlier value is added."""
    totals = Totals()
    raw = [100.0, 150.0, 20.0, 30.0, 0.0, 5.0, 6.0]
    sums = [count(totals, value) for value in raw]
    assert sums == [100.0, 150.0, 150.0, 180.0, 180.0, 185.0, 186.0]


def test_one_answer_below_is_no_restart():
    """A single lower value is not a restart, since adding the earlier value could not be undone."""
    totals = Totals()
    raw = [1000.0, 0.0, 1001.0, 7.0, 1001.0, 1002.0]
    assert [count(totals, value) for value in raw] == [1000, 1000, 1001, 1001, 1001, 1002]


def test_a_restart_that_is_expected_is_believed_at_once():
    """After an expected restart, the first lower value counts as a restart."""
    totals = Totals()
    assert count(totals, 100.0) == 100.0
    totals.expect_restart()
    assert count(totals, 2.0) == 102.0
    totals.expect_restart()
    assert [count(totals, value) for value in (3.0, 1.0, 4.0)] == [103.0, 103.0, 104.0]


def test_a_counter_that_was_not_reported_for_a_while_goes_on():
    """A counter that is temporarily missing has no value, and its total is kept."""
    totals = Totals()
    raw = [9, None, 2, None, 3]
    assert [count(totals, value) for value in raw] == [9, None, 9, None, 12]


def test_each_counter_of_a_tuple_goes_on_by_itself():
    """A restart of one counter in a tuple does not change the other counters."""
    totals = Totals()
    told = []
    for errors in ((10, 20, None, 40, 0), (3, 21, None, 40, 0), (4, 22, None, 40, 1)):
        row = list(EMPTY_ROW)
        row[ERRORS], row[ENERGY] = errors, 7.0
        totals.continue_with(row)
        told.append(row[ERRORS])
    assert len(LINK_ERRORS) == 5
    assert told == [(10, 20, None, 40, 0), (10, 21, None, 40, 0), (14, 22, None, 40, 1)]


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=30))
def test_no_total_ever_decreases(raw):
    """A total is missing if the driver's counter is missing, and never decreases."""
    totals = Totals()
    told = [count(totals, value) for value in raw]
    assert [value is None for value in told] == [value is None for value in raw]
    known = [value for value in told if value is not None]
    assert known == sorted(known)
