"""Key presses, as terminals send them."""

from __future__ import annotations

import re

from trainvitals.top.view import Key

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
_STROKE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.)|\x1b|[^\x1b]")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


def read_keys(typed: str) -> tuple[list[Key], str]:
    """Give the keys in what was typed, and the beginning of one that has not come whole.

    A lone escape at the end is such a beginning; who waits in vain for its rest takes it as
    `all`, by `end_keys`.
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
    """Give the keys that a beginning is when nothing follows it."""
    return ["all"] if rest == "\x1b" else []
