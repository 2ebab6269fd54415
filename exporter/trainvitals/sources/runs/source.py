"""Read all training runs on this machine, from run files, event files and logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.finders import FileOptions, Finders, read_line_patterns
from trainvitals.sources.runs.liveness import read_host
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.moment import Moment
from trainvitals.sources.runs.namespaces import ContainerDirectories
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.ownership import DEFAULT_RUN_DIR, OwnershipCheck
from trainvitals.sources.runs.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.runs.seen_files import DirectoryReading
from trainvitals.sources.runs.subordinates import Subordinates
from trainvitals.workers import WorkerPool

if TYPE_CHECKING:
    from trainvitals.sources.runs.ranks import RankReader

# The first reading may have to open many files. The timeout of later readings is shorter than the
# time that the runner waits for a collector that was always fast.
_FIRST_CONTAINER_SECONDS, _CONTAINER_SECONDS = 2.0, 0.25
_CONTAINERS = "containers"
# Reading all processes takes 20 us per process. The search therefore runs once a minute, and a new
# container's runs are found up to a minute late.
_SEARCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """The locations of runs, and the options for reading them.

    Attributes:
        run_dir: The run directory.
        logdirs: The directories that are searched for TensorBoard event files.
        globs: The path patterns of log files.
        patterns: The path of a file with log line patterns, which are tried before the built-in
            patterns; None if only the built-in patterns are used.
        follows_processes: Whether the files of processes that hold accelerators are read as well.
        baselines: The path of a file with the expected values for runs; None if no values are
            expected.
        users: The users whose run files are read.
    """

    run_dir: Path = DEFAULT_RUN_DIR
    logdirs: tuple[Path, ...] = ()
    globs: tuple[str, ...] = ()
    patterns: Path | None = None
    follows_processes: bool = True
    baselines: Path | None = None
    users: Users = Users()  # noqa: RUF009 - immutable


class TrainingSource:
    """Reads all training runs on this machine.

    Args:
        options: The locations of runs, and the options for reading them.
        roots: The paths of the host's `/proc` and `/sys`.
        machine: The machine state, which contains the accelerators that processes hold.
        clock: A function that returns the current time, in Unix seconds.
        monotonic_ns: A function that returns CLOCK_MONOTONIC in nanoseconds.
        reloads: A function that returns the number of requests so far to reload the pattern and
            baselines files.

    Raises:
        ConfigurationError: The pattern file or the baselines file cannot be used.
    """

    def __init__(
        self,
        options: TrainingOptions,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        machine: MachineState | None = None,
        clock: Callable[[], float] = time.time,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        reloads: Callable[[], int] = lambda: 0,
    ) -> None:
        subordinates = Subordinates(roots.rootfs / "etc/subuid")
        options = replace(options, users=replace(options.users, subordinates=subordinates))
        self._options = options
        self._reloads = reloads
        self._reloaded = reloads()
        self._reload_complaint: str | None = None
        self._clock = clock
        self._monotonic_ns = monotonic_ns
        self._host = read_host(procfs=roots.procfs, cgroupfs=roots.sysfs / "fs/cgroup")
        self._directory = RunDirectory(options.run_dir, host=self._host, users=options.users)
        self._ownership = OwnershipCheck(options.run_dir)
        self._containers = ContainerDirectories(
            options.run_dir.absolute(),
            host=self._host,
            search_seconds=_SEARCH_SECONDS,
            users=options.users,
        )
        self._has_searched = False
        self._machine = machine or MachineState(roots=roots)
        self._file_options = FileOptions(
            logdirs=options.logdirs,
            globs=options.globs,
            patterns=options.patterns,
            follows_processes=options.follows_processes,
            users=options.users,
            procfs=roots.procfs,
        )
        self._finders = Finders(self._file_options, self._machine, clock)
        self._expect = _make_expectation(options)
        self._pool = WorkerPool(name="runs", limit=1)
        self._ranks: RankReader | None = None

    def read(self, deadline: float) -> RunsReading:
        """Read all runs before a deadline on the monotonic clock."""
        now = Moment(self._clock(), self._monotonic_ns(), self._host.boot_id)
        if self._reloaded != self._reloads():
            self._reload()
        complaints = [] if self._reload_complaint is None else [self._reload_complaint]
        readings = self._read_directories(deadline, now, complaints)
        files = [file for reading in readings for file in reading.files]
        pids = [file.liveness.host_pid for file in files if file.liveness.host_pid is not None]
        found, found_omitted, followed = self._finders.read(pids, deadline, complaints)
        ranks: Sequence[RankReading] = ()
        runs: Sequence[RunReading] = ()
        left_out, living_left_out = 0, 0
        if files or found or self._ranks is not None:
            ranks, runs, (left_out, living_left_out) = self._load_ranks().read(files, found, now)
            runs = self._expect(runs, ranks)
        return RunsReading(
            ranks=tuple(ranks),
            runs=tuple(runs),
            incompatible_files=sum(reading.incompatible for reading in readings),
            omitted=sum(reading.omitted for reading in readings) + found_omitted + left_out,
            omitted_alive=sum(reading.omitted_alive for reading in readings) + living_left_out,
            followed=followed,
            complaint="; ".join(complaints) or None,
        )

    def _reload(self) -> None:
        """Reload the pattern and baselines files; if either is invalid, keep the previous state."""
        self._reloaded = self._reloads()
        try:
            expect = _make_expectation(self._options)
            patterns = read_line_patterns(self._file_options)
        except ConfigurationError as error:
            self._reload_complaint = f"{error} (the previous configuration stays in force)"
            return
        self._reload_complaint = None
        self._expect = expect
        if patterns:
            self._finders.use_patterns(patterns)

    def _load_ranks(self) -> RankReader:
        if self._ranks is None:
            from trainvitals.sources.runs.ranks import RankReader  # noqa: PLC0415 - with the first run

            self._ranks = RankReader(self._machine, self._options.users)
        return self._ranks

    def close(self) -> None:
        """Close all files, and stop reading in the background."""
        self._directory.close()
        if not self._pool.is_running(_CONTAINERS):  # a blocked read ends with this process
            self._containers.close()
        self._finders.close()
        self._pool.close()

    def _read_directories(
        self, deadline: float, now: Moment, complaints: list[str]
    ) -> list[DirectoryReading]:
        readings = [
            *self._read_own(now, complaints),
            *self._read_containers(deadline, now, complaints),
        ]
        if any(reading.is_short for reading in readings):
            complaints.append(
                "some run files could not be opened, for too many files are open; raise LimitNOFILE"
            )
        return readings

    def _read_own(self, now: Moment, complaints: list[str]) -> list[DirectoryReading]:
        if (kept_away := self._ownership.complain()) is not None:
            complaints.append(kept_away)
        try:
            reading = self._directory.read(now.wall_time)
        except SourceError as error:
            complaints.append(str(error))
            return []
        if reading.is_part:
            complaints.append(
                f"{self._directory.path} has so many names that a part is looked at in each reading; "
                "remove what is no run file, and the files of old runs"
            )
        self._directory.discard(now.wall_time)
        return [reading]

    def _read_containers(
        self, deadline: float, now: Moment, complaints: list[str]
    ) -> Sequence[DirectoryReading]:
        """Read the runs in containers; a file system that hangs affects only these runs."""
        if self._containers.is_idle(now.wall_time):
            return ()
        task = partial(self._containers.read, now.wall_time)
        seconds = _CONTAINER_SECONDS if self._has_searched else _FIRST_CONTAINER_SECONDS
        self._has_searched = True
        patience = min(seconds, deadline - time.monotonic())
        outcome = self._pool.gather({_CONTAINERS: task}, patience)[_CONTAINERS]
        if outcome.late:
            complaints.append(
                "run directories in containers could not be read in time; check what is mounted there"
            )
        elif outcome.error is not None:
            complaints.append(_explain_bug("reading of containers", outcome.error))
        return outcome.value or ()


def _make_expectation(
    options: TrainingOptions,
) -> Callable[[Sequence[RunReading], Sequence[RankReading]], Sequence[RunReading]]:
    """Return a function that adds the expected values from the baselines file to runs."""
    if options.baselines is None:
        return lambda runs, _: runs
    from trainvitals.sources.runs.baselines import (  # noqa: PLC0415 - few machines need it
        add_expected,
        read_baselines,
    )

    return partial(add_expected, read_baselines(options.baselines))


def _explain_bug(name: str, error: Exception) -> str:
    return f"{name} failed: {type(error).__name__}: {error}"
