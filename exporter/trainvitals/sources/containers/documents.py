"""Typed access to the JSON documents in a container engine's answers.

The documents of different engines differ. A list may be null or missing, and a string may replace a
list or a number. If a member has an unexpected type, the accessors treat the member as missing and
raise no error.
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
    """Parse the text of a JSON document.

    Raises:
        ValueError: The text is not valid JSON, or is nested too deeply.
    """
    try:
        found: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    return found


def get_mapping(document: Document, name: str) -> Document:
    """Return a document's member if it is an object; otherwise, return an empty object."""
    return as_mapping(document.get(name))


def as_mapping(value: object) -> Document:
    """Return the value if it is an object; otherwise, return an empty object."""
    return value if isinstance(value, dict) else _NOTHING


def get_list(document: Document, name: str) -> tuple[object, ...]:
    """Return the first 1,000 entries of a document's list member, or () for any other type."""
    value = document.get(name)
    return tuple(value[:_LIST_LENGTH]) if isinstance(value, list) else ()


def get_text(document: Document, name: str) -> str:
    """Return the first 4,096 characters of a document's string member, or "" for any other type."""
    return as_text(document.get(name))


def as_text(value: object) -> str:
    """Return the first 4,096 characters of a string, or "" for a value of any other type."""
    # JSON may contain a lone surrogate, which cannot be encoded.
    return value[:_TEXT_LENGTH].encode(errors="replace").decode() if isinstance(value, str) else ""


def get_texts(document: Document, name: str) -> tuple[str, ...]:
    """Return the strings in a document's list or string member, or () for any other type."""
    value = document.get(name)
    if isinstance(value, str):
        return (as_text(value),)
    return tuple(as_text(entry) for entry in get_list(document, name) if isinstance(entry, str))


def get_number(document: Document, name: str) -> int | None:
    """Return a document's member if it is a signed 64-bit integer; otherwise, return None."""
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < _MOST_NUMBER else None


def get_time(document: Document, name: str) -> float | None:
    """Return the time in a document's string member, in seconds since 1970.

    The result is None if the member contains no time or the zero time.
    """
    return parse_time(get_text(document, name))
