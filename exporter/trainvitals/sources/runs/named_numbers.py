"""Find numbers and their names in text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_LONGEST_NUMBER = 40
# Every repetition is limited: otherwise, if the text after a long sequence of digits does not
# match, the regular expression engine would try every split of the digits.
_NUMBER = (
    r"[+-]?(?:\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,40})?"
    r"|(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?"
    r"|[nN]a[nN]|[iI]nf(?:inity)?)"
)
# The factors that convert the units that directly follow a number; times become seconds.
_UNITS: Mapping[str, float] = {
    "": 1.0, "%": 0.01, "us": 1e-6, "µs": 1e-6, "ms": 0.001, "s": 1.0, "sec": 1.0, "secs": 1.0,
}  # fmt: skip
_UNIT = r"%|(?:[muµ]s|s|secs?)(?![\w.:/%])"
# A name is one to six words that begin with a letter; the number may be in quotes or, as in
# `tensor(0.5)`, in brackets.
_PAIR = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,63}(?:\([\w./%-]{1,16}\)|'s)?"
    r"(?: [A-Za-z_(][\w./()@%-]{0,31}){0,5})['\"]? ?[:=]\s{0,16}"
    rf"['\"]?(?:[A-Za-z][\w.]{{0,31}}\()?({_NUMBER})({_UNIT})?(?![\w.:/])"
)
# A name of one to three words and a number, separated by spaces only.
_SPACED = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,31}(?: [A-Za-z_][\w./@-]{0,31}){0,2})[:=]? {1,8}"
    rf"({_NUMBER})({_UNIT})?(?![\w.:/])"
)
_WHOLE = re.compile(rf"\s*({_NUMBER})\s*(?:(%)\s*)?")
# The names of the step time, which is recorded only if the line shows the unit.
_STEP_TIMES = frozenset(
    {
        "step_time", "iter_time", "iteration_time", "batch_time", "time_per_step", "time_per_iter",
        "time_per_iteration", "dt",
    }
)  # fmt: skip


def parse_number(text: str) -> float | None:
    """Parse a text as a number; return None if the text is not a number.

    The number may contain thousands separators, as in `1,234.5`. The text `12%` means 0.12, and the
    texts `nan` and `inf` also count as numbers.
    """
    match = _WHOLE.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    return _convert(match[1], match[2] or "") if match else None


def find_pairs(text: str) -> list[tuple[str, float]]:
    """Return the pairs of a name and a number in a text such as `loss: 0.5 | acc=91%`.

    A number that is directly followed by a unit of time, as in `2.5ms`, is returned in seconds.
    """
    return list(_name(_PAIR, text))


def find_spaced_pairs(text: str) -> list[tuple[str, float]]:
    """Return the pairs of a name and a number in a text such as `loss 0.5 (0.6) lr 0.001`."""
    return list(_name(_SPACED, text))


def _name(expression: re.Pattern[str], text: str) -> Iterator[tuple[str, float]]:
    for name, number, unit in expression.findall(text):
        if len(number) <= _LONGEST_NUMBER:
            is_step_time = unit not in {"", "%"} and name.lower().replace(" ", "_") in _STEP_TIMES
            yield "step_seconds" if is_step_time else name, _convert(number, unit)


def _convert(number: str, unit: str) -> float:
    value = float(number.replace(",", ""))
    return value / 100 if unit == "%" else value * _UNITS[unit]
