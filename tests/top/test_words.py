"""Names and quantities in columns."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.top.pictures import HOSTILE_NAMES
from trainvitals.top.bars import draw_bar, draw_gauge, draw_trace, find_bounds, shrink
from trainvitals.top.words import (
    make_harmless,
    write_ago,
    write_count,
    write_duration,
    write_limited,
    write_percent,
    write_rate,
    write_size,
    write_use,
    write_value,
)

GIB = 1 << 30


def test_hostile_names_are_made_harmless():
    """Escape sequences go, controls and marks of direction become ?, of many accents one stays."""
    assert [make_harmless(name) for name in HOSTILE_NAMES] == [
        "red",
        "モデル訓練の実行その二",
        "🔥🚀 rocket-run",
        "evil?gnp.exe??",
        "z̷a̸l̵g̶o",
        "line break? andnull?31m",
        "? lone surrogate",
    ]


@given(st.text())
def test_a_harmless_name_has_nothing_that_a_terminal_obeys(name):
    """Each letter can be printed, and all but accents have a width."""
    plain = make_harmless(name)
    assert all(letter.isprintable() for letter in plain)
    assert len(plain) <= 400
    marks = [cell_len(letter) == 0 for letter in plain]
    assert not any(a and b for a, b in pairwise(marks))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (write_size(None), "-"),
        (write_size(math.inf), "-"),
        (write_size(0), "0B"),
        (write_size(999), "999B"),
        (write_size(512 << 20), "512MiB"),
        (write_size(71.04 * GIB), "71.0GiB"),
        (write_size(1007 * GIB), "1007GiB"),
        (write_size(10_240 * GIB), "10.0TiB"),
        (write_use(71 * GIB, 79.6 * GIB), "71.0/79.6GiB"),
        (write_use(203 * GIB, 1007 * GIB), "203/1007GiB"),
        (write_use(5 * GIB, None), "5.0GiB"),
        (write_use(None, 5 * GIB), "-"),
        (write_percent(0.974), "97%"),
        (write_percent(math.nan), "-"),
        (write_limited(63.4, 87.0, "°C"), "63/87°C"),
        (write_limited(44.0, None, "°C"), "44°C"),
        (write_limited(None, 87.0, "°C"), "-"),
        (write_count(9041), "9041"),
        (write_count(12_300), "12.3k"),
        (write_count(999_999), "1000k"),
        (write_count(1_250_000), "1.2M"),
        (write_count(None), "-"),
        (write_rate(8.254), "8.25"),
        (write_rate(1302.4), "1302"),
        (write_value(2.11449), "2.114"),
        (write_value(math.nan), "NaN"),
        (write_value(math.inf), "inf"),
        (write_duration(45.9), "45s"),
        (write_duration(185), "3m05s"),
        (write_duration(725), "12m"),
        (write_duration(22_750), "6h19m"),
        (write_duration(266_400), "3d02h"),
        (write_duration(-3), "0s"),
        (write_duration(None), "-"),
        (write_ago(100.0, 285.0), "3m05s ago"),
    ],
)
def test_a_quantity_is_short(written, expected):
    """It fits into its column and says its unit."""
    assert written == expected


def test_a_bar_has_its_number_beside_it():
    """What is a little is not nothing, what is too much is full, what is unknown is blank."""
    assert draw_bar(0.5, 8, "green").plain == "████░░░░"
    assert draw_bar(0.006, 8, "green").plain == "█░░░░░░░"
    assert draw_bar(0.001, 8, "green").plain == "░░░░░░░░"
    assert draw_bar(7.0, 8, "green").plain == "████████"
    assert draw_bar(None, 8, "green").plain == " " * 8
    assert draw_gauge(0.5, "50%", 12, words_width=4, style="green").plain == "████░░░  50%"


def test_a_sparkline_has_gaps_where_nothing_is_known():
    """Nothing known is no zero; the newest is on the right; means of parts are drawn."""
    assert draw_trace((0.0, None, 1.0), 5, low=0.0, high=1.0).plain == "  ▁ █"
    assert shrink((1.0, 3.0, None, 4.0), 2) == [2.0, 4.0]
    assert shrink((), 5) == []
    assert find_bounds((None, math.nan, 2.0, 5.0)) == (2.0, 5.0)
    assert draw_trace((2.0, 2.0), 2, low=2.0, high=2.0).plain == "▁▁"
