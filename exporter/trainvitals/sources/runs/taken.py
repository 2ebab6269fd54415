"""The result of reading one line, row or document of a file."""

from __future__ import annotations

import re
from typing import NamedTuple


class Taken(NamedTuple):
    """The result of reading one line, row or document of a file.

    Attributes:
        format: The name of the pattern that matched or of the format that was read; empty if the
            text was not understood.
        reason: The reason why the text, or a number in the text, was not read; empty if everything
            was read.
        match: The match of the last pattern that matched; None if no pattern matched.
    """

    format: str = ""
    reason: str = ""
    match: re.Match[str] | None = None

    def join(self, other: Taken) -> Taken:
        """Return the combined result of two patterns that were tried on the same line."""
        return Taken(
            ", ".join(filter(None, (self.format, other.format))),
            ", ".join(filter(None, (self.reason, other.reason))),
            other.match or self.match,
        )


NOTHING = Taken()
