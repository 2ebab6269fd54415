"""What a person may change about the stack: by a flag, the environment or a `.env` file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import ConfigurationError

EXPORTER_PORT = 9200
PROMETHEUS_PORT = 9090
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the stack keeps its files and where it listens.

    Attributes:
        state_dir: Absolute path of the directory that holds data, logs and the control socket.
        exporter_port: The exporter's port on 127.0.0.1.
        prometheus_port: Prometheus' port on 127.0.0.1.
        exporter_command: What starts the exporter; `--web.listen-address=…` is appended.
    """

    state_dir: Path
    exporter_port: int = EXPORTER_PORT
    prometheus_port: int = PROMETHEUS_PORT
    exporter_command: tuple[str, ...] = (sys.executable, "-m", "trainvitals", "serve")


def read_settings(
    environ: Mapping[str, str] = os.environ,
    dotenv: Path | None = Path(".env"),
    *,
    exporter_port: int | None = None,
    prometheus_port: int | None = None,
    state_dir: Path | None = None,
) -> Settings:
    """Read the settings: a flag wins over the environment, the environment over `.env`.

    Args:
        environ: The environment; an empty value counts as not set.
        dotenv: A file of `KEY=VALUE` lines; it need not exist, and None reads none.
        exporter_port: The flag; None when it was not given.
        prometheus_port: The flag; None when it was not given.
        state_dir: The flag; None puts it where XDG keeps state.

    Raises:
        ConfigurationError: A port is none or is used twice, or `.env` cannot be read.
    """
    written = read_dotenv(dotenv) if dotenv is not None else {}
    given = {**written, **{name: value for name, value in environ.items() if value}}
    settings = Settings(
        state_dir=(state_dir or _default_state_dir(environ)).expanduser().resolve(),
        exporter_port=_pick_port(exporter_port, given, "EXPORTER_PORT", EXPORTER_PORT),
        prometheus_port=_pick_port(prometheus_port, given, "PROMETHEUS_PORT", PROMETHEUS_PORT),
    )
    if settings.exporter_port == settings.prometheus_port:
        raise ConfigurationError(
            f"exporter and Prometheus cannot both have port {settings.exporter_port}: "
            "change EXPORTER_PORT or PROMETHEUS_PORT"
        )
    return settings


def read_dotenv(path: Path) -> dict[str, str]:
    """Read a file of `KEY=VALUE` lines in the form that Docker Compose reads too.

    Empty lines and comments are skipped, `export` before a key is allowed, quotes around a value
    are taken off, and after a value without quotes ` #` begins a comment.

    Returns:
        The values; empty where the file does not exist.

    Raises:
        ConfigurationError: The file cannot be read or a line is no `KEY=VALUE`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
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
        values[key.strip()] = _bare(value.strip())
    return values


def _bare(value: str) -> str:
    quote = value[:1]
    if quote in {'"', "'"}:
        inner, closing, _ = value[1:].partition(quote)
        return inner if closing else value
    if quote == "#":
        return ""
    return value.partition(" #")[0].rstrip()


def _pick_port(flag: int | None, given: Mapping[str, str], name: str, default: int) -> int:
    text = str(flag) if flag is not None else given.get(name) or str(default)
    if text.isascii() and text.isdigit() and 1 <= int(text) <= _HIGHEST_PORT:
        return int(text)
    raise ConfigurationError(f"{name} is {text!r}, which is no port: give 1 to {_HIGHEST_PORT}")


def _default_state_dir(environ: Mapping[str, str]) -> Path:
    # XDG: a relative path in these variables is to be ignored.
    base = Path(environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.local/state")) / "trainvitals"
