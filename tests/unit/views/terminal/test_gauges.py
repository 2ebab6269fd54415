"""Bars with values, and values side by side."""

from __future__ import annotations

import io

import pytest

from trainvitals.views.terminal.gauges import Figure, Figures, Gauge, draw_bar, keep_end
from trainvitals.views.terminal.table import Sorting, render
from trainvitals.views.terminal.terminal import make_console

CONSOLE = make_console(io.StringIO(), None, width=80)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.5, "████░░░░"),
        (0.006, "█░░░░░░░"),
        (0.001, "░░░░░░░░"),
        (7.0, "████████"),
        (-1.0, "░░░░░░░░"),
        (None, " " * 8),
    ],
)
def test_a_bar_stays_within_its_frame(ratio, expected):
    """A small ratio shows one block, a large one fills the bar, and an unknown one is blank."""
    assert draw_bar(ratio, 8, "green").plain == expected


@pytest.mark.parametrize(("width", "expected"), [(12, "████░░░  50%"), (7, "█░  50%"), (4, " 50%")])
def test_a_bar_has_its_number_beside_it(width, expected):
    """In a narrow column, the bar is shortened and the number is kept."""
    (line,) = render(CONSOLE, Gauge(0.5, "50%", 4), width)
    assert "".join(part.text for part in line) == expected


def test_a_long_path_keeps_its_end():
    """A long path is shortened at its beginning."""
    assert keep_end("/data/sets/imagenet", 9) == "…imagenet"
    assert keep_end("/data", 9) == "/data"


def test_values_stand_side_by_side():
    """As many values as fit are shown side by side, and the others are counted."""
    section = Figures(5, "HOST", [Figure(f"disk{at}", f"{at} GiB", 0.5) for at in range(5)])
    lines = section.draw(CONSOLE, 80, 3, Sorting())
    words = ["".join(part.text for part in line).split() for line in lines]
    assert words == [
        ["5", "HOST", "+1", "more"],
        ["disk0", "███░░░", "0", "GiB", "disk1", "███░░░", "1", "GiB"],
        ["disk2", "███░░░", "2", "GiB", "disk3", "███░░░", "3", "GiB"],
    ]
