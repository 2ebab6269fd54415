"""Numbers in lines of text, alone and in pairs with their names."""

from __future__ import annotations

import re

_LONGEST = 40
# Every repetition has its bound: where the text after a long row of digits does not fit, each split
# of them would be tried.
_NUMBER = (
    r"[+-]?(?:\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,40})?"
    r"|(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?"
    r"|[nN]a[nN]|[iI]nf(?:inity)?)"
)
# A name is one to six words, each of which begins with a letter; the number may stand in quotes or,
# as in `tensor(0.5)`, in brackets.
_PAIR = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,63}(?: [A-Za-z_(][\w./()@%-]{0,31}){0,5})['\"]?[ ]?[:=]\s*"
    rf"['\"]?(?:[A-Za-z][\w.]*\()?({_NUMBER})(%?)(?![\w.:/])"
)
_WHOLE = re.compile(rf"\s*({_NUMBER})\s*(%?)\s*")


def parse_number(text: str) -> float | None:
    """Give the number that a text is; None where it is none.

    `1,234.5` has thousands separators, `12%` is 0.12, and `nan` and `inf` are numbers, too.
    """
    match = _WHOLE.fullmatch(text) if len(text) <= _LONGEST else None
    return _convert(match[1], match[2]) if match else None


def find_pairs(text: str) -> list[tuple[str, float]]:
    """Give the pairs of a name and a number in a text such as `loss: 0.5 | acc=91%`."""
    return [
        (name, _convert(number, percent))
        for name, number, percent in _PAIR.findall(text)
        if len(number) <= _LONGEST
    ]


def _convert(number: str, percent: str) -> float:
    value = float(number.replace(",", ""))
    return value / 100 if percent else value
