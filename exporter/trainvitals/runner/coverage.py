"""Which processes below a command report their training, and which Python was not reached."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from trainvitals.foreign_files import read_regular
from trainvitals.runfile import FILE_BYTES, SUFFIX, RunFileError
from trainvitals.runfile.codec import decode_header
from trainvitals.units import count_noun

# Options by which Python ignores PYTHONPATH or imports no `sitecustomize`.
_PREVENTING = frozenset("IES")


@dataclass(slots=True)
class Coverage:
    """The processes that were seen below a command.

    Attributes:
        pids: The PIDs of all processes.
        unreached: For each Python process that cannot report by itself, the reason.
    """

    pids: set[int] = field(default_factory=set)
    unreached: dict[int, str] = field(default_factory=dict)

    def look(self, pid: int) -> None:
        """Look at the processes below a process; processes that live for less than a look are missed."""
        try:
            main = psutil.Process(pid)
            processes = [main, *main.children(recursive=True)]
        except psutil.Error:
            processes = []
        self.pids |= {pid, *(process.pid for process in processes)}
        for process in processes:
            if process.pid not in self.unreached and (why := _find_obstacle(process)):
                self.unreached[process.pid] = why

    def describe(self, run_dir: Path) -> str:
        """Return one line about the processes that report and those that were not reached.

        Args:
            run_dir: The directory of the run files.
        """
        found = [run for pid, run in _list_reports(run_dir) if pid in self.pids]
        seen = count_noun(len(self.pids), "process", "processes")
        if not found:
            said = f"{seen}, none of which proved to train"
        else:
            runs = ", ".join(sorted(set(found)))
            said = f"{seen}, {len(found)} of which reported run {runs}"
        reasons = sorted(set(self.unreached.values()))
        missed = f"; not reached: {', '.join(reasons)}" if reasons else ""
        return said + missed


def _find_obstacle(process: psutil.Process) -> str:
    """Return why a Python process cannot report by itself; empty if it can or is no Python."""
    try:
        words, name = process.cmdline(), process.name()
        if not name.startswith("python") or len(words) < 2:  # noqa: PLR2004 - a program and an option
            return ""
        is_told = "TRAINVITALS_AUTOLOG" in process.environ()
    except psutil.Error:
        return ""
    for word in words[1:]:
        if not word.startswith("-") or word.startswith("--") or word in {"-c", "-m"}:
            break
        if _PREVENTING & set(word[1:]):
            return f"{name} {word}"
    return "" if is_told else f"{name} without the environment of the command"


def _list_reports(run_dir: Path) -> Iterator[tuple[int, str]]:
    """Yield the PID and the run name of each run file of this user."""
    for path in _list_files(run_dir):
        try:
            if path.lstat().st_uid != os.getuid():
                continue
            identity = decode_header(read_regular(path, FILE_BYTES, follows=False))
        except (OSError, RunFileError):
            continue
        yield identity.pid, identity.run


def _list_files(run_dir: Path) -> Iterable[Path]:
    try:
        return sorted(run_dir.glob(f"*{SUFFIX}"))
    except OSError:
        return ()
