"""Tests for the bounds of numbers from outside the program."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.foreign_numbers import (
    MOST_VALUE,
    bound_value,
    read_amount,
    read_count,
    read_digits,
    read_duration,
    read_time,
)
from trainvitals.runfile import ABSENT, EMPTY_STATE, EMPTY_STEP, STATE, STEP
from trainvitals.runfile.bounds import bound_state, bound_step

ANY = st.floats() | st.integers() | st.sampled_from([10**400, -(10**400)])


@pytest.mark.parametrize(
    ("value", "bounded"),
    [
        (1e308, math.inf),
        (-1e308, -math.inf),
        (10**400, math.inf),
        (math.inf, math.inf),
        (3.4e38, 3.4e38),
        (-2.5, -2.5),
        (5e-324, 0.0),
        (-0.0, 0.0),
    ],
)
def test_a_value_is_what_a_format_of_numbers_holds(value: float, bounded: float):
    """A value beyond the range of 32-bit floats becomes infinite, and a tiny value becomes 0."""
    assert str(bound_value(value)) == str(float(bounded))


@given(ANY)
def test_what_passed_can_be_computed_with(value: float):
    """Accepted numbers can be squared, multiplied and divided without overflow."""
    known = [read_count(value), read_amount(value), read_duration(value), read_time(value)]
    if math.isfinite(bounded := bound_value(value)):
        known.append(bounded)
    for each in known:
        assert each is None or math.isfinite(each * each * 1e6)
        assert each is None or math.isfinite(1.0 / each if each else 0.0)
    count = known[0]
    assert count is None or (type(count) is int and count + 1 != float(count))


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -1.0, 1e300, 10**400])
def test_what_can_be_no_amount_is_not_known(value: float | None):
    """A number outside the bounds is read as unknown, as a count, amount, duration or time."""
    for read in (read_count, read_amount, read_duration, read_time):
        assert read(value) is None


@pytest.mark.parametrize(
    ("word", "value", "bounded"),
    [
        ("loss", 1e308, math.inf),
        ("loss", -1e308, -math.inf),
        ("loss", -2.5, -2.5),
        ("loss", ABSENT, ABSENT),
        ("metric_63", 1e300, math.inf),
        ("event_value_7", -1e300, -math.inf),
        ("global_step", 1e30, ABSENT),
        ("global_step", -1.0, ABSENT),
        ("global_step", math.nan, ABSENT),
        ("global_step", 1e12, 1e12),
        ("total_backward", 1e11, ABSENT),
        ("total_epochs", 1e11, 1e11),
        ("step_seconds", 3.0, 3.0),
        ("step_seconds", math.inf, ABSENT),
        ("last_progress_time", 5e9, ABSENT),
        ("event_time_0", 1.7e9, 1.7e9),
        ("peak_flops", 1e30, 1e30),
        ("memory_peak_bytes", 1e18, ABSENT),
    ],
)
def test_each_word_of_a_record_has_its_bound(word: str, value: float, bounded: float):
    """Each word of a record is limited to its own bounds, and other words are unchanged."""
    for index, empty, bound in ((STEP, EMPTY_STEP, bound_step), (STATE, EMPTY_STATE, bound_state)):
        row = list(empty)
        if word in index:
            row[index[word]] = value
        found = bound(row)
        assert len(found) == len(empty)
        assert found.count(ABSENT) == len(empty) - (word in index and bounded != ABSENT)
        if word in index:
            assert found[index[word]] == bounded


def test_a_record_that_says_nothing_stays_as_it_is():
    """An empty record is unchanged, and NaN is kept only in words that hold measured values."""
    assert bound_step(EMPTY_STEP) == EMPTY_STEP
    assert bound_state(EMPTY_STATE) == EMPTY_STATE
    row = [math.nan] * len(EMPTY_STEP)
    numbers = {word for word, at in STEP.items() if math.isnan(bound_step(row)[at])}
    assert numbers == {"loss", "accuracy", "learning_rate", "gradient_norm", "loss_ema"}
    assert MOST_VALUE > 3.4028235e38


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("0000", 0),
        ("00080", 80),
        ("65535", 65535),
        ("65536", None),
        ("9" * 5000, None),
        ("0" * 5000, 0),
        ("", None),
        ("-1", None),
        ("1_000", None),
        ("\N{SUPERSCRIPT TWO}", None),
        ("\N{ARABIC-INDIC DIGIT FOUR}", None),
        ("0\N{ARABIC-INDIC DIGIT FOUR}", None),
    ],
)
def test_digits_of_any_length_are_a_number_or_none(text, number):
    """Digits are read as a number or None; Python's `int` raises errors for some of these texts."""
    assert read_digits(text, 65535) == number
