"""Controls supervisord through a Unix socket, and finds the stack's processes without supervisord.

Client and server address the socket through `/proc`, because the path of a Unix socket is limited
to 107 bytes and the path of a state directory may be longer.
"""

from __future__ import annotations

import http.client
import os
import shlex
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psutil

from trainvitals.errors import ConfigurationError, StackError
from trainvitals.stack.accounts import DATA
from trainvitals.stack.programs import Program
from trainvitals.stack.writing import make_private, write_private

MARK = "TRAINVITALS_STACK"
SOCKET = "supervisor.sock"
PIDFILE = "supervisord.pid"
STARTED = frozenset({"starting", "running"})
_CONFIG = "supervisord.conf"
_TIMEOUT_SECONDS = 10.0
_FAULT_NOT_RUNNING = 6  # SHUTDOWN_STATE

_HEADER = f"""\
[unix_http_server]
file=/proc/self/cwd/{SOCKET}
chmod=0700

[supervisord]
logfile=logs/supervisord.log
logfile_maxbytes=1MB
pidfile={PIDFILE}
childlogdir=logs

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""

# supervisord restarts a failing program with increasing delays, for 1.5 hours in total.
_PROGRAM = """
[program:{name}]
command={command}
autorestart=true
startretries=100
stopwaitsecs=15
stopasgroup=true
killasgroup=true
redirect_stderr=true
stdout_logfile=logs/{name}.log
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=2
{user}{environment}"""
_KILL_SECONDS = 5.0
_STEP_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A program's state according to the supervisor.

    Attributes:
        name: The program's name.
        state: The state's name in supervisord in lower case: running, starting, backoff, fatal,
            exited, …
        pid: The process ID of the program; None while the program is not running.
    """

    name: str
    state: str
    pid: int | None


def start_supervisor(
    state_dir: Path, programs: tuple[Program, ...], environ: Mapping[str, str] = os.environ
) -> None:
    """Start supervisord, which starts the programs, and wait until supervisord has started.

    Raises:
        ConfigurationError: A path contains characters that supervisord's configuration forbids.
        StackError: supervisord cannot be started.
    """
    # The programs would create these directories with the default mode.
    for directory in ("logs", *(DATA[each.name] for each in programs if each.name in DATA)):
        make_private(state_dir / directory)
    # This process may run under another supervisord, whose variables must not be inherited.
    inherited = {name: value for name, value in environ.items() if name[:11] != "SUPERVISOR_"}
    write_private(state_dir / _CONFIG, render_config(programs))
    result = subprocess.run(
        (sys.executable, "-m", "supervisor.supervisord", "-c", _CONFIG),
        cwd=state_dir,
        env={**inherited, MARK: str(state_dir)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        check=False,
    )
    if result.returncode:
        words = result.stdout.strip().splitlines() or ["no message"]
        # The error message is followed by a reference to --help.
        complaint = next((line for line in words if line.startswith("Error:")), words[-1])
        raise StackError(f"supervisord does not start in {state_dir}: {complaint}")


def render_config(programs: tuple[Program, ...]) -> str:
    """Return the text of supervisord's configuration for the programs.

    Raises:
        ConfigurationError: A command or a variable contains characters that the format forbids.
    """
    sections = (
        _PROGRAM.format(
            name=program.name,
            command=_format_command(program.command),
            user=f"user={program.user}\n" if program.user else "",
            environment=_format_environment(program.environment),
        )
        for program in programs
    )
    return _HEADER + "".join(sections)


def _format_command(command: tuple[str, ...]) -> str:
    text = shlex.join(command)
    if any(sign in text for sign in ("\n", "\r", " ;", " #", "\t;", "\t#")):
        raise ConfigurationError(
            f"cannot supervise {text!r}: use paths without line breaks, ' ;' and ' #'"
        )
    return text.replace("%", "%%")


def _format_environment(environment: Mapping[str, str]) -> str:
    """Format a program's variables for supervisord, which allows no double quotes in a value.

    Raises:
        ConfigurationError: A value contains characters that the format forbids.
    """
    for name, value in environment.items():
        if any(sign in value for sign in ('"', "\n", "\r")):
            raise ConfigurationError(
                f"cannot pass on {name}={value!r}: use values without double quotes and line breaks"
            )
    written = (f'{name}="{value.replace("%", "%%")}"' for name, value in environment.items())
    return f"environment={','.join(written)}\n" if environment else ""


def ask_states(state_dir: Path) -> tuple[ProcessState, ...] | None:
    """Return the states of the programs that the supervisor runs.

    Returns:
        The state of each program; None if no supervisor responds.
    """
    try:
        with _connect(state_dir) as proxy:
            processes = proxy.supervisor.getAllProcessInfo()
    except (OSError, http.client.HTTPException, xmlrpc.client.Error):
        return None
    return tuple(
        ProcessState(str(each["name"]), str(each["statename"]).lower(), int(each["pid"]) or None)
        for each in cast("list[dict[str, str | int]]", processes)
    )


def request_shutdown(state_dir: Path) -> bool:
    """Request that the supervisor stop its programs and exit.

    Returns:
        Whether the supervisor accepted the request; False if no supervisor responds.
    """
    try:
        with _connect(state_dir) as proxy:
            # Without waiting, so that all programs stop at the same time.
            proxy.supervisor.stopAllProcesses(False)  # noqa: FBT003 - XML-RPC has no keywords
            proxy.supervisor.shutdown()
    except xmlrpc.client.Fault as fault:
        return fault.faultCode == _FAULT_NOT_RUNNING
    except (OSError, http.client.HTTPException, xmlrpc.client.Error):
        return False
    return True


@contextmanager
def _connect(state_dir: Path) -> Iterator[xmlrpc.client.ServerProxy]:
    directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{directory}/{SOCKET}"
        with xmlrpc.client.ServerProxy("http://localhost/RPC2", _Transport(path)) as proxy:
            yield proxy
    finally:
        os.close(directory)


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._to_socket = _Connection(path)

    def make_connection(self, host: object) -> http.client.HTTPConnection:  # noqa: ARG002 - there is one
        return self._to_socket

    def close(self) -> None:
        self._to_socket.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def find_processes(state_dir: Path) -> dict[psutil.Process, str]:
    """Return the processes of the stack with the given state directory.

    Returns:
        The processes, with the name of each process's program; the supervisor's name is
        `supervisord`.
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
    except (psutil.Error, OSError):  # The process has ended, or belongs to another user.
        return None
    return None


def _sees_same_files(process: psutil.Process, state_dir: Path) -> bool:
    # In a container, the same path may denote another directory, so that a process in the container
    # may belong to another stack. A program with a private view of `/usr/share` belongs to this
    # stack.
    return Path(f"/proc/{process.pid}/root{state_dir}").samefile(state_dir)


def terminate_processes(
    processes: list[psutil.Process], *, terminate_seconds: float = 15.0
) -> list[psutil.Process]:
    """Terminate processes, and kill the processes that do not exit in time.

    Returns:
        The processes that are still alive after both signals.
    """
    for process in processes:
        _signal(process, "terminate")
    left = wait_until_gone(processes, terminate_seconds)
    for process in left:
        _signal(process, "kill")
    return wait_until_gone(left, _KILL_SECONDS)


def wait_until_gone(
    processes: list[psutil.Process], timeout_seconds: float
) -> list[psutil.Process]:
    """Wait until processes have exited, and return the processes that are still alive."""
    deadline = time.monotonic() + timeout_seconds
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
