"""Sections of rows; a small screen hides unimportant columns and rows without problems first.

Rich draws the table. This module chooses the columns, adds notes below rows, and appends the number
of hidden rows to the first line of each section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

Item = TypeVar("Item")
Key = float | str | None
Line = list[Segment]

INDENT = "  "
NO_LIMIT = 4096  # columns; no line is longer
_GAP = 1


@dataclass(frozen=True, slots=True)
class Sorting:
    """The sorting of a section.

    Attributes:
        column: The title of the column by which rows are sorted; None means the original order.
        is_reversed: Whether the order of the rows is reversed.
    """

    column: str | None = None
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column in a section of rows.

    Attributes:
        title: The title of the column, which is also accepted by `--sort`.
        draw: A function that returns the cell for an item.
        least: The minimum width of the column.
        most: The width up to which the column grows; a column does not grow if this width is
            smaller than `least`.
        worth: The importance of the column; if space is lacking, the least important column is
            hidden first.
        key: A function that returns the value by which an item is sorted; numbers are sorted in
            descending order. If None, rows cannot be sorted by the column.
        justify: The alignment of the column's cells.
    """

    title: str
    draw: Callable[[Item], RenderableType]
    least: int
    most: int = 0
    worth: int = 0
    key: Callable[[Item], Key] | None = None
    justify: Literal["left", "right"] = "left"


@dataclass(frozen=True, slots=True)
class Rows(Generic[Item]):
    """A section of rows.

    Attributes:
        number: The key that shows only this section.
        columns: The columns from left to right; the first column is always shown.
        items: The items of the section; each item is one row.
        notes: A function that returns the lines below an item's row.
        explain: A function that returns a text to show instead of all columns except the first, or
            None if the columns are shown.
        has_trouble: A function that returns whether an item takes precedence over other items if
            rows are hidden.
        empty: The text to show if there are no items.
        most_wanted: The number of rows to show before other sections become larger.
        sortable: The titles of the columns that the section can be sorted by.
    """

    number: int
    columns: Sequence[Column[Item]]
    items: Sequence[Item]
    notes: Callable[[Item], Iterable[Text]] = lambda _: ()
    explain: Callable[[Item], Text | None] = lambda _: None
    has_trouble: Callable[[Item], bool] = lambda _: False
    empty: str = ""
    most_wanted: int = 1
    sortable: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        titles = tuple(column.title for column in self.columns if column.key is not None)
        object.__setattr__(self, "sortable", titles)

    @property
    def least(self) -> int:
        """The minimum number of lines of the section."""
        return 1 + min(self.most_wanted, len(self.items))

    def count_rows(self, width: int) -> int:
        """Return the number of lines that the section needs to show all rows without notes."""
        del width
        return 1 + len(self.items)

    def count_lines(self, console: Console, width: int) -> int:
        """Return the number of lines that the section needs to show all rows and notes."""
        wrapped = (self._wrap_notes(console, item, width) for item in self.items)
        return self.count_rows(width) + sum(map(len, wrapped))

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
        """Return at most `height` lines; the first line shows the numbers of hidden rows and notes.

        Args:
            console: The console for which the lines are rendered.
            width: The number of columns in a line; None means that the width is not limited.
            height: The maximum number of lines of the section.
            sorting: The order of the rows.
            scroll: The number of items above the first item that is shown.
            is_active: Whether the user's keys affect the section.
        """
        room = width or NO_LIMIT
        if not self.items:
            title = draw_title(self.number, self.columns[0].title, is_active=is_active)
            return render(console, Text.assemble(title, f"  {self.empty}"), room)
        items = self._order(sorting)
        if sorting.column is None and not scroll and height < 1 + len(items):
            items.sort(key=lambda item: not self.has_trouble(item))
        shown = items[scroll : scroll + height - 1]
        head, *rows = self._draw_table(console, width, shown, sorting, is_active=is_active)
        lines: list[Line] = []
        spare, hidden_notes = height - 1 - len(shown), 0
        for item, row in zip(shown, rows, strict=True):
            notes = self._wrap_notes(console, item, room)
            kept = notes[:spare]
            spare, hidden_notes = spare - len(kept), hidden_notes + len(notes) - len(kept)
            lines += [row, *(line for note in kept for line in render(console, note, room))]
        below = len(items) - scroll - len(shown)
        return [mark_hidden(head, room, above=scroll, below=below, notes=hidden_notes), *lines]

    def limit_scroll(self, scroll: int) -> int:
        """Return a scroll position, limited to the number of rows."""
        return max(0, min(scroll, len(self.items) - 1))

    def _order(self, sorting: Sorting) -> list[Item]:
        column = next((one for one in self.columns if one.title == sorting.column), None)
        items = list(self.items)
        if column is None or column.key is None:
            return items[::-1] if sorting.is_reversed else items
        keyed = [(column.key(item), item) for item in items]
        known = [(key, item) for key, item in keyed if key is not None]
        descends = self._has_numbers(column) is not sorting.is_reversed
        known.sort(key=lambda pair: pair[0], reverse=descends)
        return [item for _, item in known] + [item for key, item in keyed if key is None]

    def _has_numbers(self, column: Column[Item]) -> bool:
        """Return whether a column contains numbers, which are sorted in descending order."""
        keys = (column.key(item) for item in self.items) if column.key else iter(())
        return any(isinstance(key, float | int) for key in keys)

    def _wrap_notes(self, console: Console, item: Item, width: int) -> list[Text]:
        room = max(1, width - 2 * len(INDENT))
        return [
            Text.assemble(INDENT * 2, line)
            for note in self.notes(item)
            for line in note.wrap(console, room)
        ]

    def _draw_table(
        self,
        console: Console,
        width: int | None,
        items: Sequence[Item],
        sorting: Sorting,
        *,
        is_active: bool,
    ) -> list[Line]:
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        widths = _share_out(self.columns, width) if width is not None else {}
        columns = [one for one in self.columns if width is None or one.title in widths]
        for column in columns:
            table.add_column(
                self._draw_heading(column, sorting, is_active=is_active),
                width=widths.get(column.title),
                min_width=column.least,
                justify=column.justify,
                no_wrap=True,
                overflow="ellipsis",
            )
        first, *others = columns
        explained = [self.explain(item) for item in items]
        for item, instead in zip(items, explained, strict=True):
            cells = [column.draw(item) for column in others] if instead is None else []
            table.add_row(Text.assemble(INDENT, as_text(first.draw(item))), *cells)
        lines = render(console, table, width or NO_LIMIT)
        room = widths.get(first.title, first.least) + _GAP
        for at, instead in enumerate(explained, 1):
            if instead is not None:
                rest = render(console, instead, (width or NO_LIMIT) - room)[0]
                lines[at] = [*Segment.adjust_line_length(lines[at], room), *rest]
        return lines

    def _draw_heading(self, column: Column[Item], sorting: Sorting, *, is_active: bool) -> Text:
        mark = ""
        if column.title == sorting.column:
            mark = "▲" if self._has_numbers(column) is sorting.is_reversed else "▼"
        if column is self.columns[0]:
            return draw_title(self.number, column.title + mark, is_active=is_active)
        return Text(column.title + mark, "bold" if mark else "dim")


def render(console: Console, renderable: RenderableType, width: int) -> list[Line]:
    """Render an object as lines of exactly the given width."""
    if isinstance(renderable, Text):
        renderable = renderable.copy()
        renderable.no_wrap, renderable.overflow = True, "ellipsis"
    return console.render_lines(renderable, console.options.update_width(max(1, width)))


def draw_title(number: int, title: str, *, is_active: bool) -> Text:
    """Return a section title with the key that shows only that section."""
    return Text(f"{number}{'▸' if is_active else ' '}{title}", "bold cyan" if is_active else "bold")


def mark_hidden(head: Line, width: int, *, above: int = 0, below: int = 0, notes: int = 0) -> Line:
    """Return a section's first line with the numbers of hidden rows and notes.

    Args:
        head: The first line of the section.
        width: The width of the first line, in columns.
        above: The number of hidden items above the shown items.
        below: The number of hidden items below the shown items.
        notes: The number of hidden notes on items that are shown.
    """
    parts = [f"{above} above"] if above else []
    parts += [f"+{below} more"] if below else []
    parts += [f"+{notes} note{'s' if notes > 1 else ''}"] if notes else []
    if not parts:
        return head
    mark = f" {', '.join(parts)}"
    style = Style(bold=True, color="yellow")
    return [*Segment.adjust_line_length(head, max(0, width - len(mark))), Segment(mark, style)]


def as_text(cell: RenderableType) -> Text:
    """Return a cell as text; cells in the first column are always text."""
    return cell if isinstance(cell, Text) else Text(str(cell))


def _share_out(columns: Sequence[Column[Item]], width: int) -> dict[str, int]:
    """Return the width of each column that fits, by column title."""
    chosen = list(columns)
    while len(chosen) > 1 and _sum_up(chosen) > width:
        chosen.remove(min(chosen[1:], key=lambda column: column.worth))
    widths = {column.title: column.least for column in chosen}
    spare = width - _sum_up(chosen)
    growing = sorted(
        (column for column in chosen if column.least < column.most),
        key=lambda column: -column.worth,
    )
    while spare > 0 and growing:
        for column in growing[:spare]:
            widths[column.title] += 1
        spare -= len(growing[:spare])
        growing = [column for column in growing if widths[column.title] < column.most]
    return widths


def _sum_up(columns: Sequence[Column[Item]]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)
