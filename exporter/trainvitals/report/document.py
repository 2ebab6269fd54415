"""The JSON document of a report.

The document is one JSON object, encoded in UTF-8:

    {"format": "trainvitals report", "version": 1, "report": {…}}

`report` contains the attributes of `figures.Report` under their names, in base units: seconds,
bytes, joules, watts, degrees Celsius, ratios from 0 to 1. Times are Unix seconds, and null means
unknown. Nested objects contain the attributes of their classes in `figures` and `training`, and
lists are in the order stated there. A point of a time series is a pair `[time, value]`, in which
the time is the end of the hour.

    kind                daily or weekly
    begin, planned_end  the period; end is earlier than planned_end if the period is not over
    zone                the name of the time zone
    utc_offset_seconds  [[since, seconds]]: each offset from UTC, and the time from which it applies
    asked, source       the time of the query, and the Prometheus URL without its password
    instances, only_runs  the machines and runs that the report is limited to; [] for all
    coverage            {first, last, seconds, holes: [[begin, end]]}
    hosts               {names, environments, memory_used_bytes, memory_total_bytes,
                        memory_peak_ratio, memory_peak_instance,
                        disks: [{instance, mountpoint, avail_bytes, size_bytes}]}
    runs                {is_told, lost_seconds, lost_steps,
                        attempts: [{run, instances, started, ended, outcome, exit_code,
                        is_resumed}],
                        observed: [{run, instance, source, progressed}],
                        best: [{name, split, run, instance, value, is_lower_better, target,
                        by_hour}],
                        expected: [{run, instance, figure, expected, measured, by_hour}]}
                        figure: pace, in epochs per hour, or memory, in bytes
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

A reader of version 1 rejects a document that has another version, an unknown attribute, a value of
a wrong type or a non-finite number, or that lacks an attribute without a default.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import open_named
from trainvitals.foreign_numbers import LATEST_TIME, MOST_VALUE
from trainvitals.report.figures import Report

_FORMAT, _VERSION = "trainvitals report", 1
_MOST_BYTES = 64_000_000
_DAY_SECONDS = 86_400
_LONGEST_SECONDS = 8 * _DAY_SECONDS


def format_document(report: Report) -> str:
    """Return a report as JSON."""
    document = {"format": _FORMAT, "version": _VERSION, "report": dataclasses.asdict(report)}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)


def read_document(path: Path) -> Report:
    """Read a report from a file that contains the text returned by `format_document`.

    Raises:
        ConfigurationError: The file cannot be read, or does not contain a valid report document.
    """
    try:
        with open_named(path) as file:
            page = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"--input={path}: cannot be read: {error.strerror}") from error
    if len(page) > _MOST_BYTES:
        raise ConfigurationError(f"--input={path}: is larger than 64 MB")
    try:
        return parse_document(page.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--input={path}: is not UTF-8 text") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"--input={path}: {error}") from error


def parse_document(text: str) -> Report:
    """Parse the JSON document of a report.

    Raises:
        ConfigurationError: The text is not a valid report document; the message names the invalid
            attribute.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"is not JSON: {str(error).partition(':')[0]}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ConfigurationError("is not a report: make one with `trainvitals report daily --json`")
    if document.get("version") != _VERSION:
        raise ConfigurationError(
            f"has version {document.get('version')!r}, but this program reads {_VERSION}"
        )
    report = cast("Report", _read(Report, document.get("report"), "report"))
    _check(report)
    return report


def _check(report: Report) -> None:
    """Raise an error if a report's period, UTC offset, disk size or expected value is invalid."""
    last = min(LATEST_TIME, report.begin + _LONGEST_SECONDS)
    if not 0 <= report.begin <= report.end <= report.planned_end <= last:
        raise ConfigurationError("report.begin, end and planned_end are not those of a day or week")
    for place, (_, seconds) in enumerate(report.utc_offset_seconds):
        if abs(seconds) >= _DAY_SECONDS:
            raise _refuse(f"report.utc_offset_seconds[{place}]", "less than a day", seconds)
    for place, disk in enumerate(report.hosts.disks):
        if disk.size_bytes <= 0:
            raise _refuse(f"report.hosts.disks[{place}].size_bytes", "a size", disk.size_bytes)
    for place, each in enumerate(report.runs.expected):
        if each.expected <= 0:
            raise _refuse(
                f"report.runs.expected[{place}].expected", "a pace or size", each.expected
            )


def write_file(path: Path, text: str) -> None:
    """Write a text to a file atomically, with mode 0600.

    A path that is not a regular file, such as a pipe or /dev/stdout, is written directly.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # not replaced by a regular file
            path.write_text(text, encoding="utf-8")
            return
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        draft = Path(name)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--output={path}: cannot be written: {error.strerror}") from error


def _read(wanted: object, value: object, place: str) -> object:
    """Convert a JSON value to the wanted dataclass, tuple, literal, number, string or boolean."""
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
    optional = {
        field.name
        for field in dataclasses.fields(wanted)
        if field.default is not dataclasses.MISSING
    }
    for name in (named.keys() ^ hints.keys()) - (optional - named.keys()):
        word = "is missing" if name in hints else "is unknown"
        raise ConfigurationError(f"{place}.{name[:40]} {word}")
    return wanted(
        **{name: _read(hints[name], each, f"{place}.{name}") for name, each in named.items()}
    )


def _read_plain(wanted: object, value: object, place: str) -> object:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_shown = is_number and abs(cast("float", value)) <= MOST_VALUE
    if is_shown and (wanted is float or (wanted is int and isinstance(value, int))):
        return value
    if wanted in (str, bool) and type(value) is wanted:
        return value
    names = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}
    raise _refuse(place, names.get(cast("type", wanted), str(wanted)), value)


def _refuse(place: str, wanted: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{place}: expected {wanted}, found {str(value)[:40]!r}")
