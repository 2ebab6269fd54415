"""Tables that fit: columns give way by their worth, rows by how well they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from rich.cells import cell_len
from rich.text import Text

Item = TypeVar("Item")
Key = float | str | None

INDENT = "  "
_GAP = 1


@dataclass(frozen=True, slots=True)
class Sorting:
    """How a section is sorted.

    Attributes:
        column: The title of a column; None for the order of the picture.
        is_reversed: The other way round.
    """

    column: str | None = None
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """One column.

    Attributes:
        title: What stands above it, and what `--sort` calls it.
        draw: Draws an item in so many columns of the terminal.
        least: How many it needs.
        most: How many it can use.
        worth: The least worthy leaves first when there is no room.
        key: What it is sorted by, numbers with the largest first; None for a column that is not.
        align: Where its cells begin or end.
    """

    title: str
    draw: Callable[[Item, int], Text]
    least: int
    most: int = 0
    worth: int = 0
    key: Callable[[Item], Key] | None = None
    align: Literal["left", "right"] = "left"


@dataclass(frozen=True, slots=True)
class Table(Generic[Item]):
    """A section of rows.

    Attributes:
        number: The key that shows it alone.
        noun: What a row is.
        columns: From left to right; the first one always stays.
        items: The rows.
        notes: What else is to be said of an item, in lines of their own.
        explain: What stands instead of the columns after the first, where those cannot be told.
        has_trouble: Whether an item is to be shown before others.
        empty: What stands there when there are no items.
        most_wanted: How many rows are shown before other sections have more.
    """

    number: int
    noun: str
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
        """How many lines it needs at least."""
        return 1 + min(self.most_wanted, len(self.items))

    def count_rows(self, width: int) -> int:
        """Tell how many lines it has without notes."""
        del width
        return 1 + len(self.items)

    def count_lines(self, width: int) -> int:
        """Tell how many lines it has with all its notes."""
        return self.count_rows(width) + sum(
            len(self._take_notes(item, width)) for item in self.items
        )

    def draw(
        self, width: int, height: int, sorting: Sorting, *, scroll: int = 0, is_active: bool = False
    ) -> list[Text]:
        """Draw as many lines as there is room for, and say in the first how many are missing.

        Args:
            width: How many columns there are.
            height: How many lines.
            sorting: In which order.
            scroll: How many items are above the first that is shown.
            is_active: Whether keys act on it.
        """
        if not self.items:
            return [self._draw_empty(is_active=is_active)]
        items = self._order(sorting)
        if sorting.column is None and not scroll and height < self.count_rows(width):
            items.sort(key=lambda item: not self.has_trouble(item))
        shown = items[scroll : scroll + height - 1]
        left = Left(above=scroll, below=len(items) - scroll - len(shown))
        room = height - 1 - len(shown)
        widths = _share_out(self.columns, width)
        lines: list[Text] = []
        for item in shown:
            notes = self._take_notes(item, width)
            kept = notes[:room]
            room -= len(kept)
            left = left.add_notes(len(notes) - len(kept))
            lines.append(self._draw_row(item, widths, width))
            lines += kept
        head = self._draw_head(widths, sorting, is_active=is_active)
        return [add_mark(head, left, width), *lines]

    def limit_scroll(self, scroll: int) -> int:
        """Give the nearest place that can be scrolled to."""
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
        """Tell whether a column is sorted with the largest first."""
        keys = (column.key(item) for item in self.items) if column.key else iter(())
        return any(isinstance(key, float | int) for key in keys)

    def _take_notes(self, item: Item, width: int) -> list[Text]:
        room = width - 2 * len(INDENT)
        return [
            Text.assemble(INDENT * 2, (line, note.style))
            for note in self.notes(item)
            for line in wrap(note.plain, room)
        ]

    def _draw_empty(self, *, is_active: bool) -> Text:
        return Text.assemble(
            self._name(self.columns[0].title, is_active=is_active), f"  {self.empty}"
        )

    def _name(self, title: str, *, is_active: bool) -> Text:
        mark = "▸" if is_active else " "
        return Text(f"{self.number}{mark}{title}", "bold cyan" if is_active else "bold")

    def _draw_head(self, widths: dict[str, int], sorting: Sorting, *, is_active: bool) -> Text:
        parts = []
        for place, column in enumerate(self.columns):
            if column.title not in widths:
                continue
            mark = ""
            if column.title == sorting.column:
                mark = "▲" if self._has_numbers(column) is sorting.is_reversed else "▼"
            title = Text(column.title + mark, "bold" if mark else "dim")
            if place == 0:
                title = self._name(column.title + mark, is_active=is_active)
            parts.append(fit(title, widths[column.title], is_right=column.align == "right"))
        return Text(" " * _GAP).join(parts)

    def _draw_row(self, item: Item, widths: dict[str, int], width: int) -> Text:
        first = self.columns[0]
        room = widths[first.title]
        name = fit(Text.assemble(INDENT, first.draw(item, room - len(INDENT))), room)
        instead = self.explain(item)
        if instead is not None:
            parts = [name, instead]
        else:
            parts = [name] + [
                fit(
                    column.draw(item, widths[column.title]),
                    widths[column.title],
                    is_right=column.align == "right",
                )
                for column in self.columns[1:]
                if column.title in widths
            ]
        return fit(Text(" " * _GAP).join(parts), width)


@dataclass(frozen=True, slots=True)
class Left:
    """What there was no room for.

    Attributes:
        above: Items before those that are shown.
        below: Items after them.
        notes: Lines about items that are shown.
    """

    above: int = 0
    below: int = 0
    notes: int = 0

    def add_notes(self, count: int) -> Left:
        """Count more notes."""
        return replace(self, notes=self.notes + count)


def add_mark(head: Text, left: Left, width: int) -> Text:
    """Say at the end of a section's first line what is missing below it."""
    parts = []
    if left.above:
        parts.append(f"{left.above} above")
    if left.below:
        parts.append(f"+{left.below} more")
    if left.notes:
        parts.append(f"+{left.notes} notes" if left.notes > 1 else "+1 note")
    if not parts:
        return fit(head, width)
    mark = Text(" " + ", ".join(parts), "bold yellow")
    return Text.assemble(fit(head, width - mark.cell_len), mark)


def fit(text: Text, width: int, *, is_right: bool = False) -> Text:
    """Make a text exactly so wide; `…` stands where it was cut."""
    fitted = text.copy()
    fitted.truncate(max(width, 0), overflow="ellipsis")
    blank = width - cell_len(fitted.plain)
    if blank > 0:
        return (
            Text.assemble(" " * blank, fitted) if is_right else Text.assemble(fitted, " " * blank)
        )
    return fitted


def wrap(text: str, width: int) -> list[str]:
    """Break a text into lines of at most so many columns."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _share_out(columns: Sequence[Column[Item]], width: int) -> dict[str, int]:
    """Give the width of each column that has room."""
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
