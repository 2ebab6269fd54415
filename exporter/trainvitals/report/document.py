"""A report as JSON, and back.

The document is one object in UTF-8:

    {"format": "trainvitals report", "version": 1, "report": {…}}

`report` has the attributes of `figures.Report` under their names, in base units: seconds, bytes,
joules, watts, degrees Celsius, ratios from 0 to 1; moments are seconds since 1970. What is not
known is null. Records in it have the attributes of their classes in `training`, `hardware`,
`troubles` and `figures`, lists keep their order, and a point of a course is a pair
`[moment, value]`, whose moment is the end of its hour.

    kind                daily or weekly
    begin, planned_end  the period; end is earlier than planned_end where it is not over
    zone                the name of the time zone
    utc_offset_seconds  [[since, seconds]]: how far its clock is ahead of UTC, from when on
    asked, source       when and whom was asked; the address holds no password
    instances, only_runs  what it is limited to; empty for all
    coverage            {first, last, seconds, holes: [[begin, end]]}
    hosts               {names, environments, memory_used_bytes, memory_total_bytes,
                        memory_peak_ratio, memory_peak_instance,
                        disks: [{instance, mountpoint, avail_bytes, size_bytes}]}
    runs                {is_told, lost_seconds, lost_steps,
                        attempts: [{run, instances, started, ended, outcome, exit_code, is_resumed}],
                        observed: [{run, instance, source, progressed}],
                        best: [{name, split, run, instance, value, is_lower_better, target,
                        by_hour}]}
                        outcome: active, completed, failed, out of memory, killed, terminated,
                        interrupted, vanished, unknown
    accelerators        {count, seconds, busy_seconds, memory_used_bytes, memory_total_bytes,
                        memory_peak_bytes, celsius, hottest: {instance, device, celsius, time},
                        power_watts, energy_joules, is_energy_estimated,
                        uses: [{cause, seconds, by_hour}], busy_by_hour, joules_by_hour,
                        celsius_by_hour}
                        cause: training, others, data_wait, stalled, throttled, evaluation,
                        starting, paused, held, idle, lost
    incidents           [{alert, severity, instance, subject, verdict, spans: [[begin, end]],
                        is_firing, resolution}]
    deaths              [{instance, name, reason, count, last, is_running}]
    before              {begin, end, completed, failed, busy_ratio, wasted_ratio, energy_joules}
    price               {per_kwh, currency}
    advice              [{urgency, what, because}]: urgency 0 now, 1 soon, 2 when there is time
    gaps                [{what, why}]

A reader of version 1 refuses other versions, records that lack an attribute or have one too many,
values of another type, and numbers that are not finite.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from trainvitals.errors import ConfigurationError
from trainvitals.report.figures import Report

_FORMAT, _VERSION = "trainvitals report", 1
_MOST_BYTES = 64_000_000


def format_document(report: Report) -> str:
    """Write a report as JSON."""
    document = {"format": _FORMAT, "version": _VERSION, "report": dataclasses.asdict(report)}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)


def read_document(path: Path) -> Report:
    """Read a report that `format_document` wrote.

    Raises:
        ConfigurationError: The file cannot be read or is something else.
    """
    try:
        with path.open("rb") as file:
            page = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"--input={path}: cannot be read: {error.strerror}") from error
    if len(page) > _MOST_BYTES:
        raise ConfigurationError(f"--input={path}: is larger than 64 MB")
    try:
        return parse_document(page.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--input={path}: is no text") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"--input={path}: {error}") from error


def parse_document(text: str) -> Report:
    """Read a report from JSON.

    Raises:
        ConfigurationError: It is something else; the message names the place.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"is no JSON: {str(error).partition(':')[0]}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ConfigurationError("is no report: make one with `trainvitals report daily --json`")
    if document.get("version") != _VERSION:
        raise ConfigurationError(
            f"is of version {document.get('version')!r}, and this program reads {_VERSION}"
        )
    return cast("Report", _read(Report, document.get("report"), "report"))


def _read(wanted: object, value: object, place: str) -> object:
    """Read a value of a type: a record, a tuple, a choice, a number, a text, yes or no."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in parts:
            return None
        return _read(next(part for part in parts if part is not type(None)), value, place)
    if origin is tuple:
        return _read_tuple(parts, value, place)
    if origin is typing.Literal:
        if value in parts:
            return value
        raise _refuse(place, f"one of {', '.join(map(str, parts))}", value)
    if dataclasses.is_dataclass(wanted):
        return _read_record(cast("type", wanted), value, place)
    return _read_plain(wanted, value, place)


def _read_tuple(parts: tuple[object, ...], value: object, place: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _refuse(place, "a list", value)
    if len(parts) == 2 and parts[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        return tuple(_read(parts[0], each, f"{place}[{n}]") for n, each in enumerate(value))
    if len(parts) != len(value):
        raise _refuse(place, f"a list of {len(parts)}", value)
    return tuple(
        _read(part, each, f"{place}[{n}]")
        for n, (part, each) in enumerate(zip(parts, value, strict=True))
    )


def _read_record(wanted: type, value: object, place: str) -> object:
    if not isinstance(value, dict):
        raise _refuse(place, "an object", value)
    hints = typing.get_type_hints(wanted)
    named = cast("Mapping[str, object]", value)
    for name in named.keys() ^ hints.keys():
        word = "is missing" if name in hints else "is not known"
        raise ConfigurationError(f"{place}.{name[:40]} {word}")
    return wanted(
        **{name: _read(hint, named[name], f"{place}.{name}") for name, hint in hints.items()}
    )


def _read_plain(wanted: object, value: object, place: str) -> object:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is float and is_number and math.isfinite(cast("float", value)):
        return value
    if wanted is int and is_number and isinstance(value, int):
        return value
    if wanted in (str, bool) and type(value) is wanted:
        return value
    names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    raise _refuse(place, names.get(cast("type", wanted), str(wanted)), value)


def _refuse(place: str, wanted: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{place}: {wanted} is wanted, and there is {str(value)[:40]!r}")
