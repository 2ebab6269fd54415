"""What fits where, in pixels, in a window 1600 wide beside Grafana's docked menu.

Measured on pictures of Grafana 12.4; the letters are those of its font, Inter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Widths in units of the font's size, of those letters that differ from the rest.
_LETTERS: Final[Mapping[str, float]] = {
    **dict.fromkeys("ijlI.,:;'|", 0.26),
    **dict.fromkeys(" ftr-()[]1", 0.37),
    **dict.fromkeys("mwMW%@", 0.87),
    **dict.fromkeys("ABCDEFGHKNOPQRSTUVXYZ", 0.64),
}
_LETTER: Final = 0.57
_FONT: Final = 14

_WIDTH, _COLUMNS, _GAP = 1276, 24, 8
_UNIT: Final = 38  # of height, with the gap
_TITLE_EXTRAS, _TITLE_LINK = 100, 28  # padding, the small i and the menu; the icon of a link
_CELL_PADDING, _SORT_ICON = 12, 22
_TABLE_HEAD, _TABLE_ROW = 98, 36  # title and head together
_GRAPH_HEAD, _LEGEND_ROW = 40, 25
_LEGEND_SHARE: Final = 0.35  # of the panel at most, where it lies below the graph
_BAND, _BAND_EXTRAS = 16, 90  # of a timeline; its title, its axis and its legend
_FIGURE_PADDING: Final = 16


def measure_text(text: str) -> float:
    """Return how wide a text is."""
    return _FONT * sum(_LETTERS.get(letter, _LETTER) for letter in text)


def measure_panel(columns: int) -> float:
    """Return how wide a panel is."""
    return columns * _WIDTH / _COLUMNS - _GAP


def measure_title_room(columns: int, *, has_link: bool = False) -> float:
    """Return how wide a panel's title can be before it is cut."""
    return measure_panel(columns) - _TITLE_EXTRAS - (_TITLE_LINK if has_link else 0)


def measure_column(title: str, *, is_sorted: bool = False) -> int:
    """Return how wide a table's column must be to show its head."""
    return round(measure_text(title) + _CELL_PADDING + (_SORT_ICON if is_sorted else 0))


def count_table_rows(height: int) -> float:
    """Return how many rows of a table a panel shows; the fraction is of the last one."""
    return (height * _UNIT - _GAP - _TABLE_HEAD) / _TABLE_ROW


def count_bands(height: int) -> int:
    """Return how many bands of a timeline a panel shows."""
    return int((height * _UNIT - _GAP - _BAND_EXTRAS) / _BAND)


def measure_figure(text: str, columns: int) -> float:
    """Return how high the letters of a figure's text are that fills its panel."""
    return _FONT * (measure_panel(columns) - _FIGURE_PADDING) / measure_text(text)


def count_legend_rows(height: int, *, is_beside: bool) -> int:
    """Return how many series the legend of a graph shows, as a table below or beside it."""
    room = height * _UNIT - _GAP - _GRAPH_HEAD
    return int(room * (1 if is_beside else _LEGEND_SHARE) / _LEGEND_ROW) - 1
