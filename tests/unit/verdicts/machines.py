"""Synthetic machines: healthy, hot, lost, stalled, dead, full and unobserved ones.

A machine is described by a few numbers, and `read` returns the readings of its collectors at a
time. Counters rise at a steady rate from time 0 and all else stays constant, so that the durations
of alerts do not matter. Values are on both sides of each threshold, and never equal to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import statvfs_result
from typing import Any

from hypothesis import strategies as st

from trainvitals.metrics.collector_metrics import Report
from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    STATE,
    STEP,
    Identity,
    Phase,
    Record,
    State,
)
from trainvitals.sources.accelerators import reading as accelerators
from trainvitals.sources.accelerators.row import THROTTLE_REASONS
from trainvitals.sources.containers.reading import (
    ContainerReading,
    ContainersReading,
    Death,
    Usage,
)
from trainvitals.sources.host.cpu import CpuReading
from trainvitals.sources.host.filesystem import Filesystem, FilesystemReading, Space
from trainvitals.sources.host.kernel import ClockState, KernelReading
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.pressure import PressureReading, Stall
from trainvitals.sources.runs import stalls
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.runs.stragglers import Slowness

NOW = 1800.0
GIB = 1 << 30
COLLECTORS = (
    "cpu", "memory", "filesystem", "pressure", "kernel", "accelerator", "container", "training",
)  # fmt: skip
XID_AGE = 100.0
# This is outside the alert's window at the last evaluation but one, too.
OLD_XID_AGE = 1600.0
ANSWERED = True
LOST_RUN = "lost"


IDLE = 0.01  # a device that is busy for less than this share is idle, and its process is stopped


@dataclass(frozen=True)
class Device:
    """An accelerator."""

    kind: str = "gpu"
    state: str = "ok"
    celsius: float | None = 60.0
    headroom: float | None = None
    memory: float | None = 0.5
    busy: float | None = 0.9
    heat: float = 0.0
    brake: float = 0.0
    counts_throttling: bool = True
    processes: int | None = 1
    xid: tuple[int, float] | None = None
    recovery: int | None = None
    remap_failed: int | None = None
    remap_pending: int | None = None
    retired_pending: int | None = None
    links: tuple[int | None, int | None] = (None, None)
    lanes: tuple[int | None, int | None] = (None, None)

    def read(self, index: int, time: float) -> accelerators.AcceleratorReading:
        """Return the reading of its driver."""
        identity = accelerators.Identity(
            self.kind, index, f"{self.kind.upper()}-{index}", "card", "", "1"
        )
        xids = (
            () if self.xid is None else (accelerators.XidCount(self.xid[0], 1, NOW - self.xid[1]),)
        )
        measured = None if self.state != "ok" else self._measure(time)
        idle = None
        if measured is not None and self.busy is not None and self.busy < IDLE and self.processes:
            idle = accelerators.Idleness("stopped", f"python (PID {index}) is stopped", index)
        return accelerators.AcceleratorReading(
            identity, self.state, NOW, measured, xids=xids, idle=idle
        )

    def _measure(self, time: float) -> accelerators.Measurements:
        seconds: list[float | None] = [None] * len(THROTTLE_REASONS)
        active: list[int | None] = [None] * len(THROTTLE_REASONS)
        for reason, share in (
            ("hw_thermal", self.heat),
            ("sw_thermal", 0.0),
            ("hw_power_brake", self.brake),
        ):
            at = THROTTLE_REASONS.index(reason)
            active[at] = int(share > 0)
            if self.counts_throttling:
                seconds[at] = share * time
        total = 80 * GIB
        return accelerators.Measurements(
            utilization_ratio=self.busy,
            busy_seconds_total=None
            if self.busy is None or self.kind == "hpu"
            else self.busy * time,
            memory_total_bytes=total,
            memory_used_bytes=None if self.memory is None else int(self.memory * total),
            temperature_core_celsius=self.celsius,
            temperature_headroom_celsius=self.headroom,
            throttle_active=tuple(active),
            throttle_seconds_total=tuple(seconds),
            recovery_action=self.recovery,
            row_remap_failed=self.remap_failed,
            row_remap_pending=self.remap_pending,
            pages_retired_pending=self.retired_pending,
            links_active=self.links[0],
            links_expected=self.links[1],
            pcie_link_width=self.lanes[0],
            pcie_link_width_max=self.lanes[1],
            processes=self.processes,
        )


@dataclass(frozen=True)
class Rank:
    """A rank of a run, which is alive unless it has a reason for its end."""

    devices: tuple[int, ...] = ()
    phase: Phase = Phase.FORWARD
    cause: str | None = None
    waits: float = 0.1
    loss: float = 2.0
    slowdown: float | None = None
    reserve: float = 0.0
    reason: str = ""
    code: int | None = None
    signal: int | None = None
    age: float = 100.0
    device_oom: bool = False
    start: float = 10.0
    is_off: bool = False
    source: str = "client"
    moved_ago: float = 100.0

    def read(self, run: str, number: int, uuids: tuple[str, ...], time: float) -> RankReading:
        """Return the reading of its run file and its process."""
        step, state = list(EMPTY_STEP), list(EMPTY_STATE)
        time = NOW if self.reason else time  # the readings of a rank that ended do not change
        phase = float(self.phase) if self.source == "client" else -1.0  # a log has no phase
        words = {"phase": phase, "loss": self.loss, "train_seconds": time,
                 "total_data_wait": self.waits * time, "total_init": 5.0}  # fmt: skip
        words |= {name: 1.0 for name in STEP if name.startswith("step_bucket_")}
        for name, value in words.items():
            step[STEP[name]] = value
        state[STATE["state"]] = float(State.SWITCHED_OFF) if self.is_off else 0.0
        if self.device_oom:
            state[STATE["last_oom_time"]] = NOW - self.age
        if self.reserve:
            state[STATE["memory_reserved_bytes"]] = max(0.0, self.reserve) * 80 * GIB
            state[STATE["memory_peak_bytes"]] = max(0.0, -self.reserve) * 80 * GIB
        ending = None
        if self.reason:
            ending = Ending(self.reason, self.code, self.signal, None, NOW - self.age, "It is so.")
        slowness = None
        if self.slowdown is not None and ending is None:
            slowness = Slowness(
                (None, None, self.slowdown, None), is_straggler=self.slowdown > 1.33
            )
        record = Record(step, state, identity=Identity(run, created_time=10.0))
        if self.source != "client":
            moved = stalls.Stall(None, None, NOW - self.moved_ago)
            return RankReading(run, str(number), self.source, record, stall=moved)
        return RankReading(
            run,
            str(number),
            self.source,
            record,
            Liveness(is_alive=ending is None, evidence="lock", host_pid=4000 + number),
            ending,
            start_timestamp_seconds=self.start,
            gpu_uuids=uuids,
            stall=None if ending else stalls.Stall(self.cause, 60.0, NOW - 100.0),
            slowness=slowness,
        )


@dataclass(frozen=True)
class Container:
    """A container."""

    status: str = "running"
    health: str | None = None
    memory: float = 0.5
    reason: str = ""
    age: float = 100.0

    def read(self, name: str) -> ContainerReading:
        """Return the reading of the container."""
        death = None
        if self.reason:
            code = 0 if self.reason == "finished" else 1
            death = Death(NOW - self.age, code, self.reason, "", "high", "It ended.")
        usage = Usage(
            NOW, 2, memory_working_set_bytes=int(self.memory * GIB), memory_limit_bytes=GIB
        )
        return ContainerReading(
            name, f"id-{name}", status=self.status, health=self.health, last_death=death,
            usage=usage if self.status == "running" else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Disk:
    """A file system."""

    mountpoint: str = "/"
    size: float = 500e9
    avail: float = 0.5
    files_free: float = 0.5
    readonly: bool = False
    answers: bool = True

    def read(self) -> Filesystem:
        """Return the reading of the file system."""
        trouble = None if self.answers else "it does not answer"
        found = None
        if self.answers:
            files = (1000, int(1000 * self.files_free))
            found = Space(int(self.size), int(self.size * self.avail), *files, self.readonly)
        return Filesystem(self.mountpoint, "/dev/sda1", "ext4", found, self.answers, trouble)

    def answer(self) -> statvfs_result:
        """Return the result of `statvfs`."""
        size, avail = int(self.size), int(self.size * self.avail)
        files = int(1000 * self.files_free)
        return statvfs_result((1, 1, size, avail, avail, 1000, files, files, self.readonly, 255))


@dataclass(frozen=True)
class Machine:
    """A machine.

    Attributes:
        devices: Its accelerators.
        missing: The number of GPUs that are expected in addition, or None if none is configured.
        memory_limit: The share of device memory that may be used.
        temperature_limit: The highest allowed temperature of a device in degrees Celsius.
        runs: Its runs, each as the tuple of its ranks.
        containers: Its containers.
        disks: Its file systems.
        memory: The share of RAM in use, or None if the kernel does not report it.
        kills: The number of processes that the kernel killed.
        clock: The seconds by which its clock is ahead.
        has_lost_run: Whether a run that was alive 15 minutes ago no longer exists.
        io_wait: The share of time in which CPUs wait for a disk.
        stalled: The shares of time in which all tasks wait for memory and for a disk.
        failing: The collectors that fail.
        alerts: Why alerts are unknown, empty without a Prometheus, or None if they are known.
    """

    devices: tuple[Device, ...] = ()
    missing: int | None = None
    memory_limit: float | None = None
    temperature_limit: float | None = None
    runs: tuple[tuple[Rank, ...], ...] = ()
    containers: tuple[Container, ...] = ()
    disks: tuple[Disk, ...] = (Disk(),)
    memory: float | None = 0.5
    kills: int = 0
    clock: float = 0.0
    has_lost_run: bool = False
    io_wait: float = 0.0
    stalled: tuple[float, float] = (0.0, 0.0)
    failing: frozenset[str] = frozenset()
    alerts: str | None = None

    def read(self, time: float, *, is_early: bool = False) -> Mapping[str, object]:
        """Return the readings of its collectors at a time, by collector name.

        A lost run is only in the early readings.
        """
        total = 100 * GIB
        memory_stalled, io_stalled = (share * time for share in self.stalled)
        readings: dict[str, object] = {
            "cpu": CpuReading(
                (1.0,) * 8, (0,), (1.0,), 0, 8, 4, 50.0, self.io_wait, None, 1.0, 1.0, 1.0, 1, 0
            ),
            "memory": MemoryReading(
                total, None if self.memory is None else int(total * (1 - self.memory)),
                0, 0, 0, 0, 0, 0, 0, None, None,
                int(self.kills * time / NOW * 10),
            ),
            "filesystem": FilesystemReading(tuple(disk.read() for disk in self.disks), 0),
            "pressure": PressureReading(
                (Stall("memory", memory_stalled, memory_stalled), Stall("io", io_stalled, io_stalled))
            ),
            "kernel": KernelReading(0, time - NOW + self.clock, ClockState(self.clock, synchronized=True)),
            "accelerator": self._read_accelerators(time),
            "container": ContainersReading(
                is_there=True, containers=tuple(each.read(f"c{at}") for at, each in enumerate(self.containers))
            ),
            "training": self._read_runs(time, is_early=is_early),
        }  # fmt: skip
        return {name: each for name, each in readings.items() if name not in self.failing}

    def report(self) -> tuple[Report, ...]:
        """Return the report of each collector."""
        return tuple(self._report_collector(name) for name in COLLECTORS)

    def _report_collector(self, name: str) -> Report:
        reason = "it cannot be read" if name in self.failing else None
        if name == "accelerator" and any(
            each.state not in ("ok", "unsupported") for each in self.devices
        ):
            reason = reason or "a device does not answer"
        if name == "filesystem" and not all(each.answers for each in self.disks):
            reason = reason or "a server does not answer"
        return Report(name, reason is None, ANSWERED, 0.001, reason, 0, 0, NOW)

    def _read_accelerators(self, time: float) -> accelerators.AcceleratorsReading:
        limit = None if self.memory_limit is None else int(self.memory_limit * 80 * GIB)
        count = sum(each.kind == "gpu" for each in self.devices)
        expected = () if self.missing is None else (("gpu", count + self.missing),)
        devices = tuple(each.read(at, time) for at, each in enumerate(self.devices))
        return accelerators.AcceleratorsReading(
            devices,
            expected,
            memory_limit_bytes=limit,
            temperature_limit_celsius=self.temperature_limit,
        )

    def _read_runs(self, time: float, *, is_early: bool) -> RunsReading:
        names = [f"{each.kind.upper()}-{at}" for at, each in enumerate(self.devices)]
        ranks, runs = [], []
        for at, run in enumerate(self.runs):
            for number, rank in enumerate(run):
                uuids = tuple(
                    names[each] if each < len(names) else f"GPU-gone{each}" for each in rank.devices
                )
                ranks.append(rank.read(f"run{at}", number, uuids, time))
            alive = sum(not rank.reason for rank in run)
            is_here = run[0].source == "client"
            runs.append(
                RunReading(f"run{at}", run[0].source, ranks_alive=alive if is_here else None)
            )
        if self.has_lost_run and is_early:
            ranks.append(Rank().read(LOST_RUN, 0, (), time))
            runs.append(RunReading(LOST_RUN, "client", ranks_alive=1))
        return RunsReading(tuple(ranks), tuple(runs))


Choices = Mapping[str, tuple[object, ...]]

# The possible values of each field, the usual value first.
_DEVICE: Choices = {
    "kind": ("gpu", "hpu"),
    "state": ("ok", "ok", "lost", "hung", "no_driver", "unsupported"),
    "celsius": (60.0, None, 79.0, 81.0, 84.0, 86.0, 95.0),
    "headroom": (None, 1.0, 3.0, 5.0, 8.0, -4.0),
    "memory": (0.5, None, 0.02, 0.04, 0.08, 0.12, 0.89, 0.91),
    "busy": (0.9, None, 0.0, 0.005, 0.15, 0.25, 0.45, 0.55),
    "heat": (0.0, 0.05, 0.2),
    "brake": (0.0, 0.01, 0.05),
    "counts_throttling": (True, False),
    "processes": (1, None, 0),
    "xid": (None, (79, XID_AGE), (94, XID_AGE), (31, XID_AGE), (45, XID_AGE), (79, OLD_XID_AGE)),
    "recovery": (None, 0, 1),
    "remap_failed": (None, 0, 1),
    "remap_pending": (None, 0, 1),
    "retired_pending": (None, 0, 1),
    "links": ((None, None), (18, 18), (17, 18)),
    "lanes": ((None, None), (16, 16), (8, 16)),
}
_RANK: Choices = {
    "devices": ((0,), (), (1,), (0, 1)),
    "phase": (Phase.FORWARD, Phase.VALIDATION, Phase.CHECKPOINT, Phase.IDLE),
    "cause": (None, "no_progress"),
    "waits": (0.1, 0.25, 0.35),
    "loss": (2.0, math.nan),
    "slowdown": (None, 1.1, 1.9),
    "reserve": (0.0, 0.3, -0.3),
    "age": (100.0, 10.0, 850.0),
    "device_oom": (False, True),
    # The later start is a restart after all ends but the one 10 s ago.
    "start": (10.0, NOW - 50.0),
    "is_off": (False, True),
}
_OBSERVED_RANK: Choices = {
    "moved_ago": (100.0, 700.0),
    **{name: _RANK[name] for name in ("waits", "loss")},
}
# Reason, exit code and signal. Half of the ranks are alive.
_ENDS: tuple[tuple[str, int | None, int | None], ...] = (
    *(("", None, None),) * 8,
    ("finished", 0, None),
    ("exception", 1, None),
    ("exception", 130, None),
    ("exception", 143, None),
    ("signal", None, 11),
    ("signal", None, 2),
    ("signal", None, 15),
    ("oom", None, 9),
    ("unknown", None, None),
)
_CONTAINER: Choices = {
    "status": ("running", "exited"),
    "health": (None, "healthy", "unhealthy"),
    "memory": (0.5, 0.94, 0.96),
    "reason": (
        "", "finished", "exception", "oom-cgroup", "stop-graceful", "kill-operator", "interrupted",
    ),
    "age": (100.0, 850.0, 950.0),
}  # fmt: skip
_DISK: Choices = {
    "mountpoint": ("/data", "/dev/shm"),
    "size": (500e9, 1e9, 20e9, 50e9),
    "avail": (0.5, 0.15, 0.05, 0.0001),
    "files_free": (0.5, 0.06, 0.04),
    "readonly": (False, True),
    "answers": (True, False),
}
_ROOT: Choices = {"avail": (0.5, 0.05, 0.0001), "files_free": (0.5, 0.06, 0.04)}
_MACHINE: Choices = {
    "missing": (None, 0, 1),
    "memory_limit": (None, 0.85),
    "temperature_limit": (None, 80.0),
    "memory": (0.5, None, 0.89, 0.91),
    "kills": (0, 1),
    "clock": (0.0, 20.0, 40.0, -40.0),
    "has_lost_run": (False, True),
    "io_wait": (0.0, 0.25, 0.35),
    "failing": (frozenset(), *(frozenset((name,)) for name in COLLECTORS)),
}


class _Draws:
    """Values chosen by bytes that Hypothesis draws, where zeros choose the usual values."""

    def __init__(self, drawn: bytes) -> None:
        self._left = iter(drawn)

    def count(self, most: int) -> int:
        """Return a number from 0 to this one."""
        return next(self._left) % (most + 1)

    def choose(self, values: tuple[Any, ...]) -> Any:
        """Return one of the values."""
        return values[self.count(len(values) - 1)]

    def mostly(self, values: tuple[Any, ...]) -> Any:
        """Return the usual value in two of three cases, or else one of the others."""
        number = next(self._left) - 171
        return values[0] if number < 0 else values[1 + number % (len(values) - 1)]

    def build(self, kind: Callable[..., Any], choices: Choices, **more: Any) -> Any:
        """Return an instance of a class with drawn fields."""
        drawn = {name: self.mostly(values) for name, values in choices.items()}
        return kind(**drawn, **more)

    def build_some(self, most: int, build: Callable[[], Any]) -> tuple[Any, ...]:
        """Return up to this many objects, each of which uses its bytes even if it is left out."""
        found = [(self.count(1), build()) for _ in range(most)]
        return tuple(each for is_there, each in found if is_there)


def make_machine(drawn: bytes) -> Machine | None:
    """Return the machine that the bytes describe, or None if it is left out."""
    draws = _Draws(drawn)
    if not draws.count(255):
        return None
    return draws.build(
        Machine,
        _MACHINE,
        devices=draws.build_some(2, lambda: draws.build(Device, _DEVICE)),
        runs=draws.build_some(1, lambda: _make_run(draws)),
        containers=draws.build_some(1, lambda: draws.build(Container, _CONTAINER)),
        disks=(
            draws.build(Disk, _ROOT),
            *draws.build_some(1, lambda: draws.build(Disk, _DISK)),
        ),
        stalled=(draws.mostly((0.0, 0.05, 0.15)), draws.mostly((0.0, 0.25, 0.35))),
        alerts=draws.choose((None, "", "Prometheus does not answer")),
    )


def _make_run(draws: _Draws) -> tuple[Rank, ...]:
    is_observed = draws.count(3) == 3
    observed = draws.build(Rank, _OBSERVED_RANK, source="log")
    ranks = (_make_rank(draws), *draws.build_some(1, lambda: _make_rank(draws)))
    return (observed,) if is_observed else ranks


def _make_rank(draws: _Draws) -> Rank:
    reason, code, signal = draws.choose(_ENDS)
    rank = draws.build(Rank, _RANK, reason=reason, code=code, signal=signal)
    if rank.is_off:
        rank = replace(rank, cause=None)  # a monitor that is off cannot be seen to stall
    # No rank ends before it starts.
    return replace(rank, start=10.0) if reason and rank.start > NOW - rank.age else rank


_DRAWS = 94  # the number of bytes that `make_machine` uses


def draw_batch(size: int) -> st.SearchStrategy[list[Machine]]:
    """Return a strategy for lists of machines, whose failing examples shrink to one machine."""
    drawn = st.binary(min_size=_DRAWS, max_size=_DRAWS).map(make_machine)
    machines = st.lists(drawn, min_size=size, max_size=size)
    return machines.map(lambda found: [each for each in found if each is not None])
