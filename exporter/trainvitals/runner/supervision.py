"""Follows a command and the processes below it, and records how they ended.

A separate thread follows the processes. Therefore, a run directory that does not respond delays
neither signals nor the command's exit.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from trainvitals.runner.failures import FailureDirectory, choose_failure, choose_thread_failure
from trainvitals.sources.runs.launches import (
    MOST_ERROR_CHARACTERS,
    MOST_PIDS,
    MOST_RUNS,
    SUFFIX,
    Launch,
    encode_launch,
)
from trainvitals.training.launch import clean_name

if TYPE_CHECKING:  # imported once the command has started
    from trainvitals.runner.coverage import Coverage
    from trainvitals.runner.output import OutputLog
    from trainvitals.runner.ranks import RankFollower
    from trainvitals.sources.runs.processes import Exit

_LOOK_SECONDS = 0.5
_LONGEST_LOOK_SECONDS = 5.0
_GROWTH = 1.2
_END_SECONDS = 3.0
_OLD_SECONDS = 86400.0


class Supervision:
    """Follows the processes below a command.

    Args:
        run_dir: The run directory.
        name: The run name that the user gave; None if the user gave no name.
        output: The log of the command's output; None if the output is not logged.
        clock: A function that returns the current time, in Unix seconds.
        kmsg: The path of the kernel log's device, which is read if SIGKILL ended the command.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        name: str | None = None,
        output: OutputLog | None = None,
        clock: Callable[[], float] = time.time,
        kmsg: Path = Path("/dev/kmsg"),
    ) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._kmsg = kmsg
        self._since_ns = time.monotonic_ns()
        self.failures = FailureDirectory()
        self._launch = Launch(
            name=clean_name(name or "") or None,
            runs=(),
            started=clock(),
            log=None if output is None else str(output.path),
            log_start=0 if output is None else output.start,
        )
        self._written: Launch | None = None
        self._note = f"run.{os.getpid()}.{os.urandom(4).hex()}{SUFFIX}"
        self._exits: dict[tuple[int, int], Exit] = {}
        self._pid = 0
        self._wake, self._waker = os.pipe()
        self._thread = Thread(target=self._follow, daemon=True)
        self._coverage: Coverage | None = None
        self._ranks: RankFollower | None = None

    def begin(self, pid: int) -> None:
        """Start to follow the command with this PID."""
        self._pid = pid
        self._thread.start()

    def note_exit(self, pid: int, start_ticks: int, exit_: Exit) -> None:
        """Record that a child of this process has ended."""
        self._exits[pid, start_ticks] = exit_
        if pid == self._pid:
            self._launch = replace(
                self._launch, ended=self._clock(), exit_code=exit_.code, signal=exit_.signal
            )

    def resize(self) -> None:
        """Ignore the terminal's new size."""

    def end(self) -> str:
        """Write the last notes after the command has ended.

        Returns:
            A line that describes the processes. If a signal ended the command, the line also names
            the signal.
        """
        os.close(self._waker)
        self._thread.join(_END_SECONDS)
        of_jax = self.failures.list_users_of_jax()
        self.failures.close()
        if self._thread.is_alive() or self._coverage is None or self._ranks is None:
            said = "the run directory does not respond, so the processes were not counted"
        else:
            said = self._coverage.describe(self._ranks.runs, of_jax)
        return said + describe_signal_end(self._launch, self._pid, self._kmsg)

    def _follow(self) -> None:
        # Imported here, so that the imports do not delay the start of the command.
        from trainvitals.runner.coverage import Coverage  # noqa: PLC0415
        from trainvitals.runner.ranks import RankFollower  # noqa: PLC0415

        self._coverage = coverage = Coverage()
        self._ranks = ranks = RankFollower(self._run_dir, self._clock, self._since_ns)
        coverage.pids.add(self._pid)
        seconds = _LOOK_SECONDS
        is_over = False
        while not is_over:
            coverage.look()
            ranks.look(coverage.pids, self._exits)
            self._write_note()
            is_over = self._wait(seconds)
            seconds = min(seconds * _GROWTH, _LONGEST_LOOK_SECONDS)
        pids = coverage.pids | {pid for pid, _ in self._exits}
        ranks.look(pids, self._exits)
        self._launch = replace(
            self._launch, error=self._find_error(), pids=tuple(sorted(pids))[:MOST_PIDS]
        )
        self._write_note()
        ranks.close()

    def _wait(self, seconds: float) -> bool:
        """Wait for a new run file or a rank's exit, for at most some seconds.

        Returns:
            Whether the command has ended.
        """
        until = time.monotonic() + seconds
        before = _read_change(self._run_dir)
        with _Watches(self._ranks.living if self._ranks is not None else ()) as watches:
            while (left := until - time.monotonic()) > 0:
                ready = watches.wait(self._wake, min(left, _LOOK_SECONDS))
                if self._wake in ready:
                    return True
                if ready or _read_change(self._run_dir) != before:
                    break
        return False

    def _find_error(self) -> str | None:
        launch = self._launch
        if launch.exit_code == 0 or launch.ended is None or self._ranks is None:
            return None
        found = choose_failure(self.failures.read(), self._ranks.runs, launch.ended)
        return None if found is None else found.text[-MOST_ERROR_CHARACTERS:]

    def _write_note(self) -> None:
        """Write the launch note if the launch has a name or a run and the note has changed."""
        runs = sorted(set(self._ranks.runs.values()))[:MOST_RUNS] if self._ranks is not None else []
        found = choose_thread_failure(self.failures.read())
        thread_error = None if found is None else found.text[-MOST_ERROR_CHARACTERS:]
        self._launch = launch = replace(self._launch, runs=tuple(runs), thread_error=thread_error)
        if launch == self._written or not (launch.name or launch.runs):
            return
        from trainvitals.sources.runs.endings import write_note  # noqa: PLC0415 - see above
        from trainvitals.training.recorder import open_run_directory  # noqa: PLC0415

        with suppress(OSError):  # the run directory is full or read-only, which the ranks report
            folder = open_run_directory(self._run_dir)
            try:
                if self._written is None:
                    _discard_old(folder, self._clock() - _OLD_SECONDS)
                write_note(folder, self._note, encode_launch(launch), mode=0o600)
                self._written = launch
            finally:
                os.close(folder)


def describe_signal_end(launch: Launch, pid: int, kmsg: Path) -> str:
    """Return a clause that names the signal that ended a command; empty if no signal ended it.

    The clause names the sender of SIGKILL only if the kernel log contains an OOM kill of the
    command.
    """
    if launch.signal is None:
        return ""
    from trainvitals.sources.host.kernel_log import KernelLog  # noqa: PLC0415 - seldom needed
    from trainvitals.sources.runs.evidence import find_kills  # noqa: PLC0415
    from trainvitals.sources.signals import describe_signal  # noqa: PLC0415

    said = f"; {describe_signal(launch.signal)} ended the command"
    if launch.signal != signal.SIGKILL:
        return said
    with closing(KernelLog(kmsg)) as log:
        kills = find_kills(log.read(), (pid,), launch.ended)
    return f"{said}, sent by the kernel's OOM killer" if kills else f"{said}; its sender is unknown"


class _Watches:
    """Process file descriptors (pidfds) that report when processes end.

    Before Linux 6.15, the kernel reports how a process exited only until the process's parent has
    waited for the process. Therefore, the exit must be read immediately.
    """

    def __init__(self, pids: Collection[int]) -> None:
        self._descriptors: list[int] = []
        for pid in pids:
            with suppress(OSError, AttributeError):  # the process has ended, or Python is too old
                self._descriptors.append(os.pidfd_open(pid))

    def __enter__(self) -> _Watches:  # noqa: PYI034 - typing.Self requires 3.11
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def wait(self, wake: int, seconds: float) -> set[int]:
        """Return the descriptors that are ready; an empty set if the wait times out.

        Args:
            wake: An additional descriptor to wait for.
            seconds: The maximum time to wait, in seconds.
        """
        poll = select.poll()
        for descriptor in (wake, *self._descriptors):
            poll.register(descriptor, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll(seconds * 1000)}


def _read_change(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def _discard_old(folder: int, oldest: float) -> None:
    """Remove this user's old launch notes. The exporter also removes old launch notes.

    Args:
        folder: A descriptor of the run directory.
        oldest: A Unix time, in seconds. Notes that were last written before this time are removed.
    """
    for name in os.listdir(folder):
        with suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_ours = status.st_uid == os.geteuid() and name.endswith(SUFFIX)
            if is_ours and status.st_mtime < oldest:
                os.unlink(name, dir_fd=folder)
