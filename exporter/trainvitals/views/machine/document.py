"""The machine state as JSON, as returned by `/api/v1/overview`.

The document is an object that contains `format`, which is the number 1, and the fields of
`picture.Picture` by name. Dataclasses are written as objects, tuples as arrays, and unknown values
as null. Numbers that JSON does not support are written as the strings `NaN`, `+Inf` and `-Inf`.
Trace points are rounded to five digits.

The format is stable: members may be added, but none is renamed or removed, and readers ignore
unknown members. If a document lacks a member because an older version wrote the document, the
field's default applies. If the member `troubles` is missing, `read_document` adds an `Unknown`,
which states that the version is too old to find problems.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from trainvitals.errors import TrainvitalsError
from trainvitals.foreign_text import cut
from trainvitals.verdicts.trouble import Unknown
from trainvitals.views.machine.faulty import draw_runs
from trainvitals.views.machine.picture import Picture, Trace

FORMAT = 1
MOST_ITEMS = 4096
MOST_CHARACTERS = 4096

_MOST_WHOLE = 1 << 63
_MOST_SHOWN = 60
_NOT_FINITE = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}

Decoder = Callable[[object, str], Any]


class DocumentError(TrainvitalsError):
    """A document is not in the format of `/api/v1/overview`."""


def write_document(picture: Picture) -> bytes:
    """Return the machine state as JSON, in the format of this module."""
    return draw_runs(_write, picture).encode() + b"\n"


def _write(picture: Picture) -> str:
    document = {"format": FORMAT, **_encode_data(picture)}
    return json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=True)


def read_document(data: bytes | str) -> Picture:
    """Parse the machine state from JSON in the format of this module.

    Raises:
        DocumentError: The text is not JSON, the document's format is not supported, or a member is
            missing, of the wrong type or too large; the message names the member.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"no JSON: {error}; ask an exporter for /api/v1/overview") from error
    if not isinstance(document, dict):
        raise DocumentError(f"{_name(document)} is no overview; ask an exporter's /api/v1/overview")
    if document.get("format") != FORMAT:
        raise DocumentError(
            f"its format is {_show(document.get('format'))}, and this version reads {FORMAT}; use "
            "the same version of trainvitals on both sides"
        )
    picture: Picture = _decoder(Picture)(document, "")
    if "troubles" in document:
        return picture
    unknown = Unknown(
        "exporter", f"trainvitals {picture.version} on that machine is too old to find problems"
    )
    return dataclasses.replace(picture, unknowns=(*picture.unknowns, unknown))


def _encode_data(data: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass
    kind: Any = type(data)
    encoded = {}
    for name, is_trace in _fields(kind):
        value = getattr(data, name)
        encoded[name] = _encode_trace(value) if is_trace else _encode(value)
    return encoded


@cache
def _fields(kind: Hashable) -> tuple[tuple[str, bool], ...]:
    hints, fields = get_type_hints(kind), dataclasses.fields(cast("Any", kind))
    return tuple((field.name, hints[field.name] == Trace) for field in fields)


def _encode(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_number(value)
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, tuple):
        return [_encode(each) for each in value]
    return _encode_data(value)


def _encode_trace(trace: Trace) -> list[float | None]:
    return [None if point is None else float(f"{point:.5g}") for point in trace]


def _name_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


@cache
def _decoder(kind: Any) -> Decoder:  # noqa: ANN401 - a type or an annotation
    """Return a function that converts a JSON value to the given type."""
    if dataclasses.is_dataclass(kind):
        return _decode_data_of(cast("type[Any]", kind))
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _decode_optional_of(kind)
    if origin is tuple:
        return _decode_tuple_of(kind)
    if origin is Literal:
        return _decode_literal_of(get_args(kind))
    return {str: _decode_text, bool: _decode_bool, int: _decode_whole, float: _decode_number}[kind]


def _decode_data_of(kind: type[Any]) -> Decoder:
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    required = {field.name for field in fields if field.default is dataclasses.MISSING}
    decoders = {field.name: _decoder(hints[field.name]) for field in fields}

    def decode(value: object, where: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        members: Mapping[str, object] = value
        missing = required - members.keys()
        if missing:
            raise DocumentError(f"{_join(where, min(missing))} is missing")
        known = {
            name: decoder(members[name], _join(where, name))
            for name, decoder in decoders.items()
            if name in members
        }
        return kind(**known)

    return decode


def _decode_optional_of(kind: object) -> Decoder:
    (inner,) = (_decoder(each) for each in get_args(kind) if each is not NoneType)
    return lambda value, where: None if value is None or _is_huge(value) else inner(value, where)


def _is_huge(value: object) -> bool:
    """Return whether a JSON value is an integer that is too large to be valid."""
    return type(value) is int and abs(value) > _MOST_WHOLE


def _decode_tuple_of(kind: object) -> Decoder:
    kinds = get_args(kind)
    decoders = [_decoder(each) for each in kinds if each is not Ellipsis]
    is_open = kinds[-1] is Ellipsis

    def decode(value: object, where: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise _wrong(where, "an array", value)
        if len(value) > MOST_ITEMS:
            raise DocumentError(f"{where} has {len(value)} items; at most {MOST_ITEMS} are read")
        if not is_open and len(value) != len(decoders):
            raise DocumentError(f"{where} has {len(value)} items, not {len(decoders)}")
        each = decoders * len(value) if is_open else decoders
        items = enumerate(zip(value, each, strict=True))
        return tuple(decode_one(item, f"{where}[{at}]") for at, (item, decode_one) in items)

    return decode


def _decode_literal_of(words: tuple[object, ...]) -> Decoder:
    def decode(value: object, where: str) -> object:
        if not isinstance(value, str) or value not in words:
            raise _wrong(where, f"one of {', '.join(map(str, words))}", value)
        return value

    return decode


def _decode_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a text", value)
    if len(value) > MOST_CHARACTERS:
        raise DocumentError(f"{where} is longer than {MOST_CHARACTERS} characters")
    return value


def _decode_bool(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _decode_whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MOST_WHOLE:
        raise _wrong(where, "a whole number", value)
    return value


def _decode_number(value: object, where: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or abs(value) > sys.float_info.max
    ):
        raise _wrong(where, "a number", value)
    return float(value)


def _wrong(where: str, wanted: str, value: object) -> DocumentError:
    return DocumentError(f"{where or 'the document'} is {_show(value)}, not {wanted}")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _show(value: object) -> str:
    if isinstance(value, list | dict):
        return _name(value)
    text = json.dumps(value) if not isinstance(value, int) or abs(value) < _MOST_WHOLE else "huge"
    return cut(text, _MOST_SHOWN)


def _name(value: object) -> str:
    names = {list: "an array", dict: "an object", str: "a text", type(None): "null"}
    return names.get(type(value), "a number")
