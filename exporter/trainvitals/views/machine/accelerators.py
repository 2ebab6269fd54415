"""Derives the state of accelerators and of the processes that hold accelerator memory."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.sources.accelerators.holders import Places
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Measurements,
    Owner,
    ProcessMemory,
)
from trainvitals.sources.accelerators.row import THROTTLE_REASONS
from trainvitals.verdicts.accelerator_faults import has_all_lanes, has_all_links
from trainvitals.verdicts.accelerators import Work, find_temperature_limit
from trainvitals.views.machine.counters import Counters
from trainvitals.views.machine.picture import Accelerator, Holder
from trainvitals.views.machine.traces import Traces

_UTILIZATION, _MEMORY, _TEMPERATURE, _POWER = range(4)
_BUSY, _HW_THERMAL, _SW_THERMAL, _BRAKE = range(4)
_THERMAL_AT = tuple(map(THROTTLE_REASONS.index, ("hw_thermal", "sw_thermal")))
_BRAKE_AT = THROTTLE_REASONS.index("hw_power_brake")
_SPACING_SECONDS, _MOST_MOMENTS = 10.0, 64
_THROTTLE_SECONDS = 300.0
_JUDGED_SECONDS, _SHORTEST_SECONDS = 600.0, 540.0
_NEVER = float("-inf")


class Accelerators:
    """The accelerators of a machine, with their recent history."""

    def __init__(self) -> None:
        self._traces = Traces()
        self._counters: dict[str, Counters] = {}
        # For each device, the last time at which all links were up, and the last time at which all
        # PCIe lanes were in use.
        self._whole: dict[str, tuple[float, float]] = {}

    def note(self, reading: object, time: float) -> None:
        """Add an accelerator reading to the history; a reading of any other type adds a gap."""
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
            self._whole = {uuid: kept for uuid, kept in self._whole.items() if uuid in there}

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
        links, lanes = self._whole.get(uuid, (_NEVER, _NEVER))
        self._whole[uuid] = (
            time if has_all_links(measured) else links,
            time if has_all_lanes(measured) else lanes,
        )
        throttled = measured.throttle_seconds_total
        hardware, driver = (throttled[at] for at in _THERMAL_AT)
        counters.take(time, (measured.busy_seconds_total, hardware, driver, throttled[_BRAKE_AT]))

    def draw(self, reading: AcceleratorsReading, places: Places) -> tuple[Accelerator, ...]:
        """Return all accelerators, ordered by kind and index.

        Args:
            reading: The latest reading, which has already been passed to `note`.
            places: The containers and runs of the processes that hold accelerators.
        """
        devices = sorted(
            reading.devices, key=lambda each: (each.identity.kind, each.identity.index)
        )
        return tuple(self._draw_device(device, reading, places) for device in devices)

    def _draw_device(
        self, device: AcceleratorReading, limits: AcceleratorsReading, places: Places
    ) -> Accelerator:
        identity, measured = device.identity, device.measurements or Measurements()
        read, uuid = self._traces.read, identity.uuid
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
            memory_limit_bytes=limits.memory_limit_bytes,
            temperature_celsius=measured.temperature_core_celsius,
            temperature_limit_celsius=find_temperature_limit(
                measured, limits.temperature_limit_celsius
            ),
            power_watts=measured.power_watts,
            power_limit_watts=measured.power_limit_watts,
            throttled=_name_throttles(measured.throttle_active),
            xids=tuple((each.xid, each.count) for each in device.xids),
            holders=tuple(draw_holder(process, places) for process in device.processes),
            idle=device.idle,
            utilization_trace=read((uuid, _UTILIZATION)),
            memory_trace=read((uuid, _MEMORY)),
            temperature_trace=read((uuid, _TEMPERATURE)),
            power_trace=read((uuid, _POWER)),
        )

    def measure(self, reading: AcceleratorsReading, time: float) -> dict[str, Work]:
        """Return the recent utilization of each accelerator that responds, by accelerator UUID."""
        return {
            device.identity.uuid: self._measure_device(
                device.identity.uuid, device.measurements, time
            )
            for device in reading.devices
            if device.measurements is not None
        }

    def _measure_device(self, uuid: str, measured: Measurements, time: float) -> Work:
        counters = self._counters[uuid]
        links, lanes = (time - at < _JUDGED_SECONDS for at in self._whole[uuid])
        heat = [
            _measure_throttling(counters, measured, column, at)
            for column, at in zip((_HW_THERMAL, _SW_THERMAL), _THERMAL_AT, strict=True)
        ]
        return Work(
            busy_percent=self._measure_busy(uuid, counters),
            heat_ratio=max((ratio for ratio in heat if ratio is not None), default=None),
            brake_ratio=_measure_throttling(counters, measured, _BRAKE, _BRAKE_AT),
            had_all_links=links,
            had_all_lanes=lanes,
        )

    def _measure_busy(self, uuid: str, counters: Counters) -> float | None:
        risen = counters.rise(_BUSY, _JUDGED_SECONDS)
        if risen is not None:
            return 100 * risen[0] / risen[1] if risen[1] >= _SHORTEST_SECONDS else None
        # Not every driver counts busy time. The trace replaces the counter only if the trace has a
        # value in the first of the ten minutes, because the mean over a shorter time does not
        # justify an alert.
        trace = self._traces.read((uuid, _UTILIZATION))[-round(_JUDGED_SECONDS / 10) :]
        known = [point for point in trace if point is not None]
        is_long = bool(trace) and any(point is not None for point in trace[:6])
        return 100 * sum(known) / len(known) if is_long else None


def draw_holder(process: ProcessMemory, places: Places) -> Holder:
    """Return the description of a process that holds accelerator memory."""
    owner, place = process.owner or Owner(), places.find(process)
    return Holder(
        pid=process.pid,
        used_bytes=process.used_bytes,
        name=owner.name,
        user=owner.user,
        container=place.container,
        run=place.run,
        utilization_ratio=process.utilization_ratio,
        compose_service=place.compose_service,
        slurm_job=owner.slurm_job,
        pod=owner.pod,
    )


def _measure_throttling(
    counters: Counters, measured: Measurements, column: int, at: int
) -> float | None:
    if measured.throttle_seconds_total[at] is not None:
        return counters.rate(column, _THROTTLE_SECONDS)
    # Drivers without this counter report only whether the device is throttled now.
    active = measured.throttle_active[at]
    return None if active is None else float(active)


def _name_throttles(active: Sequence[int | None]) -> tuple[str, ...]:
    return tuple(
        reason for reason, is_active in zip(THROTTLE_REASONS, active, strict=True) if is_active
    )


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
