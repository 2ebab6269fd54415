"""What people are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]

_MARK = "…"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        title: What it is about, in one line.
        text: The rest, in plain text; may be empty.
        severity: How bad it is.
        key: Messages with the same key are about the same thing.
        html: The same as HTML, for e-mail; None where the text is all there is.
        fields: Names and values that go with it, such as the run and the host.
        is_over: It says that what the last one of this key told is over.
        time: When it happened, Unix seconds; None for the moment in which it is sent.
    """

    title: str
    text: str
    severity: Severity
    key: str
    html: str | None = None
    fields: tuple[tuple[str, str], ...] = ()
    is_over: bool = False
    time: float | None = None


def write_line(text: str) -> str:
    """Make one line of a text, of what can be printed, so that it fits into a header."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def write_text(text: str) -> str:
    """Leave out of a text what moves a terminal's cursor or cannot be encoded; its lines stay."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def cut(text: str, most: int) -> str:
    """Cut a text to so many characters, the last of which then says so."""
    return text if len(text) <= most else text[: most - len(_MARK)] + _MARK
