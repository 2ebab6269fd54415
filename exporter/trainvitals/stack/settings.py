"""Reads the stack's settings from flags, the environment and a `.env` file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_numbers import read_digits
from trainvitals.homes import expand_home

Way = Literal["auto", "compose", "native"]

EXPORTER_PORT = 9200
PROMETHEUS_PORT = 9090
ALERTMANAGER_PORT = 9093
GRAFANA_PORT = 3000
BIND_ADDRESS = "127.0.0.1"
_HIGHEST_PORT = 65535
_SECRET = re.compile(r"(?:TOKEN|PASSWORD|KEY|WEBHOOK_URL|DEADMAN_URL)$")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with which the stack is started.

    Attributes:
        state_dir: The absolute path of the directory with data, logs and the control socket.
        exporter_port: The exporter's port on 127.0.0.1.
        prometheus_port: Prometheus' port on 127.0.0.1.
        exporter_command: The exporter's command; `--web.listen-address=…` is appended.
        alertmanager_port: The port on which Alertmanager listens.
        grafana_port: The port on which Grafana listens.
        bind_address: The address on which every program listens.
        way: How the stack is run: `compose`, `native`, or `auto` (Compose if an engine responds,
            otherwise native processes).
        variables: The variables in the environment and in `.env`.
    """

    state_dir: Path
    exporter_port: int = EXPORTER_PORT
    prometheus_port: int = PROMETHEUS_PORT
    exporter_command: tuple[str, ...] = (sys.executable, "-m", "trainvitals", "serve")
    alertmanager_port: int = ALERTMANAGER_PORT
    grafana_port: int = GRAFANA_PORT
    bind_address: str = BIND_ADDRESS
    way: Way = "auto"
    # The repr omits the variables, because they contain secrets that must not be logged.
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_settings(
    environ: Mapping[str, str] = os.environ,
    dotenv: Path | None = Path(".env"),
    *,
    exporter_port: int | None = None,
    prometheus_port: int | None = None,
    alertmanager_port: int | None = None,
    grafana_port: int | None = None,
    way: Way | None = None,
    state_dir: Path | None = None,
) -> Settings:
    """Read the stack's settings; flags override the environment, which overrides `.env`.

    Args:
        environ: The environment variables; an empty value counts as not set.
        dotenv: The path of a file with `KEY=VALUE` lines. The file may be missing; None to read no
            file.
        exporter_port: The value of the flag for the exporter's port; None if the flag is not set.
        prometheus_port: The value of the flag for Prometheus' port; None if the flag is not set.
        alertmanager_port: The value of the flag for Alertmanager's port; None if the flag is not
            set.
        grafana_port: The value of the flag for Grafana's port; None if the flag is not set.
        way: The value of the flag `--way`; None if the flag is not set.
        state_dir: The value of the flag for the state directory; None for the directory that the
            XDG specification defines.

    Raises:
        ConfigurationError: A port is invalid or used twice, the way is unknown, or `.env` cannot be
            read.
    """
    written = read_dotenv(dotenv) if dotenv is not None else {}
    given = {**written, **{name: value for name, value in environ.items() if value}}
    settings = Settings(
        state_dir=expand_home(state_dir or _default_state_dir(environ), "--state-dir").resolve(),
        exporter_port=_pick_port(exporter_port, given, "EXPORTER_PORT", EXPORTER_PORT),
        prometheus_port=_pick_port(prometheus_port, given, "PROMETHEUS_PORT", PROMETHEUS_PORT),
        alertmanager_port=_pick_port(
            alertmanager_port, given, "ALERTMANAGER_PORT", ALERTMANAGER_PORT
        ),
        grafana_port=_pick_port(grafana_port, given, "GRAFANA_PORT", GRAFANA_PORT),
        bind_address=given.get("BIND_ADDR") or BIND_ADDRESS,
        way=_pick_way(way or given.get("STACK_WAY") or "auto"),
        variables=given,
    )
    _require_distinct_ports(settings)
    return settings


def _require_distinct_ports(settings: Settings) -> None:
    ports = {
        "EXPORTER_PORT": settings.exporter_port,
        "PROMETHEUS_PORT": settings.prometheus_port,
        "ALERTMANAGER_PORT": settings.alertmanager_port,
        "GRAFANA_PORT": settings.grafana_port,
    }
    for port in ports.values():
        sharing = [name for name, each in ports.items() if each == port]
        if len(sharing) > 1:
            raise ConfigurationError(
                f"{' and '.join(sharing)} are both {port}: set different ports"
            )


def _pick_way(text: str) -> Way:
    for way in get_args(Way):
        if way == text:
            return cast("Way", way)
    # The value is not shown, because it may be a secret that was assigned to the wrong name.
    raise ConfigurationError(f"STACK_WAY is unknown: set it to one of {', '.join(get_args(Way))}")


def read_dotenv(path: Path) -> dict[str, str]:
    """Read a file of `KEY=VALUE` lines, in Docker Compose's syntax.

    Empty lines and comments are skipped, `export` before a key is allowed, and quotes around a
    value are removed. ` #` after an unquoted value begins a comment. A `#` without a preceding
    space is part of the value, as in `SLACK_CHANNEL=#training`.

    Returns:
        The values by key; an empty dictionary if the file does not exist.

    Raises:
        ConfigurationError: The file cannot be read, or a line is not `KEY=VALUE`.
    """
    try:
        # Some editors write a byte order mark.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error
    values = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ConfigurationError(f"{path}:{number}: not KEY=VALUE; correct or remove this line")
        values[key.strip()] = _bare(value)
    return values


def exposes_secrets(path: Path) -> bool:
    """Return whether a `.env` file contains a secret and is readable by other users.

    Raises:
        ConfigurationError: The file cannot be read, or a line is not `KEY=VALUE`.
    """
    try:
        is_open = bool(path.stat().st_mode & 0o077)
    except OSError:
        return False
    return is_open and any(
        _SECRET.search(name) and value for name, value in read_dotenv(path).items()
    )


def _bare(text: str) -> str:
    value = text.strip()
    quote = value[:1]
    if quote in {'"', "'"}:
        inner, closing, _ = value[1:].partition(quote)
        return inner if closing else value
    return text.partition(" #")[0].strip()


def _pick_port(flag: int | None, given: Mapping[str, str], name: str, default: int) -> int:
    text = str(flag) if flag is not None else given.get(name) or str(default)
    if port := read_digits(text, _HIGHEST_PORT):
        return port
    raise ConfigurationError(f"{name} is not a port: set it to a number from 1 to {_HIGHEST_PORT}")


def _default_state_dir(environ: Mapping[str, str]) -> Path:
    # The XDG specification requires relative paths in these variables to be ignored.
    base = Path(environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.local/state")) / "trainvitals"
