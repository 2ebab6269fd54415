"""The user's view of the screen, and the keys that select, sort and scroll sections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from trainvitals.views.terminal.gauges import Figures
from trainvitals.views.terminal.table import Rows, Sorting

Key = Literal[
    "quit", "help", "pause", "sort", "previous", "next", "reverse", "tab", "back tab", "all", "zoom",
    "up", "down", "page up", "page down", "home", "end", "redraw",
    "1", "2", "3", "4", "5", "6", "7",
]  # fmt: skip
_LAST = 7
_PLAIN: dict[str, Key] = {
    "q": "quit",
    "Q": "quit",
    "\x03": "quit",
    "h": "help",
    "?": "help",
    "p": "pause",
    " ": "pause",
    "s": "sort",
    "<": "previous",
    ">": "next",
    "r": "reverse",
    "\t": "tab",
    "0": "all",
    "\r": "zoom",
    "\n": "zoom",
    "z": "zoom",
    "k": "up",
    "j": "down",
    "\x02": "page up",
    "\x06": "page down",
    "g": "home",
    "G": "end",
    "\x0c": "redraw",
    "1": "1",
    "2": "2",
    "3": "3",
    "4": "4",
    "5": "5",
    "6": "6",
    "7": "7",
}
_ESCAPED: dict[str, Key] = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[D": "previous",
    "OD": "previous",
    "[C": "next",
    "OC": "next",
    "[5~": "page up",
    "[6~": "page down",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
    "[Z": "back tab",
}
# This matches a CSI or SS3 sequence, a lone escape character, or any other character.
_STROKE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.)|\x1b|[^\x1b]")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


Section = Rows[Any] | Figures


@dataclass(frozen=True, slots=True)
class View:
    """The user's view of the screen.

    Attributes:
        active: The number of the section that keys affect.
        is_alone: Whether only the active section is shown.
        orders: The sorting of sections, by section number.
        scrolls: The number of rows by which sections are scrolled, by section number.
        is_paused: Whether the screen hides new machine states.
        shows_help: Whether the screen lists the keys instead of sections.
    """

    active: int = 1
    is_alone: bool = False
    orders: Mapping[int, Sorting] = field(default_factory=dict)
    scrolls: Mapping[int, int] = field(default_factory=dict)
    is_paused: bool = False
    shows_help: bool = False

    def sorting(self, number: int) -> Sorting:
        """Return the sorting of the section with this number."""
        return self.orders.get(number, Sorting())

    def scroll(self, number: int) -> int:
        """Return the number of rows by which the section with this number is scrolled."""
        return self.scrolls.get(number, 0)


def press(view: View, key: Key, section: Section, *, page: int) -> View:
    """Return the view that results from a key press.

    Args:
        view: The view before the key press.
        key: The name of the key that was pressed.
        section: The section that is active.
        page: The number of lines by which a page key scrolls.
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


def read_keys(typed: str) -> tuple[list[Key], str]:
    """Return the keys that typed characters represent, and an incomplete sequence at the end.

    An escape character at the end may be the escape key or the beginning of an escape sequence. If
    no further character follows, the escape key was pressed; see `end_keys`.
    """
    begun = _BEGUN.search(typed)
    rest = begun[0] if begun else ""
    keys = []
    for stroke in _STROKE.finditer(typed[: len(typed) - len(rest)]):
        key = _ESCAPED.get(stroke[1]) if stroke[1] else _PLAIN.get(stroke[0])
        if key is not None:
            keys.append(key)
    return keys, rest


def end_keys(rest: str) -> list[Key]:
    """Return the keys for an incomplete escape sequence after which no character was typed."""
    return ["all"] if rest == "\x1b" else []
