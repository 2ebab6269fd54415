"""Read runs without the training client from files that flags name or processes write."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.reading import FollowedFiles
from trainvitals.workers import WorkerPool

if TYPE_CHECKING:
    from trainvitals.sources.runs.discovery import FoundFile
    from trainvitals.sources.runs.file_source import FileSource
    from trainvitals.sources.runs.held_files import HeldFiles
    from trainvitals.sources.runs.patterns import Pattern
    from trainvitals.sources.runs.scalars import FoundRun

_FOUND_SECONDS = 1.0
_STUCK_SECONDS = 10.0
_SEARCH = "working folders of processes"
_EVENTS, _LINES, _MLFLOW = "--tensorboard.logdir", "--trainlog.glob", "mlruns"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The files from which runs without the training client are read.

    Attributes:
        logdirs: The directories that are searched for TensorBoard event files.
        globs: The path patterns of log files.
        patterns: The path of a file with log line patterns, which are tried before the built-in
            patterns; None if only the built-in patterns are used.
        follows_processes: Whether the files of processes that hold accelerators are read as well.
        users: The users whose files are read.
        procfs: The path of `/proc`.
    """

    logdirs: tuple[Path, ...] = ()
    globs: tuple[str, ...] = ()
    patterns: Path | None = None
    follows_processes: bool = True
    users: Users = Users()  # noqa: RUF009 - immutable
    procfs: Path = Path("/proc")


class Finders:
    """Reads runs from the files that flags name and from the files that processes write.

    The module for a kind of file is imported when the first file of that kind is found, so that an
    exporter without such files does not load the module.

    Args:
        options: The files to read.
        machine: The machine state, which contains the processes that hold accelerators.
        clock: A function that returns the current time, in Unix seconds.

    Raises:
        ConfigurationError: The pattern file cannot be used.
    """

    def __init__(
        self, options: FileOptions, machine: MachineState, clock: Callable[[], float]
    ) -> None:
        self._options = options
        self._machine = machine
        self._clock = clock
        self._patterns = read_line_patterns(options)
        self._held: HeldFiles | None = None
        self._finders: dict[str, FileSource[Any]] = {}
        self._pool = WorkerPool(name="files", limit=4)
        if options.logdirs:
            self._add(_EVENTS)
        if options.globs:
            self._add(_LINES)

    def use_patterns(self, patterns: Sequence[Pattern]) -> None:
        """Replace the log line patterns."""
        self._patterns = tuple(patterns)
        for finder in self._finders.values():
            finder.use_patterns(patterns)

    def read(
        self, instrumented: Collection[int], deadline: float, complaints: list[str]
    ) -> tuple[list[FoundRun], int, FollowedFiles]:
        """Read all files.

        If a file system does not respond, only runs in the affected kind of file are missing.

        Args:
            instrumented: The PIDs of the processes that have a run file.
            deadline: The monotonic time by which the method returns.
            complaints: The list to which the reasons for incomplete readings are added.

        Returns:
            The runs, the number of runs that were left out, and the state of the files.
        """
        until = min(deadline, time.monotonic() + _FOUND_SECONDS)
        tasks = self._list_tasks(frozenset(instrumented), until)
        if not tasks:
            return [], 0, FollowedFiles()
        found: list[FoundRun] = []
        omitted = 0
        for name, outcome in self._pool.gather(tasks, until - time.monotonic()).items():
            if name == _SEARCH and outcome.late and not self._is_stuck():
                continue
            if outcome.late:
                complaints.append(f"{name} could not be read in time; check its file system")
                continue
            if outcome.error is not None:
                error = outcome.error
                complaints.append(f"{name} failed: {type(error).__name__}: {error}")
                continue
            finder = self._finders.get(name)
            if finder is not None:
                omitted += finder.omitted
                if finder.complaint is not None:
                    complaints.append(finder.complaint)
            found += outcome.value or ()
        self._add_needed()
        return self._leave_out(found, frozenset(instrumented)), omitted, self._judge()

    def close(self) -> None:
        """Close all files, and stop the background threads."""
        for name, finder in self._finders.items():
            if not self._pool.is_running(name):  # a blocked read ends only when this process exits
                finder.close()
        self._pool.close()

    def _list_tasks(
        self, instrumented: frozenset[int], until: float
    ) -> dict[str, Callable[[], Sequence[FoundRun]]]:
        tasks: dict[str, Callable[[], Sequence[FoundRun]]] = {
            name: partial(finder.read, until) for name, finder in self._finders.items()
        }
        if not self._options.follows_processes:
            return tasks
        holders = self._machine.holders()
        if self._held is None and holders:
            from trainvitals.sources.runs.held_files import (  # noqa: PLC0415 - with the first process
                HeldFiles,
            )

            self._held = HeldFiles(
                procfs=self._options.procfs, users=self._options.users, clock=self._clock
            )
        if self._held is not None and self._held.is_due(holders):
            tasks[_SEARCH] = partial(_search, self._held, tuple(holders), instrumented)
        return tasks

    def _is_stuck(self) -> bool:
        """Return whether the search for files has been running for more than ten seconds."""
        started_at = None if self._held is None else self._held.started_at
        return started_at is not None and time.monotonic() - started_at > _STUCK_SECONDS

    def _leave_out(self, found: list[FoundRun], instrumented: frozenset[int]) -> list[FoundRun]:
        """Return the runs, except the runs that a run file or another file describes."""
        if self._held is None:
            return found
        from trainvitals.sources.runs.held_runs import choose_held  # noqa: PLC0415 - as above

        return choose_held(found, self._held.find_instrumented(instrumented))

    def _judge(self) -> FollowedFiles:
        """Return which files were understood, were not understood, or could not be read."""
        files = [file for finder in self._finders.values() for file in finder.files]
        understood = [file for file in files if file.state == "understood"]
        places = {file.place for file in understood} - {""}
        return FollowedFiles(
            understood=len(understood),
            not_understood=tuple(
                file.path
                for file in files
                if file.state == "not_understood" and file.is_expected and file.place not in places
            ),
            unreadable=sum(file.state == "unreadable" for file in files),
            unmatched=tuple(
                f"{name} {value}"
                for name, finder in self._finders.items()
                for value in finder.unmatched
            ),
        )

    def _add_needed(self) -> None:
        """Add a reader for each new kind of file that processes write."""
        if self._held is not None:
            for name in {_name_kind(file) for file in self._held.files} - self._finders.keys():
                self._add(name)

    def _select(self, kind: str) -> Iterable[FoundFile]:
        files = () if self._held is None else self._held.files
        return [file for file in files if _name_kind(file) == kind]

    def _add(self, name: str) -> None:
        options, held = self._options, partial(self._select, name)
        if name == _EVENTS:
            from trainvitals.sources.runs.eventfiles import EventFileSource  # noqa: PLC0415

            self._finders[name] = EventFileSource(
                options.logdirs, clock=self._clock, users=options.users, held=held
            )
        elif name == _MLFLOW:
            from trainvitals.sources.runs.mlflow import MlflowSource  # noqa: PLC0415

            self._finders[name] = MlflowSource(clock=self._clock, held=held)
        else:
            from trainvitals.sources.runs.log_files import LogLineSource  # noqa: PLC0415
            from trainvitals.sources.runs.profiles import PROFILES  # noqa: PLC0415

            self._finders[name] = LogLineSource(
                options.globs,
                patterns=self._patterns or PROFILES,
                clock=self._clock,
                users=options.users,
                held=held,
            )


def read_line_patterns(options: FileOptions) -> tuple[Pattern, ...]:
    """Return the log line patterns; an empty tuple if no pattern file is given.

    Raises:
        ConfigurationError: The pattern file cannot be used.
    """
    if options.patterns is None:
        return ()
    from trainvitals.sources.runs.patterns import read_patterns  # noqa: PLC0415 - few need it
    from trainvitals.sources.runs.profiles import PROFILES  # noqa: PLC0415 - as above

    return (*read_patterns(options.patterns), *PROFILES)


def _search(
    held: HeldFiles, holders: Iterable[int], instrumented: Iterable[int]
) -> Sequence[FoundRun]:
    held.search(holders, instrumented)
    return ()


def _name_kind(file: FoundFile) -> str:
    from trainvitals.sources.runs.held_files import is_event_file, is_mlflow  # noqa: PLC0415

    if is_event_file(file):
        return _EVENTS
    return _MLFLOW if is_mlflow(file) else _LINES
