"""The accelerators: what they do, what they hold, how warm they are."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Accelerator, Picture
from trainvitals.top.bars import draw_gauge, draw_trace
from trainvitals.top.table import Column, Table
from trainvitals.top.words import (
    UNKNOWN,
    make_harmless,
    write_ago,
    write_limited,
    write_percent,
    write_use,
)

_WARM_CELSIUS = LIMITS["accelerator_temperature_near_limit:headroom_celsius"]
_HOT_CELSIUS = LIMITS["gpu_high_temperature:headroom_celsius"]
_ASSUMED_LIMIT_CELSIUS = LIMITS["accelerator_temperature_near_limit:assumed_slowdown_celsius"]
_FULL_RATIO, _OVERFULL_RATIO = LIMITS["high_memory_usage:ratio"], 0.97
_READABLE = ("ok", "unsupported")
# The others are how a card ought to be: idle, or held by the limit that it was given.
_THROTTLES = {
    "hw_power_brake": "power brake",
    "hw_thermal": "heat (hardware)",
    "sw_thermal": "heat (driver)",
    "reliability": "reliability",
    "board_limit": "the board's limit",
    "hw_slowdown": "hardware",
}
_STATES = {
    "lost": "lost: it no longer answers its driver",
    "hung": "hung: its driver does not come back from a call",
    "resetting": "is being reset",
    "no_driver": "no driver answers",
    "unsupported": "its driver tells nothing of it",
}


def list_accelerators(picture: Picture) -> Table[Accelerator]:
    """Make the section."""
    now = picture.time
    return Table(
        1,
        "accelerator",
        (
            Column("DEVICE", _draw_device, 8, 9, 99, lambda one: f"{one.kind}{one.device:9}"),
            Column("UTIL", _draw_utilization, 12, 18, 9, _utilization),
            Column("MEMORY", _draw_memory, 20, 26, 8, memory_ratio),
            Column(
                "TEMP", _draw_temperature, 8, 0, 7, lambda one: one.temperature_celsius, "right"
            ),
            Column("POWER", _draw_power, 9, 0, 6, lambda one: one.power_watts, "right"),
            Column("UTIL 15 MIN", _trace_utilization, 13, 45, 5),
            Column("HELD BY", _draw_holder, 16, 24, 4),
            Column("MEMORY 15 MIN", _trace_memory, 15, 30, 1),
            Column("TEMP 15 MIN", _trace_temperature, 15, 30, 3),
            Column("POWER 15 MIN", _trace_power, 15, 30, 2),
            Column("MODEL", lambda one, _: Text(make_harmless(one.model)), 20, 28, 2),
        ),
        picture.accelerators,
        notes=_take_notes,
        explain=lambda one: _explain(one, now),
        has_trouble=is_in_trouble,
        empty=_say_empty(picture),
        most_wanted=2,
    )


def name_device(one: Accelerator) -> str:
    """Name a device as runs and containers do: `gpu0`."""
    return f"{one.kind}{one.device}"


def is_in_trouble(one: Accelerator) -> bool:
    """Tell whether a person should look at it."""
    is_warm = rate_temperature(one) in {"yellow", "bold red"}
    return is_gone(one) or is_warm or bool(find_throttles(one) or one.xids or is_over_limit(one))


def is_gone(one: Accelerator) -> bool:
    """Tell whether it does not answer though it should."""
    return one.state not in _READABLE


def find_throttles(one: Accelerator) -> list[str]:
    """Give what slows it down now and should not."""
    found = [words for reason, words in _THROTTLES.items() if reason in one.throttled]
    # Heat and the power brake are told as a slowdown by hardware too.
    return found if len(found) == 1 else [words for words in found if words != "hardware"]


def is_over_limit(one: Accelerator) -> bool:
    """Tell whether it holds more memory than it may."""
    limit, used = one.memory_limit_bytes, one.memory_used_bytes
    return limit is not None and used is not None and used > limit


def rate_temperature(one: Accelerator) -> str:
    """Give the style of its temperature, by how far it is from its limit."""
    if one.temperature_celsius is None:
        return "dim"
    limit = one.temperature_limit_celsius
    headroom = (_ASSUMED_LIMIT_CELSIUS if limit is None else limit) - one.temperature_celsius
    if headroom <= _HOT_CELSIUS:
        return "bold red"
    return "yellow" if headroom <= _WARM_CELSIUS else "green"


def memory_ratio(one: Accelerator) -> float | None:
    """Give how much of its memory is held."""
    if one.memory_used_bytes is None or not one.memory_total_bytes:
        return None
    return one.memory_used_bytes / one.memory_total_bytes


def _say_empty(picture: Picture) -> str:
    expected = [f"{count} {kind}" for kind, count in picture.accelerators_expected]
    return f"none here, and there should be {', '.join(expected)}" if expected else "none here"


def _utilization(one: Accelerator) -> float | None:
    return None if one.utilization_ratio is None else one.utilization_ratio


def _draw_device(one: Accelerator, _: int) -> Text:
    return Text(name_device(one), "bold red" if is_gone(one) else "")


def _draw_utilization(one: Accelerator, width: int) -> Text:
    words = write_percent(one.utilization_ratio)
    return draw_gauge(one.utilization_ratio, words, width, words_width=4, style="green")


def _draw_memory(one: Accelerator, width: int) -> Text:
    words = write_use(one.memory_used_bytes, one.memory_total_bytes)
    ratio = memory_ratio(one)
    return draw_gauge(ratio, words, width, words_width=12, style=_rate_memory(one, ratio))


def _rate_memory(one: Accelerator, ratio: float | None) -> str:
    if ratio is None:
        return "dim"
    if ratio >= _OVERFULL_RATIO or is_over_limit(one):
        return "bold red"
    return "yellow" if ratio >= _FULL_RATIO else "green"


def _draw_temperature(one: Accelerator, _: int) -> Text:
    style = rate_temperature(one)
    words = write_limited(one.temperature_celsius, one.temperature_limit_celsius, "°C")
    return Text(words, style)


def _draw_power(one: Accelerator, _: int) -> Text:
    return Text(write_limited(one.power_watts, one.power_limit_watts, "W"))


def _draw_holder(one: Accelerator, _: int) -> Text:
    if not one.holders:
        return Text(UNKNOWN, "dim")
    first = one.holders[0]
    name = first.run or first.container or first.name or str(first.pid)
    more = f" +{len(one.holders) - 1}" if len(one.holders) > 1 else ""
    return Text(make_harmless(name) + more)


def _trace_utilization(one: Accelerator, width: int) -> Text:
    return draw_trace(one.utilization_trace, width, low=0.0, high=1.0, style="green")


def _trace_memory(one: Accelerator, width: int) -> Text:
    return draw_trace(one.memory_trace, width, low=0.0, high=1.0)


def _trace_temperature(one: Accelerator, width: int) -> Text:
    limit = one.temperature_limit_celsius or _ASSUMED_LIMIT_CELSIUS
    style = rate_temperature(one)
    return draw_trace(one.temperature_trace, width, low=20.0, high=limit, style=style)


def _trace_power(one: Accelerator, width: int) -> Text:
    known = [value for value in one.power_trace if value is not None]
    limit = one.power_limit_watts or max(known, default=1.0)
    return draw_trace(one.power_trace, width, low=0.0, high=limit)


def _explain(one: Accelerator, now: float) -> Text | None:
    if one.state == "ok":
        return None
    seen = "" if one.last_seen is None else f", last read {write_ago(one.last_seen, now)}"
    words = _STATES.get(one.state, make_harmless(one.state))
    style = "bold red" if is_gone(one) else "dim"
    return Text(f"{words}{seen}  {make_harmless(one.model)}", style)


def _take_notes(one: Accelerator) -> Iterator[Text]:
    throttles = find_throttles(one)
    if throttles:
        yield Text(f"slowed down: {', '.join(throttles)}", "yellow")
    if one.xids:
        codes = ", ".join(
            f"{xid} ({count} times)" if count > 1 else f"{xid}" for xid, count in one.xids
        )
        yield Text(f"Xid {codes}", "bold red")
    if is_over_limit(one):
        words = write_use(one.memory_used_bytes, one.memory_limit_bytes)
        yield Text(f"more memory than allowed: {words}", "bold red")
