"""The supervisor: it keeps the programs running and is asked through a Unix socket.

supervisord is started in the state directory, and both ends name its socket through `/proc`: the
path of a Unix socket may have 107 bytes at most, and a state directory may be deep.
"""

from __future__ import annotations

import http.client
import os
import shlex
import socket
import subprocess
import sys
import xmlrpc.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trainvitals.errors import ConfigurationError, StackError
from trainvitals.stack.programs import Program
from trainvitals.stack.writing import make_private, write_private

MARK = "TRAINVITALS_STACK"
SOCKET = "supervisor.sock"
PIDFILE = "supervisord.pid"
STARTED = frozenset({"starting", "running"})
_CONFIG = "supervisord.conf"
# Programs would make these themselves, and open to everybody.
_DATA = {"prometheus": "prometheus", "alertmanager": "alertmanager-data", "grafana": "grafana"}
_PATIENCE_SECONDS = 10.0
_FAULT_NOT_RUNNING = 6  # SHUTDOWN_STATE: it is on its way out

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

# A program that keeps failing is tried again ever more slowly, for an hour and a half in all.
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
{environment}"""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What the supervisor says about one program.

    Attributes:
        name: The program.
        state: supervisord's word in lower case: running, starting, backoff, fatal, exited, …
        pid: None while it does not run.
    """

    name: str
    state: str
    pid: int | None


def start_supervisor(
    state_dir: Path, programs: tuple[Program, ...], environ: Mapping[str, str] = os.environ
) -> None:
    """Start supervisord with the programs and return as soon as it takes questions.

    Raises:
        ConfigurationError: A path contains what supervisord's configuration cannot express.
        StackError: supervisord cannot be started.
    """
    for directory in ("logs", *(_DATA[each.name] for each in programs if each.name in _DATA)):
        make_private(state_dir / directory)
    # When a supervisor started us, its marks must not be taken for those of ours.
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
        # Its complaint is followed by a hint at its own --help.
        complaint = next((line for line in words if line.startswith("Error:")), words[-1])
        raise StackError(f"supervisord does not start in {state_dir}: {complaint}")


def render_config(programs: tuple[Program, ...]) -> str:
    """Write supervisord's configuration.

    Raises:
        ConfigurationError: A command or a variable contains what the format cannot express.
    """
    sections = (
        _PROGRAM.format(
            name=program.name,
            command=_express(program.command),
            environment=_express_environment(program.environment),
        )
        for program in programs
    )
    return _HEADER + "".join(sections)


def _express(command: tuple[str, ...]) -> str:
    text = shlex.join(command)
    if any(sign in text for sign in ("\n", "\r", " ;", " #", "\t;", "\t#")):
        raise ConfigurationError(
            f"cannot supervise {text!r}: use paths without line breaks, ' ;' and ' #'"
        )
    return text.replace("%", "%%")


def _express_environment(environment: Mapping[str, str]) -> str:
    """Write a program's variables; supervisord takes no double quote inside a quoted value.

    Raises:
        ConfigurationError: A value contains what the format cannot express.
    """
    for name, value in environment.items():
        if any(sign in value for sign in ('"', "\n", "\r")):
            raise ConfigurationError(
                f"cannot pass {name}={value!r} on: use values without double quotes and line breaks"
            )
    written = (f'{name}="{value.replace("%", "%%")}"' for name, value in environment.items())
    return f"environment={','.join(written)}\n" if environment else ""


def ask_states(state_dir: Path) -> tuple[ProcessState, ...] | None:
    """Ask the supervisor about its programs.

    Returns:
        One state for each program; None where no supervisor answers.
    """
    try:
        with _connect(state_dir) as proxy:
            told = proxy.supervisor.getAllProcessInfo()
    except (OSError, http.client.HTTPException, xmlrpc.client.Error):
        return None
    return tuple(
        ProcessState(str(each["name"]), str(each["statename"]).lower(), int(each["pid"]) or None)
        for each in cast("list[dict[str, str | int]]", told)
    )


def request_shutdown(state_dir: Path) -> bool:
    """Ask the supervisor to stop its programs and itself.

    Returns:
        Whether it will; False where none answers.
    """
    try:
        with _connect(state_dir) as proxy:
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

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        del host
        return self._to_socket

    def close(self) -> None:
        self._to_socket.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_PATIENCE_SECONDS)
        self.sock.connect(self._path)
