"""The programs of the stack: what was started, and where each answers.

What was started is remembered in `programs.json` of the state directory, so that asking and
stopping need no flags.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainvitals.stack.writing import write_private

HOST = "127.0.0.1"
_EVERYWHERE = {"": HOST, "0.0.0.0": HOST, "*": HOST, "::": "::1"}  # noqa: S104 - nothing is bound
_REMEMBERED = "programs.json"
_PATIENCE_SECONDS = 2.0
_OK = 200


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the stack.

    Attributes:
        name: `exporter`, `prometheus`, `alertmanager` or `grafana`.
        command: The program and its arguments.
        port: Where it listens.
        path: The page that answers 200 while the program can do its work.
        host: The address of this machine at which it is asked.
        environment: Variables that it gets besides the inherited ones; no secret is among them.
    """

    name: str
    command: tuple[str, ...]
    port: int
    path: str
    host: str = HOST
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The URL to open in a browser."""
        return f"http://{join_address(self.host, self.port)}"

    def log(self, state_dir: Path) -> Path:
        """Where the program's output goes."""
        return state_dir / "logs" / f"{self.name}.log"


def find_host(bind_address: str) -> str:
    """Give the address at which this machine reaches what listens on an address."""
    return _EVERYWHERE.get(bind_address, bind_address)


def join_address(host: str, port: int) -> str:
    """Write `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def remember_programs(state_dir: Path, programs: tuple[Program, ...]) -> None:
    """Write down what is about to be started.

    Raises:
        StackError: It cannot be written.
    """
    text = json.dumps([asdict(program) for program in programs], indent=1)
    write_private(state_dir / _REMEMBERED, text + "\n")


def recall_programs(state_dir: Path) -> tuple[Program, ...]:
    """Tell what was started last and not stopped; empty where that is nothing."""
    try:
        written = json.loads((state_dir / _REMEMBERED).read_text(encoding="utf-8"))
        return tuple(
            Program(
                name=each["name"],
                command=tuple(each["command"]),
                port=each["port"],
                path=each["path"],
                host=each.get("host", HOST),
                environment=dict(each.get("environment", {})),
            )
            for each in written
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def forget_programs(state_dir: Path) -> None:
    """Take back `remember_programs`."""
    (state_dir / _REMEMBERED).unlink(missing_ok=True)


def fetch(port: int, path: str, *, host: str = HOST) -> bytes | None:
    """Read a page of a program on this machine.

    Returns:
        The page; None where nothing answers in time, or with anything but 200.
    """
    # No urllib: it would send the request to a proxy that the environment names.
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read() if response.status == _OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def answers(program: Program) -> bool:
    """Whether the program can do its work now."""
    return fetch(program.port, program.path, host=program.host) is not None
