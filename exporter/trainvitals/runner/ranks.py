"""Follows the run files of a command's processes, and records how the processes ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.runs.deaths import date_end, determine_file, is_exit_known
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.endings import read_ending, write_ending
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.processes import Exit
from trainvitals.sources.runs.rankfile import FileKey
from trainvitals.sources.runs.seen_files import SeenFile

Exits = Mapping[tuple[int, int], Exit]


class RankFollower:
    """Follows the run files of a command's processes, and writes notes about how the processes end.

    The kernel reports the exits of the command and of adopted orphans to this process. For a short
    time, the kernel also reports the exits of other processes of the same user; see `Watch`. A note
    that the exporter has written is replaced only if the note does not contain the exit.

    Args:
        run_dir: The run directory.
        clock: A function that returns the current time, in Unix seconds.
        since_ns: The time on CLOCK_MONOTONIC, in nanoseconds, before which the command had not
            started. An older run file belongs to an earlier process with the same PID.

    Attributes:
        runs: The run name of each process that reported, by PID.
        living: The PIDs of the processes that reported and have not ended.
    """

    def __init__(self, run_dir: Path, clock: Callable[[], float], since_ns: int) -> None:
        user = os.geteuid()
        self._directory = RunDirectory(run_dir, users=Users(((user, user),)))
        self._clock = clock
        self._since_ns = since_ns
        self._noted: set[object] = set()
        self._met: set[object] = set()
        self.runs: dict[int, str] = {}
        self.living: set[int] = set()

    def look(self, pids: Collection[int], exits: Exits) -> None:
        """Read the run files, and write notes about the processes that have ended.

        Args:
            pids: The PIDs of all processes that were seen below the command.
            exits: The exits of this process's children, by PID and start time in clock ticks.
        """
        living = set()
        now = self._clock()
        with suppress(SourceError):
            files = self._directory.read(now).files
            lives = _find_last_lives(files)
            for file in files:
                identity, pid = file.record.identity, file.liveness.host_pid
                if identity is None or pid is None or pid not in pids:
                    continue
                if identity.created_mono_ns < self._since_ns:  # the PID was reused
                    continue
                self.runs[pid] = identity.run
                if file.liveness.is_alive:
                    living.add(pid)
                    self._met.add(file.key)
                elif file.key not in self._noted and file.key in lives:
                    self._note(file, exits.get((pid, identity.start_ticks)), now)
        self.living = living

    def close(self) -> None:
        """Close the run directory and its run files."""
        self._directory.close()

    def _note(self, file: SeenFile, exit_: Exit | None, now: float) -> None:
        known = read_ending(file.path) if file.can_be_noted else None
        if known is not None and is_exit_known(known):
            self._noted.add(file.key)
            return
        liveness = replace(file.liveness, exit=file.liveness.exit or exit_)
        when = date_end(file, now, died_here=file.key in self._met)
        ending = determine_file(replace(file, liveness=liveness), when)
        if file.can_be_noted and is_exit_known(ending):
            machine = {} if known is None else known.machine
            write_ending(file.path, replace(ending, machine=machine))
            self._noted.add(file.key)


def _find_last_lives(files: Iterable[SeenFile]) -> set[FileKey]:
    """Return the key of each process's last run file.

    A process that calls `exec` may create more than one run file.
    """
    lives: dict[tuple[int, int], tuple[float, FileKey]] = {}
    for file in files:
        identity = file.record.identity
        if identity is not None:
            process = identity.pid, identity.start_ticks
            life = identity.created_time, file.key
            lives[process] = max(lives.get(process, life), life, key=lambda each: each[0])
    return {key for _, key in lives.values()}
