"""Finds the training run that was last seen on this machine, and the run's interpreter.

A run file does not contain the path of the interpreter. Therefore the interpreter is known only
while the run is alive.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.machine import Machine, name_user
from trainvitals.errors import SourceError
from trainvitals.sources.runs.history import RunHistory, read_run_history
from trainvitals.sources.runs.liveness import read_host
from trainvitals.sources.runs.owners import read_users
from trainvitals.sources.runs.past_runs import Start

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


@dataclass(frozen=True, slots=True)
class LastRun:
    """The training run that was last seen on the machine.

    Attributes:
        name: The name of the run.
        time: The time at which the run was last seen, in Unix seconds.
        is_alive: Whether the run's process is still alive.
        framework: The framework that the run's client reported, such as `torch`; `python` if the
            client reported no framework.
        framework_version: The version of the framework, or of Python if the client reported no
            framework.
        python: The interpreter of the run's process; None if the interpreter is unknown, or if it
            must not be run.
        reason: The reason why `python` is None; empty if `python` is known.
    """

    name: str
    time: float
    is_alive: bool
    framework: str
    framework_version: str
    python: Path | None
    reason: str = ""


def find_last_run(machine: Machine) -> LastRun | None:
    """Return the run that was last seen on this machine; None if no run file is readable."""
    try:
        history = read_run_history(
            machine.run_directory,
            users=read_users(),
            host=read_host(procfs=machine.roots.procfs),
            clock=machine.clock,
        )
    except SourceError:
        return None
    starts = [start for run in history.runs for start in run.starts]
    if not starts:
        return None
    last = max(starts, key=lambda start: (_find_time(start, history), start.made_time))
    python, reason = _find_python(last, machine)
    return LastRun(
        name=last.run,
        time=_find_time(last, history),
        is_alive=last.ending is None,
        framework=last.static.get("framework", ""),
        framework_version=last.static.get("framework_version", ""),
        python=python,
        reason=reason,
    )


def _find_time(start: Start, history: RunHistory) -> float:
    return history.time if start.ending is None else start.ending.time


def _find_python(start: Start, machine: Machine) -> tuple[Path | None, str]:
    """Return a process's interpreter and "", or None and why the interpreter is not used.

    The interpreter of another user is not used, because it could be any program.
    """
    pid = start.liveness.host_pid
    if start.ending is not None or pid is None:
        return None, "it has ended"
    folder, own = machine.roots.procfs / str(pid), machine.roots.procfs / "self"
    try:
        user = folder.stat().st_uid
        if user != machine.user:
            return None, f"it belongs to {name_user(user)}"
        if (folder / "ns/mnt").stat().st_ino != (own / "ns/mnt").stat().st_ino:
            return None, "it is in a container"
        program = (folder / "exe").resolve(strict=True)
        found = (python for python in _list_names(folder) if _is_same(python, program))
        return next(found, program), ""
    except OSError:  # the process has just ended
        return None, "its process cannot be read"


def _list_names(folder: Path) -> Iterator[Path]:
    """Yield the interpreter paths that may have been used to start a process.

    The interpreter's path determines which packages are available: `bin/python` in a virtual
    environment is a link to the interpreter with which the environment was created.
    """
    name = (folder / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="surrogateescape")
    environ = _parse_environ((folder / "environ").read_bytes())
    if "/" in name:
        yield (folder / "cwd").readlink() / name
    elif name and (path := shutil.which(name, path=environ.get("PATH", ""))):
        yield Path(path)
    for variable in _ENVIRONMENTS:
        if variable in environ:
            yield Path(environ[variable], "bin/python")


def _parse_environ(data: bytes) -> Mapping[str, str]:
    lines = data.decode(errors="surrogateescape").split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _is_same(python: Path, program: Path) -> bool:
    try:
        return python.samefile(program)
    except (OSError, ValueError):
        return False
