"""Sizes of dashboard elements in pixels, for a window 1600 pixels wide with the docked menu.

The sizes were measured on screenshots of Grafana 12.4; the letter widths are those of Grafana's
font, Inter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The widths of letters that differ from the usual width, in units of the font size.
_LETTERS: Final[Mapping[str, float]] = {
    **dict.fromkeys("ijlI.,:;'|", 0.26),
    **dict.fromkeys(" ftr-()[]1", 0.37),
    **dict.fromkeys("mwMW%@", 0.87),
    **dict.fromkeys("ABCDEFGHKNOPQRSTUVXYZ", 0.64),
}
_LETTER: Final = 0.57
_FONT: Final = 14

_WIDTH, _COLUMNS, _GAP = 1276, 24, 8
_UNIT: Final = 38  # the height of a grid unit, including the gap
_TITLE_EXTRAS, _TITLE_LINK = 100, 28  # of padding, icon and menu; of the link icon
_CELL_PADDING, _SORT_ICON = 12, 22
_TABLE_HEAD, _TABLE_ROW = 98, 36  # the height of title and header together; the height of a row
_GRAPH_HEAD, _LEGEND_ROW = 40, 25
_LEGEND_SHARE: Final = 0.35  # the maximum share of the panel, below the graph
_BAND, _BAND_EXTRAS = 16, 90  # the height of a band; of title, axis and legend
_FIGURE_PADDING: Final = 16


def measure_text(text: str) -> float:
    """Return the width of a text in pixels."""
    return _FONT * sum(_LETTERS.get(letter, _LETTER) for letter in text)


def measure_panel(columns: int) -> float:
    """Return the width of a panel in pixels."""
    return columns * _WIDTH / _COLUMNS - _GAP


def measure_title_room(columns: int, *, has_link: bool = False) -> float:
    """Return the maximum width of a panel's title in pixels, above which it is cut."""
    return measure_panel(columns) - _TITLE_EXTRAS - (_TITLE_LINK if has_link else 0)


def measure_column(title: str, *, is_sorted: bool = False) -> int:
    """Return the minimum width of a table column that shows its full header, in pixels."""
    return round(measure_text(title) + _CELL_PADDING + (_SORT_ICON if is_sorted else 0))


def count_table_rows(height: int) -> float:
    """Return the number of table rows that a panel shows, including a fraction of the last row."""
    return (height * _UNIT - _GAP - _TABLE_HEAD) / _TABLE_ROW


def count_bands(height: int) -> int:
    """Return the number of timeline bands that a panel shows."""
    return int((height * _UNIT - _GAP - _BAND_EXTRAS) / _BAND)


def measure_figure(text: str, columns: int) -> float:
    """Return the height of a figure's letters if its text fills the panel, in pixels."""
    return _FONT * (measure_panel(columns) - _FIGURE_PADDING) / measure_text(text)


def count_legend_rows(height: int, *, is_beside: bool) -> int:
    """Return the number of series that a graph's legend table shows, below or beside the graph."""
    room = height * _UNIT - _GAP - _GRAPH_HEAD
    return int(room * (1 if is_beside else _LEGEND_SHARE) / _LEGEND_ROW) - 1
