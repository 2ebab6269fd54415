"""The programs of the stack: how each is started and where it answers.

What was started is remembered in `programs.json` of the state directory, so that asking and
stopping need no flags.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack.configuration import choose_prometheus_config, find_prometheus_config
from trainvitals.stack.debian import find_web_assets
from trainvitals.stack.settings import Settings

HOST = "127.0.0.1"
_REMEMBERED = "programs.json"
_PATIENCE_SECONDS = 2.0
_OK = 200


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the stack.

    Attributes:
        name: `exporter` or `prometheus`.
        command: The program and its arguments.
        port: Where it listens on 127.0.0.1.
        path: The page that answers 200 while the program can do its work.
    """

    name: str
    command: tuple[str, ...]
    port: int
    path: str

    @property
    def address(self) -> str:
        """The URL to open in a browser."""
        return f"http://{HOST}:{self.port}"

    def log(self, state_dir: Path) -> Path:
        """Where the program's output goes."""
        return state_dir / "logs" / f"{self.name}.log"


def list_programs(
    settings: Settings, *, find: Callable[[str], Path], report: Callable[[str], None]
) -> tuple[Program, ...]:
    """List the programs that this machine can run: without a Prometheus, the exporter alone.

    Args:
        settings: Ports and directories.
        find: Gives the path of a program by its name, or raises StackError.
        report: Told why there will be no Prometheus.
    """
    exporter = exporter_of(settings)
    try:
        prometheus = find("prometheus")
    except StackError as error:
        report(f"no Prometheus: {error}")
        return (exporter,)
    return (exporter, _prometheus_of(settings, prometheus))


def expected_programs(settings: Settings) -> tuple[Program, ...]:
    """List what would run with these settings, for showing it while nothing runs."""
    nameless = Program("prometheus", (), settings.prometheus_port, "/-/ready")
    return (exporter_of(settings), nameless)


def exporter_of(settings: Settings) -> Program:
    """Describe the exporter."""
    listen = f"--web.listen-address={HOST}:{settings.exporter_port}"
    command = (*settings.exporter_command, listen)
    return Program("exporter", command, settings.exporter_port, "/-/healthy")


def _prometheus_of(settings: Settings, prometheus: Path) -> Program:
    config = choose_prometheus_config(
        find_prometheus_config(), settings.exporter_port, settings.state_dir / "prometheus.yml"
    )
    assets = find_web_assets(prometheus)
    command = (
        str(prometheus),
        f"--config.file={config}",
        f"--storage.tsdb.path={settings.state_dir / 'prometheus'}",
        "--storage.tsdb.retention.time=15d",
        f"--web.listen-address={HOST}:{settings.prometheus_port}",
        *((f"--web.local-assets={assets}",) if assets else ()),
    )
    return Program("prometheus", command, settings.prometheus_port, "/-/ready")


def remember_programs(state_dir: Path, programs: tuple[Program, ...]) -> None:
    """Write down what is about to be started."""
    text = json.dumps([asdict(program) for program in programs], indent=1)
    (state_dir / _REMEMBERED).write_text(text + "\n", encoding="utf-8")


def recall_programs(state_dir: Path) -> tuple[Program, ...]:
    """Tell what was started last and not stopped; empty where that is nothing."""
    try:
        written = json.loads((state_dir / _REMEMBERED).read_text(encoding="utf-8"))
        return tuple(
            Program(each["name"], tuple(each["command"]), each["port"], each["path"])
            for each in written
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def forget_programs(state_dir: Path) -> None:
    """Take back `remember_programs`."""
    (state_dir / _REMEMBERED).unlink(missing_ok=True)


def fetch(port: int, path: str) -> bytes | None:
    """Read a page of a program on this machine.

    Returns:
        The page; None where nothing answers in time, or with anything but 200.
    """
    # No urllib: it would send the request to a proxy that the environment names.
    connection = http.client.HTTPConnection(HOST, port, timeout=_PATIENCE_SECONDS)
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
    return fetch(program.port, program.path) is not None
