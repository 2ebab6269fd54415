"""What the running engine does now: its settings, and the logs that never rotate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.dockerlogging.wanted import JSON_FILE
from trainvitals.sources.containers.documents import get_mapping, get_text, get_texts
from trainvitals.sources.containers.engine import EngineClient, EngineError

_MOST_CONTAINERS = 512
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class EndlessLog:
    """The log of a container that was made to let it grow.

    Attributes:
        name: The container's name.
        id: Its ID.
        is_running: Whether it runs.
        log_bytes: How large its log is; None where this user may not see that.
    """

    name: str
    id: str
    is_running: bool
    log_bytes: int | None


@dataclass(frozen=True, slots=True)
class Running:
    """What an engine says of itself.

    Attributes:
        version: Its version.
        log_driver: The driver that new containers get.
        has_live_restore: Whether containers outlive it.
        is_in_swarm: Whether it is a node of a swarm.
        plugins: The log drivers that it has.
        endless: Containers whose log never rotates, the largest first.
    """

    version: str
    log_driver: str
    has_live_restore: bool
    is_in_swarm: bool
    plugins: frozenset[str]
    endless: tuple[EndlessLog, ...]


def ask_engine(client: EngineClient) -> Running:
    """Ask an engine how it is set up and which logs never rotate.

    Raises:
        EngineError: It could not be asked.
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
            if error.status == _NOT_FOUND:  # it was removed meanwhile
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
