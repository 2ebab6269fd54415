"""Every training run of this machine, from whatever tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from trainvitals.crew import Crew
from trainvitals.errors import SourceError
from trainvitals.runfile import Record
from trainvitals.sources.files import Roots
from trainvitals.sources.training.attempts import Attempt, AttemptLedger
from trainvitals.sources.training.directory import DirectoryReading, RunDirectory, SeenFile
from trainvitals.sources.training.found import is_recent, read_found
from trainvitals.sources.training.liveness import read_host
from trainvitals.sources.training.moment import Moment
from trainvitals.sources.training.namespaces import ContainerDirectories
from trainvitals.sources.training.rates import Rates, measure_progress, measure_rates
from trainvitals.sources.training.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.training.retold import leave_out_retold
from trainvitals.sources.training.scalars import FoundRun
from trainvitals.sources.training.stalls import judge_stall
from trainvitals.sources.training.starts import (
    DEAD_SECONDS,
    MOST_RANKS,
    MOST_RUNS,
    Start,
    StartRegister,
    choose_shown,
    count_overtaken,
    date_start,
    find_latest,
)
from trainvitals.sources.training.stragglers import Slowness, StragglerJudge
from trainvitals.sources.training.surroundings import Surroundings

DEFAULT_RUN_DIR = Path("/dev/shm/trainvitals")  # noqa: S108 - the documented default
_FOUND_SECONDS = 1.0
# The first time there may be much to open; later it is less than the runner waits for a collector
# that was always quick.
_FIRST_CONTAINER_SECONDS, _CONTAINER_SECONDS = 2.0, 0.25
_CONTAINERS = "containers"
# To look at every process costs 20 us for each, so a new container's runs may wait for a minute.
_SEARCH_SECONDS = 60.0
_STOPPED = ("T", "t")


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
        self._host = read_host(procfs=roots.procfs, cgroupfs=roots.sysfs / "fs/cgroup")
        self._directory = RunDirectory(options.run_dir, host=self._host)
        self._containers = ContainerDirectories(
            options.run_dir.absolute(), host=self._host, search_seconds=_SEARCH_SECONDS
        )
        self._has_searched = False
        self._finders = _make_finders(options, clock)
        self._crew = Crew(name="runs", limit=1 + len(self._finders))
        self._starts = StartRegister(surroundings or Surroundings(roots=roots))
        self._ledger = AttemptLedger()
        self._judges: dict[str, StragglerJudge] = {}
        self._shown: frozenset[str] = frozenset()

    def read(self, deadline: float) -> RunsReading:
        """Read every run by the deadline (monotonic)."""
        now = Moment(self._clock(), self._monotonic_ns(), self._host.boot_id)
        complaints: list[str] = []
        files, incompatible, omitted = self._read_directories(deadline, now, complaints)
        starts = self._starts.take_up(files, now.wall_time)
        self._ledger.update(_list_attempts(starts))
        latest = find_latest(starts)
        shown, left_out = choose_shown(latest, now.wall_time, self._shown)
        self._shown = frozenset(start.run for start in shown)
        left_out += count_overtaken(starts, latest)
        readings = self._read_ranks(shown, now)
        told, found_omitted = self._find_runs(deadline, now, complaints)
        runs = {rank.run for rank in readings}
        # Of two that have the same name, event files go before logs.
        by_name = {run.run: run for run in reversed(told) if run.run not in runs}
        found = [run for run in leave_out_retold(told, starts) if by_name.get(run.run) is run]
        room = max(0, min(MOST_RANKS - len(readings), MOST_RUNS - len(runs)))
        readings += map(read_found, found[:room])
        return RunsReading(
            ranks=tuple(readings),
            runs=tuple(self._describe_runs(readings)),
            incompatible_files=incompatible,
            omitted=omitted + left_out + found_omitted + len(found[room:]),
            complaint="; ".join(complaints) or None,
        )

    def close(self) -> None:
        """Close all files."""
        self._directory.close()
        closes = {_CONTAINERS: self._containers.close}
        closes |= {name: finder.close for name, finder in self._finders.items()}
        for name, close in closes.items():
            if not self._crew.is_running(name):  # what hangs ends with the process
                close()
        self._crew.close()

    def _read_directories(
        self, deadline: float, now: Moment, complaints: list[str]
    ) -> tuple[list[SeenFile], int, int]:
        readings = [
            *self._read_own(now, complaints),
            *self._read_containers(deadline, now, complaints),
        ]
        return (
            [file for reading in readings for file in reading.files],
            sum(reading.incompatible for reading in readings),
            sum(reading.omitted for reading in readings),
        )

    def _read_own(self, now: Moment, complaints: list[str]) -> list[DirectoryReading]:
        try:
            reading = self._directory.read(now.wall_time)
        except SourceError as error:
            complaints.append(str(error))
            return []
        if reading.is_cut:
            complaints.append(
                f"{self._directory.path} has too many names, of which the rest was not looked at; "
                "remove what is no run file, and the files of old runs"
            )
        self._directory.discard(now.wall_time)
        return [reading]

    def _read_containers(
        self, deadline: float, now: Moment, complaints: list[str]
    ) -> Sequence[DirectoryReading]:
        """Read what lies in containers; a file system of theirs that hangs costs their runs alone."""
        if self._containers.is_idle(now.wall_time):
            return ()
        task = partial(self._containers.read, now.wall_time)
        seconds = _CONTAINER_SECONDS if self._has_searched else _FIRST_CONTAINER_SECONDS
        self._has_searched = True
        patience = min(seconds, deadline - time.monotonic())
        outcome = self._crew.gather({_CONTAINERS: task}, patience)[_CONTAINERS]
        if outcome.late:
            complaints.append(
                "run directories in containers could not be read in time; check what is mounted there"
            )
        elif outcome.error is not None:
            complaints.append(_explain_bug("reading of containers", outcome.error))
        return outcome.value or ()

    def _read_ranks(self, starts: Sequence[Start], now: Moment) -> list[RankReading]:
        slowness = self._judge_stragglers(starts)
        return [
            self._read_rank(start, slowness.get((start.run, start.identity.rank)), now)
            for start in starts
        ]

    def _judge_stragglers(self, starts: Iterable[Start]) -> Mapping[tuple[str, int], Slowness]:
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

    def _read_rank(self, start: Start, slowness: Slowness | None, now: Moment) -> RankReading:
        record, liveness = start.file.record, start.file.liveness
        is_alive = liveness.is_alive
        return RankReading(
            run=start.run,
            rank=str(start.identity.rank),
            source="client",
            record=record,
            liveness=liveness,
            ending=start.ending,
            start_timestamp_seconds=date_start(start.identity),
            gpu_uuids=start.gpu_uuids,
            stall=judge_stall(record, now, is_stopped=liveness.state in _STOPPED)
            if is_alive
            else None,
            rates=measure_rates(record, now) if is_alive else Rates(),
            progress=measure_progress(record, is_alive=is_alive),
            slowness=slowness,
            alerts_seen=start.alerts_seen,
        )

    def _find_runs(
        self, deadline: float, now: Moment, complaints: list[str]
    ) -> tuple[list[FoundRun], int]:
        """Read what others write about runs; a file system that hangs costs these runs alone."""
        found: list[FoundRun] = []
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
                complaints.append(_explain_bug(name, outcome.error))
                continue
            omitted += finder.omitted
            if finder.complaint is not None:
                complaints.append(finder.complaint)
            found += [
                run for run in outcome.value or () if is_recent(run, now.wall_time, DEAD_SECONDS)
            ]
        return found, omitted

    def _describe_runs(self, ranks: Iterable[RankReading]) -> list[RunReading]:
        by_run: dict[str, list[RankReading]] = {}
        for rank in ranks:
            by_run.setdefault(rank.run, []).append(rank)
        return [self._describe_run(run, of_run) for run, of_run in by_run.items()]

    def _describe_run(self, run: str, ranks: Sequence[RankReading]) -> RunReading:
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
            exits=self._starts.deaths.count_exits(run),
            losses=self._ledger.find(run),
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


def _explain_bug(name: str, error: Exception) -> str:
    return f"{name} failed: {type(error).__name__}: {error}"


def _make_task(finder: FindsRuns, until: float) -> Callable[[], Sequence[FoundRun]]:
    return lambda: finder.read(until)


def _list_attempts(starts: Iterable[Start]) -> list[Attempt]:
    return [
        Attempt(
            key=start.key,
            run=start.run,
            rank=str(start.identity.rank),
            created_time=start.identity.created_time,
            record=start.file.record,
            is_alive=start.ending is None,
        )
        for start in starts
        if not start.is_settled
    ]
