"""What a person has chosen to see, and how keys change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from rich.text import Text

from trainvitals.top.table import Sorting

Key = Literal[
    "quit", "help", "pause", "sort", "previous", "next", "reverse", "tab", "back tab", "all", "zoom",
    "up", "down", "page up", "page down", "home", "end", "redraw",
    "1", "2", "3", "4", "5", "6", "7",
]  # fmt: skip
_LAST = 7


class Section(Protocol):
    """A part of the screen that can be chosen, sorted and scrolled."""

    @property
    def number(self) -> int:
        """The key that shows it alone."""

    @property
    def least(self) -> int:
        """How many lines it needs at least."""

    @property
    def noun(self) -> str:
        """What a row is."""

    @property
    def sortable(self) -> tuple[str, ...]:
        """The columns that it can be sorted by."""

    def count_rows(self, width: int) -> int:
        """Tell how many lines it has without notes."""

    def count_lines(self, width: int) -> int:
        """Tell how many lines it has with all its notes."""

    def limit_scroll(self, scroll: int) -> int:
        """Give the nearest place that can be scrolled to."""

    def draw(
        self, width: int, height: int, sorting: Sorting, *, scroll: int = 0, is_active: bool = False
    ) -> list[Text]:
        """Draw as many lines as there is room for, and say what is not shown."""


@dataclass(frozen=True, slots=True)
class View:
    """What a person has chosen.

    Attributes:
        active: The number of the section that keys act on.
        is_alone: Only that section is shown.
        orders: How sections are sorted, by their number.
        scrolls: How far they are scrolled, by their number.
        is_paused: The picture stands still.
        shows_help: The keys are explained instead.
    """

    active: int = 1
    is_alone: bool = False
    orders: Mapping[int, Sorting] = field(default_factory=dict)
    scrolls: Mapping[int, int] = field(default_factory=dict)
    is_paused: bool = False
    shows_help: bool = False

    def sorting(self, number: int) -> Sorting:
        """Tell how a section is sorted."""
        return self.orders.get(number, Sorting())

    def scroll(self, number: int) -> int:
        """Tell how far a section is scrolled."""
        return self.scrolls.get(number, 0)


def press(view: View, key: Key, section: Section, *, page: int) -> View:
    """Give the view after a key.

    Args:
        view: The view before.
        key: The key.
        section: The active section.
        page: How many lines a page has.
    """
    if view.shows_help:
        return replace(view, shows_help=False)
    changed = {
        "help": replace(view, shows_help=True),
        "pause": replace(view, is_paused=not view.is_paused),
        "all": replace(view, is_alone=False),
        "zoom": replace(view, is_alone=not view.is_alone),
        "tab": replace(view, active=view.active % _LAST + 1),
        "back tab": replace(view, active=(view.active - 2) % _LAST + 1),
    }
    if key in changed:
        return changed[key]
    if key.isdecimal():
        return _choose(view, int(key))
    if key in {"sort", "next", "previous", "reverse"}:
        return _sort(view, key, section)
    return _scroll(view, key, section, page)


def _choose(view: View, number: int) -> View:
    is_again = view.is_alone and view.active == number
    return replace(view, active=number, is_alone=not is_again)


def _sort(view: View, key: Key, section: Section) -> View:
    now = view.sorting(view.active)
    if key == "reverse":
        new = replace(now, is_reversed=not now.is_reversed)
    else:
        choices = (None, *section.sortable)
        at = choices.index(now.column) if now.column in choices else 0
        step = -1 if key == "previous" else 1
        new = Sorting(choices[(at + step) % len(choices)])
    return replace(view, orders={**view.orders, view.active: new})


def _scroll(view: View, key: Key, section: Section, page: int) -> View:
    steps = {"up": -1, "down": 1, "page up": -page, "page down": page}
    at = view.scroll(view.active) + steps.get(key, 0)
    at = {"home": 0, "end": 1 << 30}.get(key, at)
    return replace(view, scrolls={**view.scrolls, view.active: section.limit_scroll(at)})
