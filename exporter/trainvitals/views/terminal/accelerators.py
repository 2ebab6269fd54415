"""The terminal sections for accelerators and for the processes that hold accelerator memory."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from trainvitals.foreign_text import clean_text
from trainvitals.units import (
    UNKNOWN,
    format_age,
    format_bytes,
    format_bytes_of,
    format_limited,
    format_percent,
)
from trainvitals.views.machine.headline import DEVICE_MEMORY, HOT, TONES
from trainvitals.views.machine.picture import (
    TEMPERATURE_SCALE_CELSIUS,
    Accelerator,
    Holder,
    Picture,
)
from trainvitals.views.terminal.gauges import Gauge, History
from trainvitals.views.terminal.headline import STYLES, find_style
from trainvitals.views.terminal.table import Column, Rows

_LOST = "AcceleratorLost"


def list_accelerators(picture: Picture) -> Rows[Accelerator]:
    """Return the section that lists the accelerators."""
    return Rows(
        1,
        (
            Column(
                "DEVICE",
                lambda one: _draw_device(one, picture),
                8,
                9,
                99,
                lambda one: f"{one.kind}{one.device:9}",
            ),
            Column("UTIL", _draw_utilization, 11, 18, 9, lambda one: one.utilization_ratio),
            Column("MEMORY", lambda one: _draw_memory(one, picture), 20, 26, 8, _memory_ratio),
            Column(
                "TEMP",
                lambda one: _draw_temperature(one, picture),
                10,
                0,
                7,
                lambda one: one.temperature_celsius,
                "right",
            ),
            Column("POWER", _draw_power, 11, 0, 6, lambda one: one.power_watts, "right"),
            Column("UTIL 15 MIN", _trace_utilization, 13, 45, 5),
            Column("HELD BY", _draw_holder, 16, 24, 4),
            Column("MEMORY 15 MIN", _trace_memory, 15, 30, 1),
            Column("TEMP 15 MIN", lambda one: _trace_temperature(one, picture), 15, 30, 3),
            Column("POWER 15 MIN", _trace_power, 15, 30, 2),
            Column("MODEL", lambda one: Text(clean_text(one.model)), 20, 28, 2),
        ),
        picture.accelerators,
        notes=lambda one: _list_notes(one, picture),
        explain=lambda one: _explain(one, picture),
        has_trouble=lambda one: bool(picture.find_troubles("accelerator", one.name)),
        empty=_describe_missing(picture) or "none here",
        most_wanted=2,
    )


def _memory_ratio(one: Accelerator) -> float | None:
    if one.memory_used_bytes is None or not one.memory_total_bytes:
        return None
    return one.memory_used_bytes / one.memory_total_bytes


def _describe_missing(picture: Picture) -> str:
    missing = [each.summary for each in picture.troubles if each.alert == "AcceleratorMissing"]
    return clean_text("; ".join(missing))


def _draw_device(one: Accelerator, picture: Picture) -> Text:
    is_lost = bool(picture.find_troubles("accelerator", one.name, _LOST))
    return Text(clean_text(one.name), STYLES["bad"] if is_lost else "")


def _draw_utilization(one: Accelerator) -> RenderableType:
    return Gauge(one.utilization_ratio, format_percent(one.utilization_ratio), 4)


def _draw_memory(one: Accelerator, picture: Picture) -> RenderableType:
    words = format_bytes_of(one.memory_used_bytes, one.memory_total_bytes)
    style = find_style(picture, "accelerator", one.name, *DEVICE_MEMORY)
    return Gauge(_memory_ratio(one), words, 15, style)


def _draw_temperature(one: Accelerator, picture: Picture) -> Text:
    words = format_limited(one.temperature_celsius, one.temperature_limit_celsius, "°C")
    return Text(words, find_style(picture, "accelerator", one.name, *HOT))


def _draw_power(one: Accelerator) -> Text:
    return Text(format_limited(one.power_watts, one.power_limit_watts, "W"))


def _draw_holder(one: Accelerator) -> Text:
    if not one.holders:
        return Text(UNKNOWN, "dim")
    first = one.holders[0]
    name = first.run or first.container or first.name or str(first.pid)
    more = f" +{len(one.holders) - 1}" if len(one.holders) > 1 else ""
    return Text(clean_text(name) + more)


def _trace_utilization(one: Accelerator) -> RenderableType:
    return History(one.utilization_trace, 0.0, 1.0, "green")


def _trace_memory(one: Accelerator) -> RenderableType:
    return History(one.memory_trace, 0.0, 1.0)


def _trace_temperature(one: Accelerator, picture: Picture) -> RenderableType:
    coldest, hottest = TEMPERATURE_SCALE_CELSIUS
    limit = one.temperature_limit_celsius or hottest
    style = find_style(picture, "accelerator", one.name, *HOT)
    return History(one.temperature_trace, coldest, limit, style)


def _trace_power(one: Accelerator) -> RenderableType:
    return History(one.power_trace, 0.0, one.power_limit_watts)


def _explain(one: Accelerator, picture: Picture) -> Text | None:
    """Return why a device has no values, and the age of its last reading; None if it has values."""
    if one.state == "ok":
        return None
    lost = picture.find_troubles("accelerator", one.name, _LOST)
    words = lost[0].remark if lost else one.state.replace("_", " ")
    if one.last_seen is not None:
        words += f", last read {format_age(one.last_seen, picture.time)}"
    return Text(clean_text(f"{words}  {one.model}"), STYLES["bad" if lost else "unknown"])


def _list_notes(one: Accelerator, picture: Picture) -> Iterator[Text]:
    is_explained = False
    for trouble in picture.find_troubles("accelerator", one.name):
        if trouble.alert != _LOST or one.state == "ok":
            yield Text(clean_text(trouble.remark), STYLES[TONES[trouble.severity]])
            is_explained |= one.idle is not None and one.idle.summary in trouble.summary
    if one.idle is not None and not is_explained:
        yield Text(clean_text(f"idle: {one.idle.summary}"), "dim")


Placed = tuple[str, Holder]


def list_processes(picture: Picture) -> Rows[Placed]:
    """Return the section that lists the processes that hold accelerator memory."""
    return Rows(
        4,
        (
            Column("PROCESS", lambda one: _show(one[1].name), 16, 34, 99, lambda one: one[1].name),
            Column("PID", _draw_pid, 8, 0, 9, lambda one: one[1].pid, "right"),
            Column("USER", lambda one: _show(one[1].user), 9, 14, 7, lambda one: one[1].user),
            Column("DEVICE", lambda one: _show(one[0]), 7, 0, 8, lambda one: one[0].rjust(9)),
            Column("MEMORY", _draw_held, 9, 0, 9, lambda one: one[1].used_bytes, "right"),
            Column(
                "CONTAINER",
                lambda one: _show(one[1].container),
                14,
                40,
                6,
                lambda one: one[1].container,
            ),
            Column("RUN", lambda one: _show(one[1].run), 14, 40, 5, lambda one: one[1].run),
            Column("UTIL", _draw_share, 5, 0, 4, lambda one: one[1].utilization_ratio, "right"),
            Column("JOB", lambda one: _show(one[1].slurm_job or one[1].pod), 8, 36, 3),
        ),
        [(device.name, held) for device in picture.accelerators for held in device.holders],
        empty="none holds memory of an accelerator",
        most_wanted=0,
    )


def _show(name: str | None) -> Text:
    return Text(UNKNOWN, "dim") if name is None else Text(clean_text(name))


def _draw_pid(one: Placed) -> Text:
    return Text(str(one[1].pid))


def _draw_held(one: Placed) -> Text:
    return Text(format_bytes(one[1].used_bytes))


def _draw_share(one: Placed) -> Text:
    return Text(format_percent(one[1].utilization_ratio))
