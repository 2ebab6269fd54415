"""Every training run of this machine, from whatever tells of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainvitals.crew import Crew
from trainvitals.errors import SourceError
from trainvitals.runfile import ALERTS, STATE, Identity, Record
from trainvitals.sources.files import Roots
from trainvitals.sources.training.attempts import Attempt, AttemptLedger, Losses
from trainvitals.sources.training.deaths import DeathRegister
from trainvitals.sources.training.directory import RunDirectory, SeenFile
from trainvitals.sources.training.endings import Ending
from trainvitals.sources.training.found import is_recent, read_found
from trainvitals.sources.training.liveness import read_host
from trainvitals.sources.training.moment import Moment
from trainvitals.sources.training.namespaces import ContainerDirectories
from trainvitals.sources.training.rates import Rates, measure_progress, measure_rates
from trainvitals.sources.training.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.training.scalars import FoundRun
from trainvitals.sources.training.stalls import judge_stall
from trainvitals.sources.training.stragglers import Slowness, StragglerJudge
from trainvitals.sources.training.surroundings import Surroundings

DEFAULT_RUN_DIR = Path("/dev/shm/trainvitals")  # noqa: S108 - the documented default
MOST_RUNS = 16
MOST_RANKS = 64
DEAD_SECONDS = 900.0
_MOST_NAME_CHARACTERS = 128
_FOUND_SECONDS = 1.0
_STOPPED = ("T", "t")
_ALERTS = STATE["alerts"]
_NANOSECONDS = 1e9


class FindsRuns(Protocol):
    """Reads runs that nobody instrumented, as `EventFileSource` and `LogLineSource` do.

    Attributes:
        omitted: How many runs its bounds left out.
        complaint: What could not be read; None when everything could.
    """

    omitted: int
    complaint: str | None

    def read(self, deadline: float) -> Sequence[FoundRun]:
        """Give the runs by the deadline (monotonic)."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Where runs are looked for.

    Attributes:
        run_dir: Where training processes leave their run files.
        logdirs: Folders below which TensorBoard event files are looked for.
        globs: Patterns of log files.
        patterns: A file with patterns of log lines, tried before those that are built in.
    """

    run_dir: Path = DEFAULT_RUN_DIR
    logdirs: tuple[Path, ...] = ()
    globs: tuple[str, ...] = ()
    patterns: Path | None = None


@dataclass(slots=True)
class _Kept:
    """What is kept of one run file between two readings."""

    gpu_uuids: tuple[str, ...] = ()
    alerts_seen: int = 0


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of one rank: a run file, and how its process ended."""

    key: Hashable
    file: SeenFile
    identity: Identity
    run: str
    ending: Ending | None


class TrainingSource:
    """Reads every training run of this machine.

    Args:
        options: Where runs are looked for.
        roots: Where the host's `/proc` and `/sys` are.
        surroundings: Knows the accelerators that processes hold.
        clock: Tells Unix seconds.
        monotonic_ns: Tells CLOCK_MONOTONIC in nanoseconds.

    Raises:
        ConfigurationError: The file of patterns cannot be used.
    """

    def __init__(
        self,
        options: TrainingOptions,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        surroundings: Surroundings | None = None,
        clock: Callable[[], float] = time.time,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock = clock
        self._monotonic_ns = monotonic_ns
        self._surroundings = surroundings or Surroundings(roots=roots)
        self._host = read_host(procfs=roots.procfs, cgroupfs=roots.sysfs / "fs/cgroup")
        self._directory = RunDirectory(options.run_dir, host=self._host)
        self._containers = ContainerDirectories(options.run_dir.absolute(), host=self._host)
        self._finders = _make_finders(options, clock)
        self._crew = Crew(name="runs", limit=max(1, len(self._finders)))
        self._deaths = DeathRegister(self._surroundings.describe)
        self._ledger = AttemptLedger()
        self._judges: dict[str, StragglerJudge] = {}
        self._kept: dict[Hashable, _Kept] = {}

    def read(self, deadline: float) -> RunsReading:
        """Read every run by the deadline (monotonic)."""
        now = Moment(self._clock(), self._monotonic_ns(), self._host.boot_id)
        complaints: list[str] = []
        files, incompatible, omitted = self._read_directories(now, complaints)
        starts = self._judge_endings(files, now)
        losses = self._ledger.update(_list_attempts(starts))
        ranks, left_out = _choose(_find_latest(starts), now)
        readings = self._read_ranks(ranks, now)
        found, found_omitted = self._find_runs(deadline, now, complaints)
        # A run that tells of itself may log too; what it tells itself is worth more.
        runs = {rank.run for rank in readings}
        others = {rank.run: rank for rank in reversed(found) if rank.run not in runs}
        found = [rank for rank in found if others.get(rank.run) is rank]
        room = max(0, min(MOST_RANKS - len(readings), MOST_RUNS - len(runs)))
        readings += found[:room]
        return RunsReading(
            ranks=tuple(readings),
            runs=tuple(self._describe_runs(readings, losses)),
            incompatible_files=incompatible,
            omitted=omitted + left_out + found_omitted + len(found[room:]),
            complaint="; ".join(complaints) or None,
        )

    def close(self) -> None:
        """Close all files."""
        self._directory.close()
        self._containers.close()
        for finder in self._finders.values():
            finder.close()
        self._crew.close()

    def _read_directories(
        self, now: Moment, complaints: list[str]
    ) -> tuple[dict[Hashable, SeenFile], int, int]:
        files: dict[Hashable, SeenFile] = {}
        incompatible = omitted = 0
        for directory in (self._directory, *self._containers.find(now.wall_time)):
            try:
                reading = directory.read(now.wall_time)
            except SourceError as error:
                if directory is self._directory:
                    complaints.append(str(error))
                continue
            incompatible += reading.incompatible
            omitted += reading.omitted
            for file in reading.files:
                files.setdefault(_make_key(file), file)
            directory.discard(now.wall_time)
        return files, incompatible, omitted

    def _judge_endings(self, files: Mapping[Hashable, SeenFile], now: Moment) -> list[_Start]:
        holders: Mapping[int, tuple[str, ...]] | None = None
        starts = []
        for key, file in files.items():
            identity = file.record.identity
            if identity is None:
                continue
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Kept(_read_uuids(identity))
            kept.alerts_seen |= _read_bits(file.record)
            ending = None
            if file.liveness.is_alive:
                self._deaths.note_living(key)
                holders = self._surroundings.holders() if holders is None else holders
                kept.gpu_uuids = holders.get(file.liveness.host_pid or 0) or kept.gpu_uuids
            else:
                ending = self._deaths.judge(key, file, now.wall_time, kept.gpu_uuids)
            run = identity.run[:_MOST_NAME_CHARACTERS]
            starts.append(_Start(key, file, identity, run, ending))
        self._deaths.forget(files.keys())
        for key in self._kept.keys() - files.keys():
            del self._kept[key]
        return starts

    def _read_ranks(self, starts: Sequence[_Start], now: Moment) -> list[RankReading]:
        slowness = self._judge_stragglers(starts)
        return [
            self._read_rank(start, slowness.get((start.run, start.identity.rank)), now)
            for start in starts
        ]

    def _judge_stragglers(self, starts: Iterable[_Start]) -> Mapping[tuple[str, int], Slowness]:
        records: dict[str, dict[str, Record]] = {}
        for start in starts:
            if start.file.liveness.is_alive:
                ranks = records.setdefault(start.run, {})
                ranks[str(start.identity.rank)] = start.file.record
        for run in self._judges.keys() - records.keys():
            del self._judges[run]
        return {
            (run, int(rank)): verdict
            for run, ranks in records.items()
            for rank, verdict in self._judges.setdefault(run, StragglerJudge()).judge(ranks).items()
        }

    def _read_rank(self, start: _Start, slowness: Slowness | None, now: Moment) -> RankReading:
        file, record, kept = start.file, start.file.record, self._kept[start.key]
        liveness = file.liveness
        is_alive = liveness.is_alive
        return RankReading(
            run=start.run,
            rank=str(start.identity.rank),
            source="client",
            record=record,
            liveness=liveness,
            ending=start.ending,
            start_timestamp_seconds=_date_start(start.identity),
            gpu_uuids=kept.gpu_uuids,
            stall=judge_stall(record, now, is_stopped=liveness.state in _STOPPED)
            if is_alive
            else None,
            rates=measure_rates(record, now) if is_alive else Rates(),
            progress=measure_progress(record, is_alive=is_alive),
            slowness=slowness,
            alerts_seen=kept.alerts_seen,
        )

    def _find_runs(
        self, deadline: float, now: Moment, complaints: list[str]
    ) -> tuple[list[RankReading], int]:
        """Read what others write about runs; a file system that hangs costs these runs alone."""
        found: list[RankReading] = []
        omitted = 0
        if not self._finders:
            return found, omitted
        until = min(deadline, time.monotonic() + _FOUND_SECONDS)
        tasks = {name: _make_task(finder, until) for name, finder in self._finders.items()}
        for name, outcome in self._crew.gather(tasks, until - time.monotonic()).items():
            finder = self._finders[name]
            if outcome.late:
                complaints.append(f"{name} could not be read in time; check its file system")
                continue
            if outcome.error is not None:
                raise outcome.error
            omitted += finder.omitted
            if finder.complaint is not None:
                complaints.append(finder.complaint)
            found += [
                read_found(run)
                for run in outcome.value or ()
                if is_recent(run, now.wall_time, DEAD_SECONDS)
            ]
        return found, omitted

    def _describe_runs(
        self, ranks: Iterable[RankReading], losses: Mapping[str, Losses]
    ) -> list[RunReading]:
        by_run: dict[str, list[RankReading]] = {}
        for rank in ranks:
            by_run.setdefault(rank.run, []).append(rank)
        return [self._describe_run(run, of_run, losses.get(run)) for run, of_run in by_run.items()]

    def _describe_run(
        self, run: str, ranks: Sequence[RankReading], losses: Losses | None
    ) -> RunReading:
        first = ranks[0]
        identity = first.record.identity
        if identity is None:
            return RunReading(run, first.source)
        worlds = [rank.record.identity.world_size for rank in ranks if rank.record.identity]
        return RunReading(
            run=run,
            source=first.source,
            static=identity.static,
            world_size=max(worlds) if max(worlds) > 0 else None,
            ranks_alive=sum(rank.liveness.is_alive for rank in ranks if rank.liveness),
            exits=self._deaths.count_exits(identity.run),
            losses=losses,
        )


def _make_finders(options: TrainingOptions, clock: Callable[[], float]) -> dict[str, FindsRuns]:
    finders: dict[str, FindsRuns] = {}
    if options.logdirs:
        from trainvitals.sources.training.eventfiles import (  # noqa: PLC0415 - few machines need it
            EventFileSource,
        )

        finders["--tensorboard.logdir"] = EventFileSource(options.logdirs, clock=clock)
    if options.globs:
        from trainvitals.sources.training.loglines import (  # noqa: PLC0415 - few machines need it
            LogLineSource,
        )
        from trainvitals.sources.training.patterns import read_patterns  # noqa: PLC0415
        from trainvitals.sources.training.profiles import PROFILES  # noqa: PLC0415

        own = () if options.patterns is None else read_patterns(options.patterns)
        finders["--trainlog.glob"] = LogLineSource(
            options.globs, patterns=(*own, *PROFILES), clock=clock
        )
    return finders


def _make_task(finder: FindsRuns, until: float) -> Callable[[], Sequence[FoundRun]]:
    return lambda: finder.read(until)


def _make_key(file: SeenFile) -> Hashable:
    """Tell a run file from all others, also from one that has got the number of one that is gone."""
    identity = file.record.identity
    created = identity.created_time if identity is not None else 0.0
    return (file.key, created)


def _list_attempts(starts: Iterable[_Start]) -> list[Attempt]:
    return [
        Attempt(
            key=start.key,
            run=start.run,
            rank=str(start.identity.rank),
            created_time=start.identity.created_time,
            record=start.file.record,
            is_alive=start.file.liveness.is_alive,
        )
        for start in starts
    ]


def _find_latest(starts: Iterable[_Start]) -> list[_Start]:
    """Give the latest start of each rank; one that lives goes before one that does not."""
    latest: dict[tuple[str, int], _Start] = {}
    for start in starts:
        who = (start.run, start.identity.rank)
        other = latest.get(who)
        if other is None or _standing(start) > _standing(other):
            latest[who] = start
    return list(latest.values())


def _standing(start: _Start) -> tuple[bool, float]:
    return start.file.liveness.is_alive, start.identity.created_time


def _choose(starts: Iterable[_Start], now: Moment) -> tuple[list[_Start], int]:
    """Give the ranks that are shown, by run and rank, and count those that the bounds left out.

    Runs that live go before those that are over, and among the former those that have been here the
    longest, so that what is shown stays.
    """
    runs: dict[str, list[_Start]] = {}
    for start in starts:
        if start.ending is None or now.wall_time - start.ending.time < DEAD_SECONDS:
            runs.setdefault(start.run, []).append(start)
    ordered = sorted(runs.values(), key=_order)
    chosen = [start for of_run in ordered[:MOST_RUNS] for start in _sort(of_run)][:MOST_RANKS]
    chosen.sort(key=lambda start: (start.run, start.identity.rank))
    return chosen, sum(map(len, ordered)) - len(chosen)


def _order(of_run: Sequence[_Start]) -> tuple[bool, float]:
    alive = [start.identity.created_time for start in of_run if start.ending is None]
    if alive:
        return False, min(alive)
    return True, -max(start.identity.created_time for start in of_run)


def _sort(of_run: Iterable[_Start]) -> list[_Start]:
    return sorted(of_run, key=lambda start: (start.ending is not None, start.identity.rank))


def _date_start(identity: Identity) -> float | None:
    """Tell when a process started: as long before its run file as its clocks say."""
    if not identity.start_ticks:
        return identity.created_time or None
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    before = identity.created_mono_ns / _NANOSECONDS - identity.start_ticks / ticks_per_second
    return round(identity.created_time - max(0.0, before), 2)


def _read_uuids(identity: Identity) -> tuple[str, ...]:
    uuids = identity.static.get("accelerator_uuids", ())
    return () if isinstance(uuids, str) else tuple(uuids)


def _read_bits(record: Record) -> int:
    bits = record.state[_ALERTS]
    return int(bits) if 0 <= bits < 1 << len(ALERTS) else 0
