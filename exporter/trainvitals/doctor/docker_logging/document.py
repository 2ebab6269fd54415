"""Parses `daemon.json` as Docker does: strict JSON, without comments or trailing commas."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from trainvitals.errors import ConfigurationError

_INDENT = re.compile(r'\n([ \t]+)"')
_COMMENT = re.compile(r"//|/\*|#")
_EXTRA_COMMA = re.compile(r",[ \t\r\n]*[}\]]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Object(dict[str, object]):
    """A JSON object; if a member is repeated, the last one applies, as in Docker."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.repeated = [name for name in counts if counts[name] > 1]


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a `daemon.json`: one JSON object, or nothing if the file is empty.

    Attributes:
        text: The text of the file, without a byte order mark.
        options: The members of the JSON object by name.
        repeated: The names of duplicate members, including those in `log-opts`.
        has_mark: Whether the file begins with a byte order mark.
    """

    text: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()
    has_mark: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the file is empty."""
        return not self.text.strip()

    def change(self, changes: Mapping[str, object], *, drops: frozenset[str] = frozenset()) -> str:
        """Return the changed text of the file, with the same member order and indentation.

        Args:
            changes: The new values of members, by member name; an object is merged into the
                existing object.
            drops: The names of the members of `log-opts` to remove.
        """
        options = dict(self.options)
        for key, value in changes.items():
            there = options.get(key)
            if isinstance(value, dict) and isinstance(there, dict):
                kept = {name: each for name, each in there.items() if name not in drops}
                options[key] = {**kept, **value}
            else:
                options[key] = value
        indent = _INDENT.search(self.text)
        has_surrogate = _SURROGATE.search(json.dumps(options, ensure_ascii=False))
        text = json.dumps(
            options, indent=indent[1] if indent else "  ", ensure_ascii=bool(has_surrogate)
        )
        return f"{text}\n".replace("\n", "\r\n" if "\r\n" in self.text else "\n")


def read_document(path: Path, data: bytes) -> Document:
    """Parse the content of a `daemon.json`.

    Raises:
        ConfigurationError: The text is not a JSON object; the message contains the line and the
            column.
    """
    has_mark = data.startswith(codecs.BOM_UTF8)
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(path, data[: error.start].decode("latin-1"), error.start, "not UTF-8")
    if not text.strip():
        return Document(text, has_mark=has_mark)
    try:
        options = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        _refuse(path, text, *_explain(text, error))
    except _NumberError as error:
        number, why = error.args
        _refuse(path, text, text.find(number), why)
    except RecursionError:
        _refuse(path, text, 0, "nested too deeply")
    if not isinstance(options, _Object):
        start = len(text) - len(text.lstrip())
        _refuse(path, text, start, "not an object, which begins with { and ends with }")
    repeated = list(options.repeated)
    if isinstance(log_options := options.get("log-opts"), _Object):
        repeated += [f"log-opts.{name}" for name in log_options.repeated]
    return Document(text, options, tuple(sorted(repeated)), has_mark)


class _NumberError(ValueError):
    """Docker cannot parse a number in the file; the exception's message is the reason."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NumberError(name, f"JSON has no {name}")


def _read_number(digits: str) -> int | float:
    if math.isinf(float(digits)):
        raise _NumberError(digits, "this number is too large")
    return int(digits) if digits.lstrip("-").isdigit() else float(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object,
    parse_int=_read_number,
    parse_float=_read_number,
    parse_constant=_refuse_constant,
)


def _refuse(path: Path, text: str, position: int, why: str) -> NoReturn:
    place = json.JSONDecodeError(why, text, position)
    raise ConfigurationError(f"{path}:{place.lineno}:{place.colno}: {why}")


def _explain(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Return the position and reason of a syntax error, independent of the Python version."""
    if _COMMENT.match(text, error.pos):
        return error.pos, "JSON has no comments: remove this one"
    before = text[: error.pos].rstrip()
    comma = len(before) - 1 if before.endswith(",") else error.pos
    if _EXTRA_COMMA.match(text, comma):
        return comma, "JSON allows no comma before a closing bracket"
    return error.pos, f"{error.msg[0].lower()}{error.msg[1:]}"
