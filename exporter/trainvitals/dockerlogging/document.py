"""A `daemon.json` as it is written: its members, where they stand, and its layout.

Docker reads strict JSON: no comments, no comma before a closing bracket. Members are changed where
they stand and added after the last one in the manner of the first, so that all else, its order and
its layout, stays byte for byte.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainvitals.errors import ConfigurationError

_MOST_DIGITS = 18
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//|/\*|#")
_EXTRA_COMMA = re.compile(r",[ \t\r\n]*[}\]]")
_UNIT = "  "


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object.

    Attributes:
        key: Its name.
        value: What JSON makes of its value.
        key_start: Where its name begins, with the quotation mark.
        key_end: Where its name ends.
        value_start: Where its value begins.
        value_end: Where its value ends.
    """

    key: str
    value: object
    key_start: int
    key_end: int
    value_start: int
    value_end: int


@dataclass(frozen=True, slots=True)
class Document:
    """A file that is one JSON object, or nothing.

    Attributes:
        text: What it says, without a byte order mark.
        members: Its members in their order.
        has_mark: Whether it begins with a byte order mark.
    """

    text: str = ""
    members: tuple[Member, ...] = ()
    has_mark: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing at all."""
        return not self.text.strip()

    @property
    def options(self) -> dict[str, object]:
        """Its members by name; of those of one name the last, as Docker takes them."""
        return {member.key: member.value for member in self.members}

    @property
    def repeated(self) -> tuple[str, ...]:
        """The names, also within `log-opts`, that stand there more than once."""
        keys = [member.key for member in self.members]
        for member in self.members:
            if member.key == "log-opts" and isinstance(member.value, dict):
                inner = scan_members(self.text, member.value_start)
                keys += [f"log-opts.{each.key}" for each in inner]
        return tuple(sorted({key for key in keys if keys.count(key) > 1}))

    def change(self, changes: Mapping[str, object], *, drops: frozenset[str] = frozenset()) -> str:
        """Give the text with these members; an object among them is merged into what is there.

        Args:
            changes: What is to be said, in the order of what is added.
            drops: Members of `log-opts` that are taken out.
        """
        if not self.members:
            return json.dumps(dict(changes), indent=len(_UNIT)) + "\n"
        edits = _edit(self.text, self.text.index("{"), changes, drops)
        text = self.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


def read_document(path: Path, data: bytes) -> Document:
    """Read what a file says.

    Raises:
        ConfigurationError: It is not one JSON object; the message has the line and the column.
    """
    has_mark = data.startswith(codecs.BOM_UTF8)
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(path, data[: error.start].decode("latin-1"), error.start, "this is not UTF-8")
    if not text.strip():
        return Document(text, (), has_mark)
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        _refuse(path, text, *_explain(text, error))
    except _NumberError as error:
        _refuse(path, text, text.find(str(error)), f"{error} is no number in JSON")
    except RecursionError:
        _refuse(path, text, 0, "brackets are nested too deep")
    if not isinstance(value, dict):
        start = len(text) - len(text.lstrip())
        _refuse(path, text, start, "this is not an object: it must begin with { and end with }")
    return Document(text, scan_members(text, text.index("{")), has_mark)


class _NumberError(ValueError):
    """A name that Python takes for a number and JSON does not know."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NumberError(name)


def _read_integer(digits: str) -> int | float:
    # Python refuses to read some thousand digits; for Docker they are none of ours to judge.
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


_DECODER = json.JSONDecoder(parse_int=_read_integer, parse_constant=_refuse_constant)


def _decode(text: str) -> object:
    value: object = _DECODER.decode(text)
    return value


def _refuse(path: Path, text: str, position: int, why: str) -> NoReturn:
    before = text[: max(position, 0)]
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    raise ConfigurationError(f"{path}:{line}:{column}: {why}")


def _explain(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Give the place of what is wrong and the reason, the same with every Python."""
    there = text[error.pos :]
    if _COMMENT.match(there):
        return error.pos, "JSON has no comments: take this one out"
    before = text[: error.pos].rstrip()
    comma = len(before) - 1 if before.endswith(",") else error.pos
    if _EXTRA_COMMA.match(text, comma):
        return comma, "there is a comma too many before the closing bracket"
    return error.pos, f"{error.msg[0].lower()}{error.msg[1:]}"


def scan_members(text: str, start: int) -> tuple[Member, ...]:
    """Find the members of the object that begins at this place of a text that is valid JSON."""
    members = []
    place = _skip(text, start + 1)
    while text[place] != "}":
        key, key_end = _DECODER.raw_decode(text, place)
        value_start = _skip(text, _skip(text, key_end) + 1)
        value, value_end = _DECODER.raw_decode(text, value_start)
        members.append(Member(key, value, place, key_end, value_start, value_end))
        place = _skip(text, value_end)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return tuple(members)


def _skip(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


_Edit = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How an object is written: what stands before a member, between two, and after a name."""

    lead: str
    between: str
    colon: str

    @property
    def indents(self) -> bool:
        return "\n" in self.lead

    def write(self, value: object) -> str:
        """Write a value as it would stand here."""
        if not isinstance(value, Mapping):
            return json.dumps(value)
        lead = self.lead + (self.lead.rpartition("\n")[2] or _UNIT) if self.indents else ""
        between = f",{lead}" if self.indents else self.between
        items = between.join(
            f"{json.dumps(k)}{self.colon}{json.dumps(v)}" for k, v in value.items()
        )
        return f"{{{lead}{items}{self.lead if self.indents else ''}}}"


def _find_layout(text: str, start: int, members: tuple[Member, ...]) -> _Layout:
    first = members[0]
    lead = text[start + 1 : first.key_start]
    colon = text[first.key_end : first.value_start]
    if len(members) > 1:
        return _Layout(lead, text[first.value_end : members[1].key_start], colon)
    space = lead or (" " if colon.endswith(" ") else "")
    return _Layout(lead, f",{space}", colon)


def _edit(
    text: str, start: int, changes: Mapping[str, object], drops: frozenset[str]
) -> list[_Edit]:
    members = scan_members(text, start)
    layout = _find_layout(text, start, members)
    known = {member.key: member for member in members}
    edits: list[_Edit] = []
    added = ""
    for key, value in changes.items():
        member = known.get(key)
        if member is None:
            added += f"{layout.between}{json.dumps(key)}{layout.colon}{layout.write(value)}"
        elif isinstance(value, Mapping) and isinstance(member.value, dict):
            edits += _merge(text, member, value, drops, layout)
        else:
            edits.append((member.value_start, member.value_end, layout.write(value)))
    if added:
        edits.append((members[-1].value_end, members[-1].value_end, added))
    return edits


def _merge(
    text: str,
    member: Member,
    value: Mapping[str, object],
    drops: frozenset[str],
    layout: _Layout,
) -> list[_Edit]:
    there = member.value
    if not isinstance(there, dict) or not there or drops & there.keys():
        kept = {k: v for k, v in there.items() if k not in drops} if isinstance(there, dict) else {}
        return [(member.value_start, member.value_end, layout.write({**kept, **value}))]
    return _edit(text, member.value_start, value, frozenset())
