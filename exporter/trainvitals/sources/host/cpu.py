"""The host's processors, read from `/proc/stat`, `/proc/loadavg` and the topology in `/sys`."""

from __future__ import annotations

import operator
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots, not_understood, read_small
from trainvitals.sources.host.frequency import Frequencies, FrequencySource

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_IDLE = 3
_IOWAIT = 4
_MOST_TICKS = 1 << 63
_LONGEST_LOAD = 32

# The minimum time over which `utilization_percent` is averaged. A tick is 10 ms, so an average over
# a shorter time would be coarse. Several readings are stored, because two scrapers with different
# intervals need different readings for the comparison.
_WINDOW_SECONDS = 1.0
_KEEP_EVERY_SECONDS = 0.25
_KEPT_READINGS = 8


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The state of the host's processors.

    Attributes:
        mode_seconds: The time that all cores together spent in each mode since boot, in the order
            of `MODES`; the values never decrease.
        cores: The numbers of the online cores, at most `max_cores`.
        core_busy_seconds: For each core in `cores`, the time since boot in which the core was
            neither idle nor in iowait.
        dropped: The number of online cores omitted from `cores` and `core_busy_seconds`.
        logical: The number of online cores, including hyper-threads.
        physical: The number of physical cores; None if `/sys` does not report the topology.
        utilization_percent: The share of the cores' time that was neither idle nor iowait, 0 to
            100. The period begins at the newest stored reading that is at least 1 s old; None if no
            stored reading is that old, or if the kernel has counted no time since.
        io_wait_ratio: The share of the cores' time spent idle while I/O was outstanding, 0 to 1,
            over the period of `utilization_percent`; None if `utilization_percent` is None.
        frequencies: The cores' clock frequencies; None if the kernel does not report frequencies.
        load1: The load average over about 1 minute; None if `/proc/loadavg` cannot be read.
        load5: The load average over about 5 minutes; None if `/proc/loadavg` cannot be read.
        load15: The load average over about 15 minutes; None if `/proc/loadavg` cannot be read.
        processes_running: The number of tasks that are running or ready to run.
        processes_blocked: The number of tasks that are waiting for I/O.
    """

    mode_seconds: tuple[float, ...]
    cores: tuple[str, ...]
    core_busy_seconds: tuple[float, ...]
    dropped: int
    logical: int
    physical: int | None
    utilization_percent: float | None
    io_wait_ratio: float | None
    frequencies: Frequencies | None
    load1: float | None
    load5: float | None
    load15: float | None
    processes_running: int
    processes_blocked: int


@dataclass(frozen=True, slots=True)
class _Stat:
    mode_ticks: tuple[int, ...]
    online: tuple[bytes, ...]
    busy_ticks: tuple[int, ...]
    processes_running: int
    processes_blocked: int


@dataclass(frozen=True, slots=True)
class _Kept:
    time: float
    mode_ticks: tuple[int, ...]


class CpuSource:
    """Reads the host's processors.

    Args:
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns a monotonic time in seconds.
        max_cores: The maximum number of cores to report individually.
        ticks_per_second: The number of clock ticks per second; `/proc/stat` counts time in ticks.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        max_cores: int = 64,
        ticks_per_second: int = os.sysconf("SC_CLK_TCK"),
    ) -> None:
        self._stat = KeptFile(roots.procfs / "stat", single=True)
        self._loadavg = KeptFile(roots.procfs / "loadavg", single=True)
        self._cpus = roots.sysfs / "devices/system/cpu"
        self._frequencies = FrequencySource(roots=roots)
        self._clock = clock
        self._max_cores = max_cores
        self._ticks_per_second = ticks_per_second
        self._mode_ticks: tuple[int, ...] = (0,) * len(MODES)
        self._kept: deque[_Kept] = deque(maxlen=_KEPT_READINGS)
        self._online: tuple[bytes, ...] = ()
        self._cores: tuple[str, ...] = ()
        self._physical: int | None = None

    def read(self) -> CpuReading:
        """Read the current state of the host's processors.

        Raises:
            SourceError: `/proc/stat` does not exist, cannot be read, or is invalid.
        """
        stat = self._read_stat()
        load1, load5, load15 = self._read_loadavg()
        if stat.online != self._online:
            self._meet(stat.online)
        # The kernel's idle and iowait times sometimes decrease, but a counter must not decrease.
        self._mode_ticks = tuple(map(max, self._mode_ticks, stat.mode_ticks))
        utilization_percent, io_wait_ratio = self._compare(self._clock())
        unit = self._ticks_per_second
        return CpuReading(
            mode_seconds=tuple([ticks / unit for ticks in self._mode_ticks]),
            cores=self._cores,
            core_busy_seconds=tuple([ticks / unit for ticks in stat.busy_ticks]),
            dropped=len(stat.online) - len(self._cores),
            logical=len(stat.online),
            physical=self._physical,
            utilization_percent=utilization_percent,
            io_wait_ratio=io_wait_ratio,
            frequencies=self._frequencies.read(),
            load1=load1,
            load5=load5,
            load15=load15,
            processes_running=stat.processes_running,
            processes_blocked=stat.processes_blocked,
        )

    def close(self) -> None:
        """Close the source's open files in `/proc`."""
        self._stat.close()
        self._loadavg.close()
        self._frequencies.forget()

    def _read_stat(self) -> _Stat:
        data = self._stat.require()
        try:
            return _parse_stat(data, self._max_cores)
        except ValueError as error:
            raise not_understood(self._stat.path) from error

    def _read_loadavg(self) -> tuple[float | None, float | None, float | None]:
        """Return the three load averages; all are None if the file cannot be read or parsed."""
        try:
            data = self._loadavg.read() or b""
            load1, load5, load15 = [_hundredths(load) for load in data.split(None, 3)[:3]]
        except (SourceError, ValueError):
            return None, None, None
        return load1, load5, load15

    def _meet(self, online: tuple[bytes, ...]) -> None:
        self._online = online
        numbers = [name.decode(errors="replace")[3:] for name in online]
        self._cores = tuple(numbers[: self._max_cores])
        self._physical = _count_physical(self._cpus, numbers)
        self._frequencies.forget()

    def _compare(self, now: float) -> tuple[float | None, float | None]:
        ticks = self._mode_ticks
        kept = self._kept
        before = next((one for one in reversed(kept) if now - one.time >= _WINDOW_SECONDS), None)
        if not kept or now - kept[-1].time >= _KEEP_EVERY_SECONDS:
            kept.append(_Kept(now, ticks))
        if before is None:
            return None, None
        spent = list(map(operator.sub, ticks, before.mode_ticks))
        total = sum(spent)
        if total == 0:
            return None, None
        busy = total - spent[_IDLE] - spent[_IOWAIT]
        return 100 * busy / total, spent[_IOWAIT] / total


def _parse_stat(data: bytes, max_cores: int) -> _Stat:
    # The interrupt counts are skipped, because a large machine has thousands of them.
    head, _, rest = data.partition(b"\nintr ")
    lines = head.split(b"\n")
    total = lines[0].split()
    if len(total) <= len(MODES) or total[0] != b"cpu":
        raise ValueError(lines[0])
    mode_ticks = tuple(map(int, total[1 : len(MODES) + 1]))
    cores = [line for line in lines[1:] if line.startswith(b"cpu")]
    busy_ticks = tuple([_busy(line) for line in cores[:max_cores]])
    if max(mode_ticks + busy_ticks) > _MOST_TICKS or min(mode_ticks + busy_ticks) < 0:
        raise ValueError(lines[0])
    return _Stat(
        mode_ticks=mode_ticks,
        online=tuple([line.partition(b" ")[0] for line in cores]),
        busy_ticks=busy_ticks,
        processes_running=_number(rest, b"\nprocs_running "),
        processes_blocked=_number(rest, b"\nprocs_blocked "),
    )


def _busy(line: bytes) -> int:
    # The user and nice times already include guest time.
    _, user, nice, system, _, _, irq, softirq, steal, *_ = line.split()
    return int(user) + int(nice) + int(system) + int(irq) + int(softirq) + int(steal)


def _number(data: bytes, label: bytes) -> int:
    at = data.rindex(label) + len(label)
    return int(data[at : data.index(b"\n", at)])


def _hundredths(load: bytes) -> float:
    whole, _, fraction = load.partition(b".")
    if not whole.isdigit() or not fraction.isdigit() or len(load) > _LONGEST_LOAD:
        raise ValueError(load)
    return float(load)


def _count_physical(cpus: Path, numbers: list[str]) -> int | None:
    siblings = set()
    for number in numbers:
        topology = cpus / f"cpu{number}" / "topology"
        # Before Linux 5.3, the file has the second name.
        threads = read_small(topology / "core_cpus_list") or read_small(
            topology / "thread_siblings_list"
        )
        if threads is None:
            return None
        siblings.add(threads)
    return len(siblings)
