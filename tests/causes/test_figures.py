"""How sizes, times and limits are written."""

from __future__ import annotations

import math

import pytest

from trainvitals.causes.figures import (
    suggest_limit,
    write_count,
    write_option,
    write_share,
    write_size,
    write_span,
)

MIB, GIB = 1024**2, 1024**3


def test_sizes_have_the_unit_that_fits():
    """KiB, MiB and GiB, by 1024."""
    assert [write_size(value) for value in (512 * 1024, 64 * MIB, int(71.2 * GIB))] == [
        "512 KiB",
        "64.0 MiB",
        "71.2 GiB",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.05, "0.05 s"),
        (4.1, "4.1 s"),
        (45, "45 s"),
        (119, "119 s"),
        (720, "12 min"),
        (9000, "2.5 h"),
        (259200, "3.0 days"),
        (-1, "an unknown time"),
        (math.nan, "an unknown time"),
        (math.inf, "an unknown time"),
    ],
)
def test_durations_are_written_as_a_person_says_them(seconds, text):
    """Hundredths below a second, whole seconds from ten, then minutes, hours and days."""
    assert write_span(seconds) == text


def test_counts_have_a_plural():
    """One time, two times, three processes."""
    assert [write_count(1, "time"), write_count(2, "time"), write_count(3, "process")] == [
        "1 time",
        "2 times",
        "3 processes",
    ]
    assert write_share(97, 100) == "97 %"


@pytest.mark.parametrize(
    ("needed", "option"),
    [
        (48 * MIB, "128m"),
        (512 * MIB, "768m"),
        (GIB, "1536m"),
        (2 * GIB, "3g"),
        (16 * GIB, "24g"),
        (17 * GIB, "26g"),
    ],
)
def test_a_new_limit_is_half_as_high_again_in_round_numbers(needed, option):
    """It is what one types behind `--memory`."""
    assert write_option(suggest_limit(needed)) == option
