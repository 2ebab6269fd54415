"""Accelerators, from the reading of the collector `accelerator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.overview.counters import Counters
from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Accelerator, Holder
from trainvitals.overview.traces import Traces
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Measurements,
    ProcessMemory,
)
from trainvitals.sources.accelerators.row import THROTTLE_REASONS

_UTILIZATION, _MEMORY, _TEMPERATURE, _POWER = range(4)
_BUSY, _HW_THERMAL, _SW_THERMAL, _BRAKE = range(4)
_THERMAL_AT = tuple(map(THROTTLE_REASONS.index, ("hw_thermal", "sw_thermal")))
_BRAKE_AT = THROTTLE_REASONS.index("hw_power_brake")
_SPACING_SECONDS, _MOST_MOMENTS = 10.0, 64
_THROTTLE_SECONDS = 60.0
_JUDGED_SECONDS, _SHORTEST_SECONDS = 600.0, 540.0

DescribeHolder = Callable[[ProcessMemory], Holder]


@dataclass(frozen=True, slots=True)
class Work:
    """How an accelerator worked of late, for judging the runs on it.

    Attributes:
        kind: `gpu` or `hpu`.
        busy_percent: Share of the past 10 minutes in which something ran; None before 9 of them
            were seen.
        is_throttled: It lost more time to heat or the power brake than its alerts let pass.
        is_unused: Nobody computes on it.
    """

    kind: str
    busy_percent: float | None
    is_throttled: bool
    is_unused: bool


class Accelerators:
    """Remembers the past of the accelerators and draws them."""

    def __init__(self) -> None:
        self._traces = Traces()
        self._counters: dict[str, Counters] = {}

    def note(self, reading: object, time: float) -> None:
        """Take up a reading; what is no reading of accelerators is a gap in their past."""
        traces = self._traces
        traces.advance(time)
        if not isinstance(reading, AcceleratorsReading):
            traces.add_gaps()
            return
        for device in reading.devices:
            self._note_device(device, time)
        if len(self._counters) > len(reading.devices):
            there = {device.identity.uuid for device in reading.devices}
            self._counters = {uuid: kept for uuid, kept in self._counters.items() if uuid in there}

    def _note_device(self, device: AcceleratorReading, time: float) -> None:
        uuid, measured, add = device.identity.uuid, device.measurements, self._traces.add
        if measured is None:
            for number in (_UTILIZATION, _MEMORY, _TEMPERATURE, _POWER):
                add((uuid, number), None)
            return
        add((uuid, _UTILIZATION), measured.utilization_ratio)
        add((uuid, _MEMORY), _share(measured.memory_used_bytes, measured.memory_total_bytes))
        add((uuid, _TEMPERATURE), measured.temperature_core_celsius)
        add((uuid, _POWER), measured.power_watts)
        counters = self._counters.get(uuid)
        if counters is None:
            counters = Counters(spacing_seconds=_SPACING_SECONDS, most=_MOST_MOMENTS)
            self._counters[uuid] = counters
        throttled = measured.throttle_seconds_total
        hardware, driver = (throttled[at] for at in _THERMAL_AT)
        counters.take(time, (measured.busy_seconds_total, hardware, driver, throttled[_BRAKE_AT]))

    def draw(
        self, reading: AcceleratorsReading, describe: DescribeHolder
    ) -> tuple[Accelerator, ...]:
        """Draw every accelerator, by kind and index.

        Args:
            reading: What was read just now, and noted.
            describe: Tells who a process is that holds memory.
        """
        limit = reading.memory_limit_bytes
        devices = sorted(
            reading.devices, key=lambda each: (each.identity.kind, each.identity.index)
        )
        return tuple(self._draw_device(device, limit, describe) for device in devices)

    def _draw_device(
        self, device: AcceleratorReading, limit: int | None, describe: DescribeHolder
    ) -> Accelerator:
        identity, measured = device.identity, device.measurements or Measurements()
        tell, uuid = self._traces.tell, identity.uuid
        return Accelerator(
            kind=identity.kind,
            device=identity.index,
            uuid=uuid,
            model=identity.model,
            driver=identity.driver,
            state=device.state,
            last_seen=device.last_seen_timestamp_seconds,
            utilization_ratio=measured.utilization_ratio,
            memory_used_bytes=measured.memory_used_bytes,
            memory_total_bytes=measured.memory_total_bytes,
            memory_limit_bytes=limit,
            temperature_celsius=measured.temperature_core_celsius,
            temperature_limit_celsius=_find_temperature_limit(measured),
            power_watts=measured.power_watts,
            power_limit_watts=measured.power_limit_watts,
            throttled=_name_throttles(measured.throttle_active),
            xids=tuple((each.xid, each.count) for each in device.xids),
            holders=tuple(describe(process) for process in device.processes),
            utilization_trace=tell((uuid, _UTILIZATION)),
            memory_trace=tell((uuid, _MEMORY)),
            temperature_trace=tell((uuid, _TEMPERATURE)),
            power_trace=tell((uuid, _POWER)),
        )

    def judge(self, reading: AcceleratorsReading) -> Mapping[str, Work]:
        """Tell how each accelerator that answers worked of late, by UUID."""
        return {
            device.identity.uuid: self._judge_device(device, device.measurements)
            for device in reading.devices
            if device.measurements is not None
        }

    def _judge_device(self, device: AcceleratorReading, measured: Measurements) -> Work:
        counters = self._counters[device.identity.uuid]
        share = _share(measured.memory_used_bytes, measured.memory_total_bytes)
        least = LIMITS["hpu_low_utilization:memory_ratio"]
        is_bare = device.identity.kind == "hpu" and share is not None and share < least
        return Work(
            kind=device.identity.kind,
            busy_percent=self._measure_busy(device.identity.uuid, counters),
            is_throttled=_is_throttled(counters, measured),
            is_unused=measured.processes == 0 or is_bare,
        )

    def _measure_busy(self, uuid: str, counters: Counters) -> float | None:
        risen = counters.rise(_BUSY, _JUDGED_SECONDS)
        if risen is not None:
            return 100 * risen[0] / risen[1] if risen[1] >= _SHORTEST_SECONDS else None
        trace = self._traces.tell((uuid, _UTILIZATION))[-round(_JUDGED_SECONDS / 10) :]
        known = [point for point in trace if point is not None]
        is_long = bool(trace) and any(point is not None for point in trace[:6])
        return 100 * sum(known) / len(known) if is_long else None


def _is_throttled(counters: Counters, measured: Measurements) -> bool:
    if measured.throttle_seconds_total[_THERMAL_AT[0]] is None:
        # The driver does not count, so that what it says of this moment has to do.
        return any(measured.throttle_active[at] == 1 for at in (*_THERMAL_AT, _BRAKE_AT))
    by_heat = LIMITS["accelerator_thermal_throttling:ratio"]
    by_brake = LIMITS["accelerator_power_brake:ratio"]
    return any(
        rate > limit
        for column, limit in ((_HW_THERMAL, by_heat), (_SW_THERMAL, by_heat), (_BRAKE, by_brake))
        if (rate := counters.rate(column, _THROTTLE_SECONDS)) is not None
    )


def _find_temperature_limit(measured: Measurements) -> float | None:
    if measured.temperature_slowdown_celsius is not None:
        return measured.temperature_slowdown_celsius
    if None in (measured.temperature_core_celsius, measured.temperature_headroom_celsius):
        return None
    return (measured.temperature_core_celsius or 0) + (measured.temperature_headroom_celsius or 0)


def _name_throttles(active: Sequence[int | None]) -> tuple[str, ...]:
    return tuple(
        reason for reason, is_active in zip(THROTTLE_REASONS, active, strict=True) if is_active
    )


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
