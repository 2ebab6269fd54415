"""The result of reading one line, row or document of a file."""

from __future__ import annotations

import re
from typing import NamedTuple


class Taken(NamedTuple):
    """The result of reading one line, row or document of a file.

    Attributes:
        format: The name of the pattern or format that was understood; empty if none was.
        reason: The reason why the line, or a number in it, was not read; empty if all was read.
        match: The last pattern's match; None if no pattern matched.
    """

    format: str = ""
    reason: str = ""
    match: re.Match[str] | None = None

    def join(self, other: Taken) -> Taken:
        """Return one result for two patterns that were tried on the same line."""
        return Taken(
            ", ".join(filter(None, (self.format, other.format))),
            ", ".join(filter(None, (self.reason, other.reason))),
            other.match or self.match,
        )


NOTHING = Taken()
