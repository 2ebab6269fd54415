"""Accelerator problems, according to the thresholds of the corresponding alerts.

A verdict depends on the last reading of the device and on `Work`, its history over the past ten
minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Measurements,
)
from trainvitals.units import format_bytes, format_bytes_of, format_percent, format_temperature
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.trouble import Severity, Trouble

_STATES = {
    "lost": "it fell off the bus or vanished",
    "hung": "a call to its driver does not return",
    "resetting": "it needs or undergoes a reset",
    "no_driver": "its driver is not loaded",
}


@dataclass(frozen=True, slots=True)
class Work:
    """The recent utilization of an accelerator.

    Attributes:
        busy_percent: The share of the past 10 minutes in which a kernel ran on the device, 0 to
            100; None until 9 minutes have been sampled.
        heat_ratio: The share of the past 5 minutes in which heat slowed the device down, 0 to 1;
            None if it is unknown.
        brake_ratio: The share of the past 5 minutes in which the power brake slowed the device
            down, 0 to 1; None if it is unknown.
        away_ratio: The share of the past 10 minutes in which the device's runs did not train, 0 to
            1; None if no run is known to use the device.
        has_run: Whether a run is known to use this device alone.
        had_all_links: Whether a reading of the past 10 minutes showed every expected link.
        had_all_lanes: Whether a reading of the past 10 minutes showed every PCIe lane.
        reserve_bytes: The memory in bytes that the allocators of the device's runs have reserved
            but never used.
    """

    busy_percent: float | None = None
    heat_ratio: float | None = None
    brake_ratio: float | None = None
    away_ratio: float | None = None
    has_run: bool = False
    had_all_links: bool = False
    had_all_lanes: bool = False
    reserve_bytes: float = 0.0

    @property
    def training_percent(self) -> float | None:
        """The value of `busy_percent` if time outside of training is counted as busy.

        The value is None if `busy_percent` is None.
        """
        if self.busy_percent is None:
            return None
        return self.busy_percent + 100 * (self.away_ratio or 0.0)


NO_WORK = Work()


def judge_accelerators(
    reading: AcceleratorsReading, work: Mapping[str, Work], thresholds: Thresholds
) -> Iterator[Trouble]:
    """Yield accelerator problems, except the faults that `accelerator_faults` finds.

    Args:
        reading: The reading of the machine's accelerators.
        work: The recent utilization of each device, by UUID.
        thresholds: The thresholds of the alerts, by name.
    """
    yield from judge_count(reading)
    for device in reading.devices:
        if is_lost(device):
            yield blame(
                device.identity,
                "AcceleratorLost",
                device.state.replace("_", " "),
                _STATES[device.state],
            )
        elif device.measurements is not None:
            known = work.get(device.identity.uuid, NO_WORK)
            yield from _judge_device(
                device.identity, device.measurements, known, thresholds, reading
            )
            yield from _judge_use(device, device.measurements, known, thresholds)


def judge_count(reading: AcceleratorsReading) -> Iterator[Trouble]:
    """Yield a problem for each kind of accelerator with fewer devices than expected.

    A known device that does not respond is reported as a separate problem.
    """
    seen = Counter(
        device.identity.kind for device in reading.devices if device.state != "unsupported"
    )
    for kind, expected in reading.expected:
        if seen[kind] < expected:
            yield Trouble(
                "accelerator",
                kind,
                "missing",
                "critical",
                f"{seen[kind]} of {expected} expected {kind}s are there",
                "AcceleratorMissing",
            )


def is_lost(device: AcceleratorReading) -> bool:
    """Return whether a supported device does not respond."""
    return device.state not in ("ok", "unsupported")


def name_device(identity: Identity) -> str:
    """Return the name of a device, such as `gpu0`."""
    return f"{identity.kind}{identity.index}"


def measure_headroom(measured: Measurements, thresholds: Thresholds) -> float | None:
    """Return the difference between the slowdown temperature and the core temperature, in °C.

    The result is negative if the device is hotter than the slowdown temperature. It is None if the
    core temperature is unknown.

    If the card does not report its headroom, the slowdown temperature from the thresholds is used.
    """
    if measured.temperature_headroom_celsius is not None:
        return measured.temperature_headroom_celsius
    if measured.temperature_core_celsius is None:
        return None
    assumed = thresholds["accelerator_temperature_near_limit:assumed_slowdown_celsius"]
    return assumed - measured.temperature_core_celsius


def find_temperature_limit(measured: Measurements, configured: float | None) -> float | None:
    """Return the configured temperature limit or the slowdown temperature, whichever is lower.

    If the card reports its headroom, the slowdown temperature is computed from the headroom. The
    result is None if both temperatures are unknown.
    """
    core, headroom = measured.temperature_core_celsius, measured.temperature_headroom_celsius
    own = measured.temperature_slowdown_celsius
    if core is not None and headroom is not None:
        own = core + headroom
    return min((each for each in (own, configured) if each is not None), default=None)


def is_held(measured: Measurements, thresholds: Thresholds) -> bool:
    """Return whether so much device memory is in use that other programs cannot use the device."""
    used = measure_memory(measured)
    return used is not None and used > thresholds["accelerator_held_idle:memory_ratio"]


def measure_memory(measured: Measurements) -> float | None:
    """Return the share of device memory that is in use, 0 to 1; None if memory use is unknown."""
    used, total = measured.memory_used_bytes, measured.memory_total_bytes
    return None if used is None or not total else used / total


def is_throttled(work: Work, thresholds: Thresholds) -> bool:
    """Return whether throttling by heat or by the power brake exceeds the alert's threshold."""
    by_heat, by_brake = work.heat_ratio, work.brake_ratio
    return (
        by_heat is not None and by_heat > thresholds["accelerator_thermal_throttling:ratio"]
    ) or (by_brake is not None and by_brake > thresholds["accelerator_power_brake:ratio"])


def is_unused(kind: str, measured: Measurements, thresholds: Thresholds) -> bool:
    """Return whether no process uses a device.

    A Gaudi card is also unused if hardly any of its memory is in use.
    """
    share = measure_memory(measured)
    is_bare = share is not None and share < thresholds["hpu_low_utilization:memory_ratio"]
    return measured.processes == 0 or (kind == "hpu" and is_bare)


def is_underused(work: Work, kind: str, thresholds: Thresholds) -> bool | None:
    """Return whether a device is less busy than expected during a run.

    The result is None if the utilization of the device is unknown.
    """
    percent = work.training_percent
    if percent is None:
        return None
    return percent < thresholds[f"{kind}_low_utilization:utilization_percent"]


def blame(
    identity: Identity, alert: str, name: str, summary: str, severity: Severity = "critical"
) -> Trouble:
    """Return a problem whose subject is the device, with the given alert, name and summary."""
    return Trouble("accelerator", name_device(identity), name, severity, summary, alert)


def _judge_device(
    identity: Identity,
    measured: Measurements,
    work: Work,
    thresholds: Thresholds,
    limits: AcceleratorsReading,
) -> Iterator[Trouble]:
    celsius, memory_bytes = limits.temperature_limit_celsius, limits.memory_limit_bytes
    yield from judge_temperature(identity, measured, thresholds, limit=celsius)
    yield from _judge_throttling(identity, work, thresholds)
    yield from _judge_memory(identity, measured, work, thresholds, limit=memory_bytes)


def judge_temperature(
    identity: Identity, measured: Measurements, thresholds: Thresholds, *, limit: float | None
) -> Iterator[Trouble]:
    """Yield the problems of a device that is near or above a temperature limit.

    Args:
        identity: The identity of the device.
        measured: The measurements of the device.
        thresholds: The thresholds of the alerts, by name.
        limit: The temperature limit that is configured for this machine, in degrees Celsius; None
            if no limit is configured.
    """
    kind = identity.kind
    celsius = measured.temperature_core_celsius
    if limit is not None and celsius is not None and celsius > limit:
        yield blame(
            identity,
            "AcceleratorTemperatureOverLimit",
            "above its temperature limit",
            f"{format_temperature(celsius)}, above the limit of {format_temperature(limit)}",
        )
    headroom = measure_headroom(measured, thresholds)
    if headroom is None:
        return
    now = "" if celsius is None else f"{format_temperature(celsius)}, "
    how = f"{format_temperature(abs(headroom))} {'below' if headroom >= 0 else 'above'}"
    summary = f"{now}{how} the temperature at which it slows itself down"
    if headroom < thresholds[f"{kind}_high_temperature:headroom_celsius"]:
        yield blame(identity, f"{kind.upper()}HighTemperature", "too hot", summary)
    if headroom < thresholds["accelerator_temperature_near_limit:headroom_celsius"]:
        alert = "AcceleratorTemperatureNearLimit"
        yield blame(identity, alert, "close to its thermal limit", summary, "warning")


def _judge_throttling(identity: Identity, work: Work, thresholds: Thresholds) -> Iterator[Trouble]:
    heat, brake = work.heat_ratio, work.brake_ratio
    if heat is not None and heat > thresholds["accelerator_thermal_throttling:ratio"]:
        yield blame(
            identity,
            "AcceleratorThermalThrottling",
            "slowed by heat",
            f"heat slowed it down in {format_percent(heat)} of the last 5 minutes",
            "warning",
        )
    if brake is not None and brake > thresholds["accelerator_power_brake:ratio"]:
        yield blame(
            identity,
            "AcceleratorPowerBrake",
            "slowed by the power brake",
            f"the power brake slowed it down in {format_percent(brake)} of the last 5 minutes",
        )


def _judge_memory(
    identity: Identity,
    measured: Measurements,
    work: Work,
    thresholds: Thresholds,
    *,
    limit: int | None,
) -> Iterator[Trouble]:
    used, total = measured.memory_used_bytes, measured.memory_total_bytes
    if used is None:
        return
    if total and (used - work.reserve_bytes) / total > thresholds["high_memory_usage:ratio"]:
        yield blame(
            identity,
            "HighMemoryUsage",
            "memory nearly full",
            f"{format_bytes_of(used, total)} of its memory are in use",
            "warning",
        )
    if limit is not None and used > limit:
        yield blame(
            identity,
            "AcceleratorMemoryOverLimit",
            "above its memory limit",
            f"{format_bytes(used)} of memory are in use, above the limit of {format_bytes(limit)}",
            "critical",
        )


def _judge_use(
    device: AcceleratorReading, measured: Measurements, work: Work, thresholds: Thresholds
) -> Iterator[Trouble]:
    identity, kind = device.identity, device.identity.kind
    busy, computed = work.busy_percent, work.training_percent
    if busy is None or computed is None:
        return
    why = "" if device.idle is None else f"; {device.idle.summary}"
    is_idle = busy < thresholds["accelerator_held_idle:utilization_percent"]
    if is_idle and is_held(measured, thresholds) and measured.processes != 0:
        share = format_percent(measure_memory(measured))
        yield blame(
            identity,
            "AcceleratorHeldIdle",
            "held but idle",
            f"{share} of its memory are held, and nothing has run for 10 minutes{why}",
            "info",
        )
    if not is_underused(work, kind, thresholds) or is_unused(kind, measured, thresholds):
        return
    # A GPU that no process uses, or an idle GPU that no run uses, does not delay a run.
    if kind == "gpu" and (not measured.processes or (is_idle and not work.has_run)):
        return
    yield blame(
        identity,
        f"{kind.upper()}LowUtilization",
        "underused",
        f"it computed {format_percent(computed / 100)} of the last 10 minutes{why}",
        "warning",
    )
