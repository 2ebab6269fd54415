"""The accelerators on the live page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Accelerator, Holder, Picture, Tone
from trainvitals.web.live import quantities as write
from trainvitals.web.live.drawing import sparkline
from trainvitals.web.live.markup import DOT, anchor, chip, figure, more, name, section, text

MOST_HOLDERS = 4

_COLDEST_CELSIUS = 20.0
_HEADROOM = 1.05
_KINDS = {"gpu": "GPU", "hpu": "HPU"}
_STATES = {"no_driver": "no driver"}
_STATE_TONES: dict[str, Tone] = {
    "ok": "good",
    "lost": "bad",
    "hung": "bad",
    "resetting": "warning",
    "no_driver": "warning",
    "unsupported": "unknown",
}
# What is worth a word; the power limit of a busy card is how it is meant to be.
_THROTTLES = {
    "hw_power_brake": "power brake",
    "hw_thermal": "slowed by heat (hardware)",
    "sw_thermal": "slowed by heat (driver)",
    "reliability": "slowed for reliability",
    "board_limit": "slowed by the board's limit",
    "hw_slowdown": "slowed by hardware",
}
_HEAD = """<li class="row head" aria-hidden="true"><span>device</span><span>utilization</span>\
<span>memory</span><span>temperature</span><span>power</span><span>held by</span></li>"""

_degrees = partial(write.amount, unit="\N{DEGREE SIGN}C")
_watts = partial(write.amount, unit="W")


def write_accelerators(picture: Picture) -> str:
    """Write the section; empty where there are none and none are expected."""
    devices = picture.accelerators
    if not devices and not picture.accelerators_expected:
        return ""
    is_mixed = len({each.model for each in devices}) > 1
    rows = "".join(_write_device(device, picture.time, is_mixed=is_mixed) for device in devices)
    body = f'<ol class="rows devices">{_HEAD}{rows}</ol>' if devices else ""
    return section("accelerators", "Accelerators", _count(picture), (body,))


def find_missing(picture: Picture) -> Iterator[str]:
    """Say of each kind how many are missing of those that should be there, as plain text."""
    for kind, expected in picture.accelerators_expected:
        up = sum(each.kind == kind and each.state == "ok" for each in picture.accelerators)
        if up < expected:
            yield f"{up} of {expected} expected {_KINDS.get(kind, kind)}s answer"


def _count(picture: Picture) -> str:
    missing = list(find_missing(picture))
    alarm = f" {chip('; '.join(missing), 'bad')}" if missing else ""
    models = {each.model for each in picture.accelerators}
    count = len(picture.accelerators)
    what = f"\N{MULTIPLICATION SIGN} {name(models.pop())}" if len(models) == 1 else "devices"
    return f"{count} {what}{alarm}"


def label_device(device: Accelerator) -> str:
    """Name a device as people do, plain text: `GPU 3`."""
    return f"{_KINDS.get(device.kind, device.kind)} {device.device}"


def anchor_device(device: Accelerator) -> str:
    """Give the `id` of a device's row."""
    return anchor(device.kind, device.uuid)


def tell_troubles(device: Accelerator) -> list[tuple[str, Tone]]:
    """Say what is wrong with a device that answers, as plain text."""
    return [
        *_tell_xids(device),
        *_tell_temperature(device),
        *_tell_throttles(device),
        *_tell_memory(device),
    ]


def _tell_xids(device: Accelerator) -> Iterator[tuple[str, Tone]]:
    for xid, count in device.xids:
        yield f"Xid {xid} \N{MULTIPLICATION SIGN} {count}", "bad"


def _tell_throttles(device: Accelerator) -> Iterator[tuple[str, Tone]]:
    reasons = [reason for reason in _THROTTLES if reason in device.throttled]
    # Heat and the power brake are told as a slowdown by hardware too.
    if reasons[-1:] == ["hw_slowdown"] and len(reasons) > 1:
        del reasons[-1]
    for reason in reasons:
        yield _THROTTLES[reason], "bad" if reason == "hw_power_brake" else "warning"


def _tell_temperature(device: Accelerator) -> Iterator[tuple[str, Tone]]:
    tone = _judge_temperature(device)
    if tone in ("warning", "bad"):
        yield f"{_degrees(device.temperature_celsius)}, close to its limit", tone


def _tell_memory(device: Accelerator) -> Iterator[tuple[str, Tone]]:
    used, limit = device.memory_used_bytes, device.memory_limit_bytes
    if used is not None and limit is not None and used > limit:
        yield "memory above the limit set for it", "warning"


def _judge_temperature(device: Accelerator) -> Tone:
    """Judge a temperature by the limits of the alerts."""
    if device.temperature_celsius is None:
        return "unknown"
    assumed = LIMITS["accelerator_temperature_near_limit:assumed_slowdown_celsius"]
    headroom = (device.temperature_limit_celsius or assumed) - device.temperature_celsius
    if headroom <= LIMITS["gpu_high_temperature:headroom_celsius"]:
        return "bad"
    near = LIMITS["accelerator_temperature_near_limit:headroom_celsius"]
    return "warning" if headroom <= near else "good"


def _write_device(device: Accelerator, now: float, *, is_mixed: bool) -> str:
    label = label_device(device)
    model = f'<p class="about">{name(device.model)}</p>' if is_mixed else ""
    state = _write_state(device, now)
    cells = (
        "".join(_write_cells(device, label))
        if device.state == "ok" or any(device.utilization_trace)
        else ""
    )
    return (
        f'<li class="row" id="{anchor_device(device)}"><div class="who"><h3>{text(label)}</h3>'
        f"{model}{state}</div><dl>{cells}</dl></li>"
    )


def _write_state(device: Accelerator, now: float) -> str:
    if device.state != "ok":
        words = _STATES.get(device.state, device.state)
        seen = "" if device.last_seen is None else f" last seen {write.ago(device.last_seen, now)}"
        return f'<p class="state">{chip(words, _STATE_TONES.get(device.state, "bad"))}<small>{seen}</small></p>'
    troubles = " ".join(chip(words, tone) for words, tone in tell_troubles(device))
    return f'<p class="state">{troubles}</p>' if troubles else ""


def _write_cells(device: Accelerator, label: str) -> Iterator[str]:
    yield figure(
        "utilization",
        _value(write.percent(device.utilization_ratio))
        + sparkline(
            device.utilization_trace, f"{label} utilization", write.percent, low=0.0, high=1.0
        ),
    )
    yield figure("memory", _write_memory(device, label), kind=_judge_memory(device))
    yield figure("temperature", _write_temperature(device, label), kind=_judge_temperature(device))
    yield figure("power", _write_power(device, label))
    yield figure("held by", _write_holders(device.holders), kind="holders")


def _write_memory(device: Accelerator, label: str) -> str:
    total, limit = device.memory_total_bytes, device.memory_limit_bytes
    share = limit / total if limit and total else None
    value = _value(write.bytes_of(device.memory_used_bytes, total))
    return value + sparkline(
        device.memory_trace, f"{label} memory", write.percent, low=0.0, high=1.0, limit=share
    )


def _judge_memory(device: Accelerator) -> Tone:
    used, limit = device.memory_used_bytes, device.memory_limit_bytes
    total = device.memory_total_bytes
    if used is None or not total:
        return "unknown"
    if limit is not None and used > limit:
        return "warning"
    return "warning" if used / total > LIMITS["high_memory_usage:ratio"] else "good"


def _write_temperature(device: Accelerator, label: str) -> str:
    limit = device.temperature_limit_celsius
    highest = limit or LIMITS["accelerator_temperature_near_limit:assumed_slowdown_celsius"]
    return _value(_degrees(device.temperature_celsius)) + sparkline(
        device.temperature_trace,
        f"{label} temperature",
        _degrees,
        low=_COLDEST_CELSIUS,
        high=highest * _HEADROOM,
        limit=limit,
    )


def _write_power(device: Accelerator, label: str) -> str:
    limit = device.power_limit_watts
    known = [point for point in device.power_trace if point is not None]
    value = _watts(device.power_watts)
    if limit and device.power_watts is not None:
        value = f"{device.power_watts:,.0f}<small> / {_watts(limit)}</small>"
    return _value(value) + sparkline(
        device.power_trace,
        f"{label} power",
        _watts,
        low=0.0,
        high=_HEADROOM * max([limit or 0.0, *known, 1.0]),
        limit=limit,
    )


def _write_holders(holders: tuple[Holder, ...]) -> str:
    if not holders:
        return write.UNKNOWN
    items = "".join(f"<li>{_write_holder(holder)}</li>" for holder in holders[:MOST_HOLDERS])
    left = more(len(holders) - MOST_HOLDERS, "processes")
    return f"<ul>{items}</ul>{left}"


def _write_holder(holder: Holder) -> str:
    who = name(holder.run or holder.name or f"PID {holder.pid}")
    known = (
        name(holder.user) if holder.user else "",
        f"in {name(holder.container)}" if holder.container else "",
        f"PID {holder.pid}" if holder.run or holder.name else "",
        write.size(holder.used_bytes),
    )
    return f"{who}<small> {DOT.join(part for part in known if part)}</small>"


def _value(html: str) -> str:
    return f'<span class="value">{html}</span>'
