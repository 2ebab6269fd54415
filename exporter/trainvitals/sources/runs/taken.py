"""The result of reading one line, row or record of a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Taken(NamedTuple):
    """The result of reading one line, row or record of a file.

    Attributes:
        format: The name of the pattern or format that was understood; empty if none was.
        numbers: The names and numbers that were read.
        reason: The reason why the line, or a number in it, was not read; empty if all was read.
    """

    format: str = ""
    numbers: tuple[tuple[str, float], ...] = ()
    reason: str = ""

    def join(self, other: Taken) -> Taken:
        """Return one result for two patterns that were tried on the same line."""
        return Taken(
            _join((self.format, other.format)),
            (*self.numbers, *other.numbers),
            _join((self.reason, other.reason)),
        )


NOTHING = Taken()


def _join(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, texts))
