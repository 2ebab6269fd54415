"""Typed access to the JSON of an engine's answers.

Engines differ: a list may be null or missing, a string may replace a list, and a string a number. A
member of another type is treated as missing, and no accessor raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainvitals.sources.timestamps import parse_time

Document = Mapping[str, object]

_NOTHING: Document = {}
_MOST_NUMBER = 2**63
_TEXT_LENGTH = 4096
_LIST_LENGTH = 1000


def parse_json(text: bytes | str) -> object:
    """Read JSON.

    Raises:
        ValueError: The text is not valid JSON, or is nested too deeply.
    """
    try:
        found: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    return found


def get_mapping(document: Document, name: str) -> Document:
    """Return a member that is an object; empty if there is none."""
    return as_mapping(document.get(name))


def as_mapping(value: object) -> Document:
    """Return a value that is an object; empty if it is not."""
    return value if isinstance(value, dict) else _NOTHING


def get_list(document: Document, name: str) -> tuple[object, ...]:
    """Return a member that is a list, cut at 1,000 entries; empty if there is none."""
    value = document.get(name)
    return tuple(value[:_LIST_LENGTH]) if isinstance(value, list) else ()


def get_text(document: Document, name: str) -> str:
    """Return a member that is a text, cut at 4,096 characters; empty if there is none."""
    return as_text(document.get(name))


def as_text(value: object) -> str:
    """Return a value that is a text; empty if it is not."""
    # JSON may hold a lone surrogate, which cannot be encoded.
    return value[:_TEXT_LENGTH].encode(errors="replace").decode() if isinstance(value, str) else ""


def get_texts(document: Document, name: str) -> tuple[str, ...]:
    """Return a member that is a list of texts, or one text; empty if there is none."""
    value = document.get(name)
    if isinstance(value, str):
        return (as_text(value),)
    return tuple(as_text(entry) for entry in get_list(document, name) if isinstance(entry, str))


def get_number(document: Document, name: str) -> int | None:
    """Return a member that is a whole number of 64 bits, its sign included; None if there is none."""
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < _MOST_NUMBER else None


def get_time(document: Document, name: str) -> float | None:
    """Return a member that is a time in text; None if there is none, or the engine's zero."""
    return parse_time(get_text(document, name))
