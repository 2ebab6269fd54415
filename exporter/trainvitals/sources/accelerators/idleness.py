"""Finds devices that processes hold but do not use, and determines why each device is idle.

Activity is read only for processes on devices that are currently quiet, and for at most 32
processes in each reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Idleness,
    Measurements,
)
from trainvitals.sources.files import Roots
from trainvitals.sources.host.activity import ActivitySource, Surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:  # it imports this package
    from trainvitals.sources.runs.reading import RunsReading

_MOST_PROCESSES = 32
_SHORTEST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that define an idle device.

    Attributes:
        utilization_percent: The utilization below which a device is quiet, in percent.
        seconds: The time for which a device must be quiet to be idle, in seconds.
        memory_ratio: The share of used memory above which a device is held, even if no process on
            the device is known.
    """

    utilization_percent: float
    seconds: float
    memory_ratio: float


@dataclass(frozen=True, slots=True)
class IdleDevice:
    """A device that is idle although processes hold it.

    Attributes:
        reading: The reading of the device.
        busy: For each process on a busy device, one such device, by PID.
        surroundings: The activity of the processes on quiet devices, by PID.
        runs: The runs on this machine; None if the runs are unknown.
    """

    reading: AcceleratorReading
    busy: Mapping[int, AcceleratorReading]
    surroundings: Mapping[int, Surroundings]
    runs: RunsReading | None = None


# A function that returns why a device is idle, such as `trainvitals.verdicts.idle.judge_idle`.
Judge = Callable[[IdleDevice], Idleness]


@dataclass(frozen=True, slots=True)
class _Past:
    time: float
    busy_seconds: float | None
    quiet_since: float | None


class IdleWatch:
    """Finds the idle devices in successive readings.

    Args:
        judge: A function that returns why a device is idle.
        read_limits: A function that returns the limits that define an idle device.
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns a monotonic time in seconds.
    """

    def __init__(
        self,
        judge: Judge,
        read_limits: Callable[[], Limits],
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._judge = judge
        self._read_limits = read_limits
        self._clock = clock
        self._activities = ActivitySource(roots, clock=clock)
        self._past: dict[str, _Past] = {}

    def judge(self, reading: AcceleratorsReading, runs: RunsReading | None) -> AcceleratorsReading:
        """Return the reading with a reason for each idle device.

        Args:
            reading: The reading of the accelerators; it must be newer than the previous call's
                reading.
            runs: The runs on this machine; None if the runs are unknown.
        """
        if not any(device.processes or _measure_memory(device) for device in reading.devices):
            self._past = {}
            return reading
        limits, now = self._read_limits(), self._clock()
        held = [each for each in reading.devices if _is_held(each, limits)]
        self._past = {each.identity.uuid: self._note(each, limits, now) for each in held}
        quiet = [each for each in held if self._find_start(each) is not None]
        surroundings = self._activities.read(_choose_pids(quiet))
        busy = {one.pid: each for each in held if each not in quiet for one in each.processes}
        reasons = {
            each.identity.uuid: self._judge(IdleDevice(each, busy, surroundings, runs))
            for each in quiet
            if now - (self._find_start(each) or 0.0) >= limits.seconds
            and all(one.pid in surroundings for one in each.processes[:1])
        }
        devices = tuple(
            replace(each, idle=reasons.get(each.identity.uuid)) for each in reading.devices
        )
        return replace(reading, devices=devices)

    def _find_start(self, device: AcceleratorReading) -> float | None:
        return self._past[device.identity.uuid].quiet_since

    def _note(self, device: AcceleratorReading, limits: Limits, now: float) -> _Past:
        """Return a device's new state, which contains the time when the device became quiet."""
        measured = device.measurements or Measurements()
        before = self._past.get(device.identity.uuid)
        at, busy, ratio = now, measured.busy_seconds_total, measured.utilization_ratio
        percents = [] if ratio is None else [100 * ratio]
        if before is not None and now - before.time < _SHORTEST_SECONDS:
            at, busy = before.time, before.busy_seconds
        elif before is not None and busy is not None and before.busy_seconds is not None:
            percents.append(100 * (busy - before.busy_seconds) / (now - before.time))
        is_quiet = bool(percents) and max(percents) < limits.utilization_percent
        since = now if before is None or before.quiet_since is None else before.quiet_since
        return _Past(at, busy, since if is_quiet else None)


def _is_held(device: AcceleratorReading, limits: Limits) -> bool:
    if device.measurements is None:
        return False
    return bool(device.processes) or _measure_memory(device) > limits.memory_ratio


def _measure_memory(device: AcceleratorReading) -> float:
    measured = device.measurements or Measurements()
    return (measured.memory_used_bytes or 0) / (measured.memory_total_bytes or 1)


def _choose_pids(devices: Sequence[AcceleratorReading]) -> list[int]:
    """Return at most 32 PIDs to read.

    The process that uses the most memory on each device comes first.
    """
    ranked = sorted(
        ((place, one.pid) for each in devices for place, one in enumerate(each.processes)),
        key=lambda pair: pair[0],
    )
    return list(dict.fromkeys(pid for _, pid in ranked))[:_MOST_PROCESSES]
