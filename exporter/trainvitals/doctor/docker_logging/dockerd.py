"""Validates a `daemon.json` with dockerd, and reads an engine's settings and unlimited logs."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.docker_logging.keys import JSON_FILE
from trainvitals.doctor.machine import run_program
from trainvitals.sources.containers.documents import get_mapping, get_text, get_texts
from trainvitals.sources.containers.engine import EngineClient, EngineError

_MOST_CONTAINERS = 512
_NOT_FOUND = 404
_LEAST_VERSION = 23
_TIMEOUT_SECONDS = 20.0
_BUILT_IN = "by built-in rules only"
# The directories in which dockerd is searched if PATH lacks system administration programs.
_PLACES = ("usr/local/sbin", "usr/sbin", "usr/local/bin", "usr/bin")


@dataclass(frozen=True, slots=True)
class EndlessLog:
    """The log of a container that was created without a log size limit.

    Attributes:
        name: The container's name.
        id: The container's ID.
        is_running: Whether the container is running.
        log_bytes: The size of the log in bytes; None if the size cannot be read.
    """

    name: str
    id: str
    is_running: bool
    log_bytes: int | None


@dataclass(frozen=True, slots=True)
class Running:
    """The settings of a running Docker engine.

    Attributes:
        version: The version of the Docker engine.
        log_driver: The log driver of new containers.
        has_live_restore: Whether containers keep running while the engine is stopped
            (live-restore).
        is_in_swarm: Whether the engine is a swarm node.
        plugins: The log drivers that are available in the engine.
        endless: The container logs that are never rotated, the largest first.
    """

    version: str
    log_driver: str
    has_live_restore: bool
    is_in_swarm: bool
    plugins: frozenset[str]
    endless: tuple[EndlessLog, ...]


def read_engine(client: EngineClient) -> Running:
    """Return an engine's settings, and the container logs that the engine never rotates.

    Raises:
        EngineError: The engine did not respond.
    """
    info = client.info()
    return Running(
        version=get_text(info, "ServerVersion"),
        log_driver=get_text(info, "LoggingDriver"),
        has_live_restore=info.get("LiveRestoreEnabled") is True,
        is_in_swarm=get_text(get_mapping(info, "Swarm"), "LocalNodeState")
        in {"active", "pending", "locked"},
        plugins=frozenset(get_texts(get_mapping(info, "Plugins"), "Log")),
        endless=_find_endless_logs(client),
    )


def _find_endless_logs(client: EngineClient) -> tuple[EndlessLog, ...]:
    found = []
    for listed in client.list_containers()[:_MOST_CONTAINERS]:
        try:
            inspected = client.inspect(get_text(listed, "Id"))
        except EngineError as error:
            if error.status == _NOT_FOUND:  # the container was removed meanwhile
                continue
            raise
        if log := _judge_log(inspected):
            found.append(log)
    return tuple(sorted(found, key=lambda log: (-(log.log_bytes or 0), log.name)))


def _judge_log(inspected: Mapping[str, object]) -> EndlessLog | None:
    log = get_mapping(get_mapping(inspected, "HostConfig"), "LogConfig")
    if log.get("Type") != JSON_FILE or get_mapping(log, "Config").get("max-size"):
        return None
    return EndlessLog(
        name=get_text(inspected, "Name").lstrip("/"),
        id=get_text(inspected, "Id"),
        is_running=get_mapping(inspected, "State").get("Running") is True,
        log_bytes=_measure(get_text(inspected, "LogPath")),
    )


def _measure(path: str) -> int | None:
    try:
        return Path(path).stat().st_size if path else None
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of validating a `daemon.json`.

    Attributes:
        by: A description of the program that validated the file.
        error: The reason why dockerd would not start with the file; None if dockerd would start, or
            if dockerd did not check the file.
    """

    by: str
    error: str | None = None


def validate(
    data: bytes, *, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> Validation:
    """Validate a `daemon.json` with dockerd if dockerd is installed and new enough.

    Args:
        data: The content of the file.
        environ: The environment variables; only `PATH` is used.
        root: The root directory of the file system, which contains program directories that `PATH`
            may lack.
    """
    places = [environ.get("PATH", ""), *(str(root / place) for place in _PLACES)]
    program = shutil.which("dockerd", path=":".join(places))
    if program is None:
        return Validation(f"{_BUILT_IN}: dockerd is not installed")
    shown = _run(program, "--version")
    version = re.search(
        r"version v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", shown[1] if shown else ""
    )
    name = f"dockerd {version[0].removeprefix('version ')}" if version else "dockerd"
    if version and int(version[1]) < _LEAST_VERSION:
        return Validation(
            f"{_BUILT_IN}: {name} cannot validate a file, {_LEAST_VERSION}.0 and newer can"
        )
    with tempfile.NamedTemporaryFile(prefix="trainvitals-", suffix=".json") as file:
        file.write(data)
        file.flush()
        ran = _run(program, "--validate", "--config-file", file.name)
        if ran is None or (ran[0] and "unknown flag" in ran[1]):
            return Validation(f"{_BUILT_IN}: {name} did not validate it")
        code, words = ran
        if code == 0:
            return Validation(f"by {name} and by built-in rules")
        last = (words.strip().splitlines() or ["no reason given"])[-1]
        return Validation(f"by {name}", last.replace(f" with file {Path(file.name)}", ""))


def _run(*command: str) -> tuple[int, str] | None:
    return run_program(command, _TIMEOUT_SECONDS, os.environ)
