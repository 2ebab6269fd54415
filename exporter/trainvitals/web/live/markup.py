"""Writing HTML: everything that comes from outside goes through `text`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from types import MappingProxyType

from trainvitals.overview.picture import Tone

MOST_CHARACTERS = 160
DOT = " \N{MIDDLE DOT} "
THIN = "\N{NARROW NO-BREAK SPACE}"

# A chip tells by its word; the sign beside it is for those who glance.
_SIGNS: Mapping[Tone, str] = MappingProxyType(
    {
        "good": "\N{BLACK CIRCLE}",
        "busy": "\N{CIRCLE WITH RIGHT HALF BLACK}",
        "warning": "\N{BLACK UP-POINTING TRIANGLE}",
        "bad": "\N{HEAVY MULTIPLICATION X}",
        "unknown": "\N{WHITE CIRCLE}",
    }
)


@lru_cache(maxsize=4096)
def text(value: str) -> str:
    """Write a text from outside as HTML, cut to what a person reads.

    What cannot be seen, and what turns the direction of writing round, becomes a visible sign.
    """
    if len(value) > MOST_CHARACTERS:
        value = f"{value[: MOST_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    if not value.isprintable():
        value = "".join(map(_show, value))
    return escape(value)


def _show(character: str) -> str:
    is_seen = character.isprintable() or character == THIN
    return character if is_seen else "\N{REPLACEMENT CHARACTER}"


def name(value: str) -> str:
    """Write a name from outside, which keeps its direction of writing to itself."""
    return f"<bdi>{text(value)}</bdi>"


def anchor(kind: str, value: str) -> str:
    """Give the `id` of the element about something, the same whenever it is drawn."""
    return f"{kind}-{zlib.crc32(value.encode(errors='surrogatepass')):08x}"


def chip(words: str, tone: Tone) -> str:
    """Write a state in a word, with its tone.

    Args:
        words: As plain text.
        tone: How bad it is.
    """
    return f'<span class="chip {tone}"><i aria-hidden="true">{_SIGNS[tone]}</i>{text(words)}</span>'


def figure(term: str, value: str, *, kind: str = "") -> str:
    """Write a term and its value, both HTML; empty where the value is.

    Args:
        term: What it is.
        value: What it reads now.
        kind: A class of its own.
    """
    if not value:
        return ""
    css = f' class="{kind}"' if kind else ""
    return f"<div{css}><dt>{term}</dt><dd>{value}</dd></div>"


def remark(words: str, tone: Tone = "unknown") -> str:
    """Write a line of its own about something, HTML."""
    return f'<p class="remark {tone}">{words}</p>'


def section(identity: str, title: str, note: str, body: Iterable[str]) -> str:
    """Write a section with its heading.

    Args:
        identity: Its `id`.
        title: Its heading, plain text.
        note: What stands beside the heading, HTML.
        body: HTML.
    """
    beside = f'<p class="beside">{note}</p>' if note else ""
    head = f'<div class="title"><h2 id="{identity}-title">{text(title)}</h2>{beside}</div>'
    inner = "\n".join(part for part in body if part)
    return (
        f'<section id="{identity}" aria-labelledby="{identity}-title">{head}\n{inner}\n</section>'
    )


def more(count: int, what: str) -> str:
    """Say how many more there are than are shown; empty for none."""
    return f'<p class="more">and {count} more {what}</p>' if count > 0 else ""
