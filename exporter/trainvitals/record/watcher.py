"""Looking at the machine with the readings that the exporter has too."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from trainvitals.collectors import COLLECTORS
from trainvitals.errors import SourceError
from trainvitals.machine import Machine, MachineOptions
from trainvitals.record.enginelog import EngineLog, Parse
from trainvitals.record.flows import FlowMeter
from trainvitals.record.snapshot import Holder, Kernel, Snapshot
from trainvitals.scrape import Snapshot as Scraped
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.containers.cgroups import find_container
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.cpu import CpuReading
from trainvitals.sources.disk import DiskReading
from trainvitals.sources.files import Roots
from trainvitals.sources.filesystem import FilesystemReading
from trainvitals.sources.kernel_log import KernelLog
from trainvitals.sources.memory import MemoryReading
from trainvitals.sources.network import NetworkReading
from trainvitals.sources.processes import ProcessesReading, ProcessesSource, read_process_name
from trainvitals.sources.training.reading import RunsReading

# What is looked at; the exporter's other collectors rest.
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
    """What a container had used at a time, and its share of a core until then."""

    time: float
    cpu_seconds: float
    percent: float | None = None


def leave_out_the_rest() -> tuple[str, ...]:
    """Give the names of the collectors that a recording does not need."""
    return tuple(entry.name for entry in COLLECTORS if entry.name not in WANTED)


class Watcher:
    """Looks at the machine, again and again.

    Args:
        options: What to look at, and where; the collectors that are not needed are turned off.
        patience_seconds: How long one look waits for what does not answer.
        engine_log: The engine's log; None where there is none.
        parse: Finds the telling lines of the engine's log.
        kernel_log: The kernel's log.
        clock: The time of day, in seconds since 1970.
    """

    def __init__(
        self,
        options: MachineOptions,
        *,
        patience_seconds: float = 10.0,
        engine_log: EngineLog | None = None,
        parse: Parse = lambda _: (),
        kernel_log: KernelLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.machine = Machine(options)
        self._roots = options.roots
        self._processes = ProcessesSource(roots=options.roots)
        self._kernel_log = kernel_log or KernelLog(options.roots.rootfs / "dev/kmsg")
        self._engine_log = engine_log
        self._parse = parse
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._hostname = socket.gethostname()
        self._flows = FlowMeter()
        self._oom_kills: int | None = None
        self._spent: dict[str, _Spent] = {}
        self._deaths: dict[str, float] = {}

    def prepare(self) -> None:
        """Look once for what only two looks together tell, such as the use of the CPU."""
        self.look(0)
        self._deaths = {}

    def look(self, number: int, *, skipped: int = 0, unwritten: int = 0) -> Snapshot:
        """Look at the machine.

        Args:
            number: The snapshot's place in the recording.
            skipped: How many beats were missed before it.
            unwritten: How many snapshots before it were not written.
        """
        began = time.monotonic()
        now = self._clock()
        troubles: list[str] = []
        # Before the host's count, so that no line is taken for one of before the recording whose
        # kill is counted.
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
            holders=tuple(_find_holders(accelerators, containers, self._roots)),
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
        """Let go of everything."""
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
        lines = [line for _, line in self._parse(data.decode(errors="replace"))]
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
        if before is None or seconds < before.cpu_seconds:  # new, or started again
            return _Spent(time_, seconds)
        if time_ <= before.time:  # not sampled since
            return before
        percent = 100 * (seconds - before.cpu_seconds) / (time_ - before.time)
        return _Spent(time_, seconds, percent)


def _pick(scraped: Scraped, kind: type[Reading]) -> Reading | None:
    return next((one for one in scraped.readings.values() if isinstance(one, kind)), None)


def _find_holders(
    accelerators: AcceleratorsReading | None, containers: ContainersReading | None, roots: Roots
) -> Iterable[Holder]:
    names: Mapping[str, str] = (
        {one.id: one.name for one in containers.containers} if containers else {}
    )
    for device in accelerators.devices if accelerators else ():
        for process in device.processes:
            id_ = find_container(process.pid, roots)
            yield Holder(
                uuid=device.identity.uuid,
                pid=process.pid,
                name=read_process_name(process.pid, roots),
                container=None if id_ is None else names.get(id_, id_[:12]),
                used_bytes=process.used_bytes,
            )
