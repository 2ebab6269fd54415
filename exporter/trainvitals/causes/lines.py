"""A log as text to look for causes in: without colours, progress bars and the marks of ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST_LINE = 4096
_MOST_REDRAWN = 500

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[@-Z\\-_=>78]?"
)
_CONTROLS = dict.fromkeys((*range(9), *range(11, 13), *range(14, 32), 127))
_BAR_SIGNS = ("%|", "it/s", "s/it", "B/s", "━", "█")


def clean(log: Iterable[str]) -> tuple[str, ...]:
    """Give the lines as a person would have read them at the end.

    Colours and other control sequences go, of a progress bar the last drawing stays, and what was
    written behind a bar stands on a line of its own. A line is cut at 4096 characters, and of one
    that was drawn over itself more than 500 times only the last drawings are looked at.

    Args:
        log: Lines as they were written, with or without their line ends.
    """
    return tuple(piece for line in log for piece in _split(line))


def _split(line: str) -> Iterator[str]:
    for part in line.rstrip("\r\n").split("\n"):
        plain = _ESCAPES.sub("", part) if "\x1b" in part else part
        pieces = plain.translate(_CONTROLS).rsplit("\r", _MOST_REDRAWN)[-_MOST_REDRAWN:]
        drawn = [piece for piece in pieces if piece.strip()]
        if not drawn:
            yield ""
            continue
        for piece, following in zip(drawn, [*drawn[1:], None], strict=True):
            if following is None or not _is_redrawn(piece, following):
                yield piece[:LONGEST_LINE].rstrip()


def _is_redrawn(piece: str, following: str) -> bool:
    if any(sign in piece for sign in _BAR_SIGNS):
        return True
    return piece.split(maxsplit=1)[0] == following.split(maxsplit=1)[0]
