"""Looking things up in what an engine answers, whatever it is.

Engines differ: a list is null or missing, a text is a list, a number is text.
None of this raises; what is not as it should be is not there.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Mapping
from datetime import datetime, timezone

Document = Mapping[str, object]

_NOTHING: Document = {}
_MOST_NUMBER = 2**64
_TEXT_LENGTH = 4096
_LIST_LENGTH = 1000
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(\.\d{1,12})?(?:Z|([+-])(\d\d):?(\d\d))",
    re.ASCII,
)


def parse_json(text: bytes | str) -> object:
    """Read JSON.

    Raises:
        ValueError: It is none, or so deep that nobody meant it.
    """
    try:
        found: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    return found


def get_mapping(document: Document, name: str) -> Document:
    """Look up an object; empty where there is none."""
    return as_mapping(document.get(name))


def as_mapping(value: object) -> Document:
    """Take a value for an object; empty where it is none."""
    return value if isinstance(value, dict) else _NOTHING


def get_list(document: Document, name: str) -> tuple[object, ...]:
    """Look up a list, at most its first 1,000 entries; empty where there is none."""
    value = document.get(name)
    return tuple(value[:_LIST_LENGTH]) if isinstance(value, list) else ()


def get_text(document: Document, name: str) -> str:
    """Look up a text, cut at 4,096 characters; empty where there is none."""
    return as_text(document.get(name))


def as_text(value: object) -> str:
    """Take a value for a text; empty where it is none."""
    # A half of a pair alone is no text that could be written anywhere.
    return value[:_TEXT_LENGTH].encode(errors="replace").decode() if isinstance(value, str) else ""


def get_texts(document: Document, name: str) -> tuple[str, ...]:
    """Look up a list of texts, or one text; empty where there is none."""
    value = document.get(name)
    if isinstance(value, str):
        return (as_text(value),)
    return tuple(as_text(entry) for entry in get_list(document, name) if isinstance(entry, str))


def get_number(document: Document, name: str) -> int | None:
    """Look up a whole number of at most 64 bits; None where there is none."""
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < _MOST_NUMBER else None


def get_time(document: Document, name: str) -> float | None:
    """Look up a time in text; None where there is none, or the engine's zero."""
    return parse_time(get_text(document, name))


def parse_time(text: str) -> float | None:
    """Read a time as engines write it: RFC 3339, with up to nanoseconds.

    Returns:
        Seconds since 1970; None where it is none, or `0001-01-01T00:00:00Z`, which says never.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = timegm(moment.timetuple()) + float(found[7] or 0)
    if found[8]:
        away = int(found[9]) * 3600 + int(found[10]) * 60
        seconds += away if found[8] == "-" else -away
    return seconds if seconds > 0 else None
