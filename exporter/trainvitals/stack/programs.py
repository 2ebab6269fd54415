"""Defines, saves and checks the commands, addresses and ports of the stack's programs.

The programs that were started are saved in `programs.json` in the state directory, so that the
commands `status` and `down` need no flags.
"""

from __future__ import annotations

import errno
import json
import socket
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.http.listen import Address, find_port_holder
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.writing import write_private

HOST = "127.0.0.1"
EVERYWHERE = {"": HOST, "0.0.0.0": HOST, "*": HOST, "::": "::1"}  # noqa: S104 - no socket is bound
_FILE = "programs.json"
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the stack, such as Prometheus.

    Attributes:
        name: The program's name: `exporter`, `prometheus`, `alertmanager` or `grafana`.
        command: The command line of the program.
        port: The port on which the program listens.
        path: The URL path that returns status 200 while the program is ready.
        host: The address at which this machine can reach the program.
        environment: Additional environment variables, without secrets.
        user: The user as whom the program runs; empty for the user who starts the stack.
    """

    name: str
    command: tuple[str, ...]
    port: int
    path: str
    host: str = HOST
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""

    @property
    def address(self) -> str:
        """The URL at which a browser can open the program."""
        return f"http://{Address(self.host, self.port)}"

    def log(self, state_dir: Path) -> Path:
        """Return the path of the program's log in a state directory."""
        return state_dir / "logs" / f"{self.name}.log"


def find_host(bind_address: str) -> str:
    """Return the address at which this machine reaches a server with a given bind address."""
    return EVERYWHERE.get(bind_address, bind_address)


def save_programs(state_dir: Path, programs: tuple[Program, ...]) -> None:
    """Save the programs that will be started to a file in the state directory.

    Raises:
        StackError: The file cannot be written.
    """
    text = json.dumps([asdict(program) for program in programs], indent=1)
    write_private(state_dir / _FILE, text + "\n")


def load_programs(state_dir: Path) -> tuple[Program, ...]:
    """Return the programs that were last started; empty if they have been stopped since."""
    try:
        written = json.loads((state_dir / _FILE).read_text(encoding="utf-8"))
        return tuple(
            Program(
                name=each["name"],
                command=tuple(each["command"]),
                port=each["port"],
                path=each["path"],
                host=each.get("host", HOST),
                environment=dict(each.get("environment", {})),
                user=each.get("user", ""),
            )
            for each in written
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def delete_programs(state_dir: Path) -> None:
    """Delete the file that `save_programs` wrote."""
    (state_dir / _FILE).unlink(missing_ok=True)


def is_ready(program: Program) -> bool:
    """Return whether a program is ready, according to the program's HTTP response."""
    return fetch_page(program.port, program.path, host=program.host) is not None


def require_free_ports(programs: tuple[Program, ...], bind_address: str) -> None:
    """Check that every program's port is free.

    Raises:
        StackError: The address does not belong to this machine, or a port is in use; the message
            names the process that uses the port.
    """
    for program in programs:
        if not is_free(program.port, bind_address):
            holder = find_port_holder(program.port) or "another user's process"
            raise StackError(
                f"cannot start {program.name}: port {program.port} is in use by {holder}; stop "
                f"it, or set {program.name.upper()}_PORT to another port"
            )


def is_free(port: int, bind_address: str = HOST) -> bool:
    """Return whether a server can listen on a port.

    Raises:
        StackError: The address does not belong to this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            bind_address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            # Servers set the same option, so that connections in TIME_WAIT do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno in _NO_ADDRESS:
            raise StackError(
                f"BIND_ADDR={bind_address}: this machine has no such address; set one that it has, "
                "or 0.0.0.0 for all of them"
            ) from error
        return False
    return True


def find_free_ports(count: int) -> list[int]:
    """Return distinct TCP ports of the loopback address that are currently free."""
    with ExitStack() as opened:
        # All sockets stay open until the last port is chosen, so that no port is chosen twice.
        probes = [opened.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a log; an empty list if the log does not exist."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
