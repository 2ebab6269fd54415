"""Convert evidence to a JSON document, for the journal and for the output of `diagnose --json`.

An evidence document is one JSON object with these members:

- `format`: the number 1. The number increases when the meaning of a member changes, but not when
  members are added.
- every attribute of `trainvitals.sources.containers.evidence.Evidence` under the attribute's name.
  `state`, `settings`, `sample`, `host` and `training` are objects. `events`, `oom_kills`, `xids`,
  `gaps`, `probes` and `disks` are lists of objects. The members of these objects are the attributes
  of the corresponding classes.

Texts are JSON strings, numbers are JSON numbers, and booleans are `true` or `false`. A tuple is a
JSON list; a pair in `log_options`, `mounts` and `biggest` is a list of two values. An unknown value
is `null` or omitted. An empty list means that the source was read and contained nothing relevant.
If a list that can be None is omitted, the source of the list was not read. Unknown members are
ignored.

Times are in seconds since 1970, or in seconds since boot if the times are from a kernel log without
dates. Sizes are in bytes. Likely secrets have been masked.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache

from trainvitals.errors import TrainvitalsError
from trainvitals.foreign_numbers import MOST_VALUE
from trainvitals.sources.containers.evidence import Evidence

FORMAT = 1
_PLAIN = (str, bool)
_MOST_WHOLE = 1 << 63


class EvidenceError(TrainvitalsError):
    """The error that is raised if a JSON document is not a supported evidence document."""


def to_json(evidence: Evidence) -> dict[str, object]:
    """Return evidence as an object for `json.dumps`; the inverse function is `from_json`."""
    return {"format": FORMAT, **_write_members(evidence)}


def from_json(document: Mapping[str, object]) -> Evidence:
    """Return the evidence that an object in the format of `to_json` describes.

    Unknown members of the object are ignored. The value of a missing member is unknown.

    Raises:
        EvidenceError: The object is not an evidence document, or its format number is not
            supported. The message names the invalid member.
    """
    number = document.get("format", FORMAT)
    if number != FORMAT:
        raise EvidenceError(
            f"evidence: format {number!r} is not {FORMAT}; read it with the version that wrote it"
        )
    read = _read_object(Evidence, document, "evidence")
    assert isinstance(read, Evidence)  # noqa: S101 - by construction, for the type checker
    return read


def _write(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return _write_members(value)
    if isinstance(value, tuple):
        return [_write(item) for item in value]
    return value


def _write_members(value: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(value)  # noqa: S101 - by construction, for the type checker
    return {
        field.name: _write(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) is not None
    }


def _read_object(kind: type, value: object, where: str) -> object:
    if not isinstance(value, Mapping):
        raise EvidenceError(f"{where}: must be an object, not {type(value).__name__}")
    hints = _get_type_hints(kind)
    members: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        member, place = value.get(field.name), f"{where}.{field.name}"
        if member is not None:
            members[field.name] = _read(hints[field.name], member, place)
        elif type(None) in typing.get_args(hints[field.name]):
            members[field.name] = None
        elif _is_needed(field):
            raise EvidenceError(f"{place}: is missing, and {kind.__name__} cannot be without")
    made: object = kind(**members)
    return made


@cache  # for each class of the evidence; a journal contains thousands of objects
def _get_type_hints(kind: type) -> Mapping[str, object]:
    return typing.get_type_hints(kind)


def _is_needed(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _read(hint: object, value: object, where: str) -> object:
    origin, choices = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        (inner,) = (choice for choice in choices if choice is not type(None))
        return _read(inner, value, where)
    if origin is typing.Literal:
        if value in choices:
            return value
        raise EvidenceError(f"{where}: must be one of {', '.join(map(str, choices))}")
    if origin is tuple:
        return _read_tuple(choices, value, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _read_object(hint, value, where)
    return _read_plain(hint, value, where)


def _read_tuple(kinds: tuple[object, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise EvidenceError(f"{where}: must be a list, not {type(value).__name__}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:  # noqa: PLR2004 - tuple[kind, ...]
        return tuple(_read(kinds[0], item, f"{where}[{at}]") for at, item in enumerate(value))
    if len(kinds) != len(value):
        raise EvidenceError(f"{where}: must be a list of {len(kinds)}")
    return tuple(
        _read(kind, item, f"{where}[{at}]")
        for at, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )


def _read_plain(hint: object, value: object, where: str) -> object:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= MOST_VALUE:
            return float(value)
    elif hint is int and type(value) is int:
        if abs(value) <= _MOST_WHOLE:
            return value
    elif hint in _PLAIN and type(value) is hint:
        return value
    name = hint.__name__ if isinstance(hint, type) else str(hint)
    raise EvidenceError(f"{where}: must be a {name}, not {value!r:.40}")
