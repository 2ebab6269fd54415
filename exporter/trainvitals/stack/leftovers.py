"""The processes of a stack, found without asking the supervisor.

supervisord hands an environment variable down to all that it starts, so they are found even after
it was killed and their parent is the init process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from trainvitals.stack.supervision import MARK

_KILL_SECONDS = 5.0
_STEP_SECONDS = 0.05


def marked_processes(state_dir: Path) -> dict[psutil.Process, str]:
    """Find the processes of the stack in a state directory.

    Returns:
        Each process with the name of its program; `supervisord` for the supervisor itself.
    """
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    named = {
        process: _read_name(process, state_dir)
        for process in psutil.process_iter()
        if process.pid not in ours
    }
    return {process: name for process, name in named.items() if name is not None}


def _read_name(process: psutil.Process, state_dir: Path) -> str | None:
    try:
        environ = process.environ()
        if environ.get(MARK) == str(state_dir) and _sees_same_files(process, state_dir):
            return environ.get("SUPERVISOR_PROCESS_NAME", "supervisord")
    except (psutil.Error, OSError):  # it has just ended, or is another user's
        return None
    return None


def _sees_same_files(process: psutil.Process, state_dir: Path) -> bool:
    # In a container the same path is another directory, and another stack; a program with a private
    # view of some other path is ours.
    return Path(f"/proc/{process.pid}/root{state_dir}").samefile(state_dir)


def end_processes(
    processes: list[psutil.Process], *, terminate_seconds: float = 15.0
) -> list[psutil.Process]:
    """Ask the processes to stop, then kill those that have not in time.

    Returns:
        Those that are still there.
    """
    for process in processes:
        _signal(process, "terminate")
    left = wait_until_gone(processes, terminate_seconds)
    for process in left:
        _signal(process, "kill")
    return wait_until_gone(left, _KILL_SECONDS)


def wait_until_gone(
    processes: list[psutil.Process], patience_seconds: float
) -> list[psutil.Process]:
    """Wait for the end of processes and give those that are still there."""
    deadline = time.monotonic() + patience_seconds
    while left := [process for process in processes if _lives(process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(_STEP_SECONDS)
    return []


def _signal(process: psutil.Process, act: str) -> None:
    try:
        getattr(process, act)()
    except psutil.Error:
        return


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
