"""Snapshots of the machine, taken with the exporter's collectors."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from trainvitals.errors import SourceError
from trainvitals.metrics.collectors import COLLECTORS
from trainvitals.metrics.machine import Machine, MachineOptions
from trainvitals.metrics.runner import Snapshot as Scraped
from trainvitals.record.snapshot import Flows, Holder, Kernel, Snapshot
from trainvitals.sources.accelerators.holders import Places
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.host.cpu import CpuReading
from trainvitals.sources.host.disk import DiskReading
from trainvitals.sources.host.engine_log import EngineLog, parse_engine_log
from trainvitals.sources.host.filesystem import FilesystemReading
from trainvitals.sources.host.kernel_log import KernelLog
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.network import NetworkReading
from trainvitals.sources.host.processes import ProcessesReading, ProcessesSource
from trainvitals.sources.runs.reading import RunsReading

# The collectors that a recording needs; all other collectors are turned off.
WANTED = (
    "cpu",
    "memory",
    "disk",
    "filesystem",
    "network",
    "container",
    "accelerator",
    "training",
)
_MOST_ENGINE_ERRORS = 20

Reading = TypeVar("Reading")


@dataclass(frozen=True, slots=True)
class _Spent:
    """A sample of a container's total CPU time, and the CPU usage since the previous sample."""

    time: float
    cpu_seconds: float
    percent: float | None = None


def leave_out_the_rest() -> tuple[str, ...]:
    """Return the names of the collectors that a recording does not need."""
    return tuple(entry.name for entry in COLLECTORS if entry.name not in WANTED)


class Watcher:
    """A source of snapshots of the machine.

    Args:
        options: The options of the collectors; collectors that a recording does not need are turned
            off.
        patience_seconds: The timeout for the readings of one snapshot, in seconds.
        engine_log: The container engine's log; None means that no engine log is read.
        kernel_log: The kernel log; None means `dev/kmsg` in the host's root file system.
        clock: A function that returns Unix seconds.
    """

    def __init__(
        self,
        options: MachineOptions,
        *,
        patience_seconds: float = 10.0,
        engine_log: EngineLog | None = None,
        kernel_log: KernelLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.machine = Machine(options)
        self._processes = ProcessesSource(roots=options.roots)
        self._kernel_log = kernel_log or KernelLog(options.roots.rootfs / "dev/kmsg")
        self._engine_log = engine_log
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._hostname = socket.gethostname()
        self._flows = FlowMeter()
        self._oom_kills: int | None = None
        self._spent: dict[str, _Spent] = {}
        self._deaths: dict[str, float] = {}

    def prepare(self) -> None:
        """Take the first reading of values that require two readings, such as CPU usage."""
        self.take_snapshot(0)
        self._deaths = {}

    def take_snapshot(self, number: int, *, skipped: int = 0, unwritten: int = 0) -> Snapshot:
        """Take a snapshot of the machine.

        Args:
            number: The snapshot's number.
            skipped: The number of snapshots skipped directly before this snapshot.
            unwritten: The number of snapshots directly before this snapshot that were not written.
        """
        began = time.monotonic()
        now = self._clock()
        troubles: list[str] = []
        # Read the kernel log before the host's counter of OOM kills, so that the log line of each
        # counted kill is in this snapshot or in the next snapshot.
        kernel = self._read_kernel_log(troubles)
        scraped = self.machine.runner.snapshot(seconds=self._patience_seconds)
        troubles += [
            f"{report.collector}: {report.reason}" for report in scraped.reports if report.reason
        ]
        processes = self._read_processes(troubles)
        memory = _pick(scraped, MemoryReading)
        accelerators = _pick(scraped, AcceleratorsReading)
        containers = _pick(scraped, ContainersReading)
        return Snapshot(
            time=now,
            hostname=self._hostname,
            number=number,
            skipped=skipped,
            unwritten=unwritten,
            memory=memory,
            cpu=_pick(scraped, CpuReading),
            filesystems=_pick(scraped, FilesystemReading),
            processes=processes,
            accelerators=accelerators,
            holders=tuple(_find_holders(accelerators, containers)),
            containers=containers if containers and containers.is_there else None,
            cpu_percents=tuple(self._compare_containers(containers)),
            new_deaths=self._find_new_deaths(containers),
            oom_kills=self._count_oom_kills(memory),
            kernel=kernel,
            engine_errors=self._read_engine_log(),
            uptime_seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
            flows=self._flows.measure(_pick(scraped, DiskReading), _pick(scraped, NetworkReading)),
            runs=_pick(scraped, RunsReading),
            troubles=tuple(troubles),
            seconds=time.monotonic() - began,
        )

    def close(self) -> None:
        """Close the collectors and the logs."""
        self.machine.close()
        self._processes.close()
        self._kernel_log.close()
        if self._engine_log is not None:
            self._engine_log.close()

    def _read_processes(self, troubles: list[str]) -> ProcessesReading | None:
        try:
            return self._processes.read()
        except SourceError as error:
            troubles.append(f"processes: {error}")
            return None

    def _read_kernel_log(self, troubles: list[str]) -> Kernel | None:
        gap = self._kernel_log.why_not
        if gap is not None:
            troubles.append(f"{gap.what}: {gap.why}; {gap.remedy}")
            return None
        news = self._kernel_log.read()
        return Kernel(news.oom_kills, news.xids, news.lines, news.lost)

    def _read_engine_log(self) -> tuple[str, ...] | None:
        data = None if self._engine_log is None else self._engine_log.read()
        if data is None:
            return None
        lines = [line.text for line in parse_engine_log(data.decode(errors="replace"))]
        more = len(lines) - _MOST_ENGINE_ERRORS
        left_out = (f"({more} lines before these)",) if more > 0 else ()
        return (*left_out, *lines[-_MOST_ENGINE_ERRORS:])

    def _count_oom_kills(self, memory: MemoryReading | None) -> int | None:
        if memory is None or memory.oom_kills is None:
            return None
        before, self._oom_kills = self._oom_kills, memory.oom_kills
        return None if before is None else max(0, memory.oom_kills - before)

    def _compare_containers(self, reading: ContainersReading | None) -> Iterable[tuple[str, float]]:
        spent = {
            one.id: self._compare(one)
            for one in (reading.containers if reading else ())
            if one.usage
        }
        self._spent = {key: value for key, value in spent.items() if value is not None}
        for one in reading.containers if reading else ():
            known = self._spent.get(one.id)
            if known is not None and known.percent is not None:
                yield one.name, known.percent

    def _find_new_deaths(self, reading: ContainersReading | None) -> tuple[str, ...]:
        known = self._deaths
        died = [one for one in (reading.containers if reading else ()) if one.last_death]
        self._deaths = {one.id: one.last_death.time for one in died if one.last_death}
        return tuple(one.name for one in died if known.get(one.id) != self._deaths[one.id])

    def _compare(self, one: ContainerReading) -> _Spent | None:
        if one.usage is None or one.usage.cpu_seconds is None:
            return None
        time_, seconds = one.usage.time, one.usage.cpu_seconds
        before = self._spent.get(one.id)
        # The container is new or was restarted, so the CPU usage cannot be derived yet.
        if before is None or seconds < before.cpu_seconds:
            return _Spent(time_, seconds)
        if time_ <= before.time:  # There is no newer sample, so the last rate is kept.
            return before
        percent = 100 * (seconds - before.cpu_seconds) / (time_ - before.time)
        return _Spent(time_, seconds, percent)


class FlowMeter:
    """A meter that derives disk and network rates from successive counter values.

    Args:
        clock: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._time: float | None = None
        self._counts: tuple[int | None, ...] = (None,) * 4

    def measure(self, disk: DiskReading | None, network: NetworkReading | None) -> Flows:
        """Return the rates since the previous call of this method.

        Args:
            disk: The disk counters; None if the disk counters could not be read.
            network: The interface counters; None if the interface counters could not be read.
        """
        now = self._clock()
        counts = (
            None if disk is None else disk.read_bytes,
            None if disk is None else disk.written_bytes,
            None if network is None else network.receive_bytes,
            None if network is None else network.transmit_bytes,
        )
        seconds = 0.0 if self._time is None else now - self._time
        rates = [
            _compare(before, after, seconds)
            for before, after in zip(self._counts, counts, strict=True)
        ]
        self._time, self._counts = now, counts
        return Flows(*rates)


def _compare(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0 or after < before:
        return None
    return (after - before) / seconds


def _pick(scraped: Scraped, kind: type[Reading]) -> Reading | None:
    return next((one for one in scraped.readings.values() if isinstance(one, kind)), None)


def _find_holders(
    accelerators: AcceleratorsReading | None, containers: ContainersReading | None
) -> Iterable[Holder]:
    places = Places(None, containers)
    for device in accelerators.devices if accelerators else ():
        for process in device.processes:
            yield Holder(
                uuid=device.identity.uuid,
                pid=process.pid,
                name=process.owner.name if process.owner else None,
                container=places.find(process).container,
                used_bytes=process.used_bytes,
            )
