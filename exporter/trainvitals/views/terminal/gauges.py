"""Draws bars and sparklines that fill a column, and a section with values side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from trainvitals.views.machine.picture import Trace
from trainvitals.views.sparkline import sparkline_text
from trainvitals.views.terminal.table import INDENT, Line, Sorting, draw_title, mark_hidden, render

_QUIET = ("green", "cyan", "dim")
_LEAST_SHOWN = 0.005  # smaller values are shown as 0%
_WIDEST_BAR, _WIDEST_TRACE = 12, 30
_NARROWEST, _NARROWEST_ALONE, _ONE_LINE = 38, 76, 120
_LABEL, _LABEL_ALONE, _BAR = 11, 40, 6


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar followed by a number.

    Attributes:
        ratio: The filled share of the bar; a ratio above 1 fills the bar, and None draws no bar.
        words: The number beside the bar, as text.
        words_width: The width of the number, in columns.
        style: The style of the filled part, and also of the number if the style is a warning.
    """

    ratio: float | None
    words: str
    words_width: int
    style: str = "green"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - self.words_width - 1
        loud = "" if self.style in _QUIET else self.style
        number = Text(self.words.rjust(self.words_width), loud, no_wrap=True, overflow="ellipsis")
        bar = draw_bar(self.ratio, room, self.style)
        yield Text.assemble(bar, " ", number) if room > 1 else number

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.words_width, self.words_width + 1 + _WIDEST_BAR)


@dataclass(frozen=True, slots=True)
class History:
    """The history of a value as a sparkline; unknown values are drawn as gaps.

    Attributes:
        trace: The values, the oldest first.
        low: The value of the lowest step; None means the lowest value in the trace.
        high: The value of the highest step; None means the highest value in the trace.
        style: The style of the sparkline.
    """

    trace: Trace
    low: float | None = None
    high: float | None = None
    style: str = "cyan"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = sparkline_text(self.trace, options.max_width, low=self.low, high=self.high)
        yield Text(words, self.style, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, _WIDEST_TRACE)


@dataclass(frozen=True, slots=True)
class Figure:
    """One value in a section of values.

    Attributes:
        label: The name of the value.
        words: The value, as text.
        ratio: The filled share of the bar beside the value; if None, no bar is drawn.
        style: The style of the bar.
        history: The history of the value, which is shown instead of the value; if None, the value
            is shown.
    """

    label: str
    words: str = ""
    ratio: float | None = None
    style: str = "green"
    history: History | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """A section of values, arranged in as many columns as fit.

    Attributes:
        number: The key that shows only this section.
        title: The title of the section.
        items: The values, the most important first.
        is_wide: Whether the section has enough space for long labels.
        empty: The text to show if there are no values.
        sortable: An empty tuple: values cannot be sorted by a column.
        least: The minimum number of lines of the section.
    """

    number: int
    title: str
    items: Sequence[Figure]
    is_wide: bool = False
    empty: str = "unknown"
    sortable: tuple[str, ...] = ()
    least: int = 2

    def count_rows(self, width: int) -> int:
        """Return the number of lines that the section needs to show all values."""
        return 1 + -(-len(self.items) // self._count_across(width))

    def count_lines(self, console: Console, width: int) -> int:
        """Return the number of lines that the section needs to show all values."""
        del console
        return self.count_rows(width)

    def draw(
        self,
        console: Console,
        width: int | None,
        height: int,
        sorting: Sorting,
        *,
        scroll: int = 0,
        is_active: bool = False,
    ) -> list[Line]:
        """Return at most `height` lines; the first line shows the number of hidden values."""
        del sorting
        width = width or _ONE_LINE
        title = draw_title(self.number, self.title, is_active=is_active)
        if not self.items:
            return render(console, Text.assemble(title, f"  {self.empty}"), width)
        across = self._count_across(width)
        shown = self.items[scroll : scroll + (height - 1) * across]
        hidden = len(self.items) - scroll - len(shown)
        (head,) = render(console, title, width)
        share = (width - len(INDENT)) // across
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=len(INDENT) - 1)
        for _ in range(across):
            grid.add_column(width=share - 1, no_wrap=True)
        for at in range(0, len(shown), across):
            grid.add_row("", *map(self._draw, shown[at : at + across]))
        return [mark_hidden(head, width, above=scroll, below=hidden), *render(console, grid, width)]

    def limit_scroll(self, scroll: int) -> int:
        """Return a scroll position, limited to the number of values."""
        return max(0, min(scroll, len(self.items) - 1))

    def _count_across(self, width: int) -> int:
        narrowest = _NARROWEST_ALONE if self.is_wide else _NARROWEST
        return max(1, (width - len(INDENT)) // narrowest)

    def _draw(self, figure: Figure) -> RenderableType:
        room = _LABEL_ALONE if self.is_wide else _LABEL
        label = Text(keep_end(figure.label, room).ljust(room), "dim", no_wrap=True)
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=room)
        if figure.history is not None:
            grid.add_column(ratio=1)
            grid.expand = True
            grid.add_row(label, figure.history)
            return grid
        loud = "" if figure.style in _QUIET else figure.style
        words = Text(figure.words, loud, no_wrap=True, overflow="ellipsis")
        if figure.ratio is None:
            grid.add_row(label, words)
        else:
            grid.add_row(label, draw_bar(figure.ratio, _BAR, figure.style), words)
        return grid


def draw_bar(ratio: float | None, width: int, style: str) -> Text:
    """Return a bar, or blanks if the ratio is unknown.

    Args:
        ratio: The filled share of the bar; a ratio above 1 fills the bar.
        width: The width of the bar, in columns.
        style: The style of the filled part.
    """
    if ratio is None or not math.isfinite(ratio):
        return Text(" " * width)
    filled = round(min(1.0, max(0.0, ratio)) * width)
    if ratio >= _LEAST_SHOWN and filled == 0:
        filled = 1
    return Text.assemble(("█" * filled, style), ("░" * (width - filled), "dim"))


def keep_end(path: str, width: int) -> str:
    """Return a path that fits a width; a long path is shortened at the start."""
    if cell_len(path) <= width:
        return path
    end = path
    while cell_len(end) > width - 1:
        end = end[1:]
    return f"…{end}"
