"""The engine's description of a container: an inspection, or an entry in the container list.

Docker and Podman omit different members and use different values for "not set". All variants are
accepted, and an unknown value is None or empty. Environment variables are stored without their
values, and likely secrets in text written by people are masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainvitals.masking import mask_command, mask_text
from trainvitals.sources.containers.documents import (
    Document,
    as_mapping,
    as_text,
    get_list,
    get_mapping,
    get_number,
    get_text,
    get_texts,
    get_time,
)
from trainvitals.sources.containers.evidence import HealthProbe, Settings, State

_MOST_WORDS = 200
_LONGEST_WORD = 2048  # masking a longer word, as in `sh -c`, would take seconds
_MOST_VARIABLES = 500
_MOST_MOUNTS = 100
_MOST_PROBES = 5
_MOST_OUTPUT = 2048
_COMPOSE_PROJECT = ("com.docker.compose.project", "io.podman.compose.project")
_COMPOSE_SERVICE = ("com.docker.compose.service", "io.podman.compose.service")
_UNBUFFERED = "PYTHONUNBUFFERED"
_PYTHON = re.compile(r"python[0-9.]*")
# Python's options with a value, which is the rest of the word or the next word.
_OPTIONS_WITH_VALUE = "XW"
# Python's options that the program follows; any later options belong to the program.
_LAST_OPTIONS = "cm"
_DEVICES = ("/dev/nvidia", "/dev/accel", "/dev/kfd")


@dataclass(frozen=True, slots=True)
class Inspection:
    """The engine's description of a container, from an inspection.

    Attributes:
        id: The full ID of the container.
        name: The name of the container.
        image: The name of the container's image, as written by the user.
        compose_project: The container's Compose project; empty if the container belongs to no
            project.
        compose_service: The container's Compose service; empty if the container belongs to no
            service.
        created: The time when the container was created; None if the time is unknown.
        pid: The main process's PID on the host; None if the container is not running.
        restart_count: The number of restarts by the restart policy; None if the number is unknown.
        state: The container's state, including how the container ended.
        settings: The container's settings.
    """

    id: str
    name: str
    image: str
    compose_project: str
    compose_service: str
    created: float | None
    pid: int | None
    restart_count: int | None
    state: State
    settings: Settings


@dataclass(frozen=True, slots=True)
class Listing:
    """A container's entry in the engine's list of all containers.

    Attributes:
        id: The full ID of the container.
        name: The name of the container.
        image: The name of the container's image.
        compose_project: The container's Compose project; empty if the container belongs to no
            project.
        compose_service: The container's Compose service; empty if the container belongs to no
            service.
        created: The time when the container was created; None if the time is unknown.
        status: The container's status from `State`: `created`, `running`, `exited`, ...
    """

    id: str
    name: str
    image: str
    compose_project: str
    compose_service: str
    created: float | None
    status: str


def parse_inspection(document: Document) -> Inspection:
    """Parse the answer to `/containers/{id}/json`, or one object from `docker inspect`."""
    config = get_mapping(document, "Config")
    project, service = find_compose(get_mapping(config, "Labels"))
    return Inspection(
        id=get_text(document, "Id"),
        name=get_text(document, "Name").removeprefix("/"),
        image=get_text(config, "Image") or get_text(document, "ImageName"),
        compose_project=project,
        compose_service=service,
        created=get_time(document, "Created"),
        pid=get_number(get_mapping(document, "State"), "Pid") or None,
        restart_count=get_number(document, "RestartCount"),
        state=_parse_state(get_mapping(document, "State")),
        settings=_parse_settings(document, config, get_mapping(document, "HostConfig")),
    )


def parse_listing(document: Document) -> Listing:
    """Parse one entry from the answer to `/containers/json`."""
    project, service = find_compose(get_mapping(document, "Labels"))
    names = [name.removeprefix("/") for name in get_texts(document, "Names")]
    created = get_number(document, "Created")
    return Listing(
        id=get_text(document, "Id"),
        # Names that contain a slash are the names that other containers use for this container.
        name=next((name for name in names if "/" not in name), ""),
        image=get_text(document, "Image"),
        compose_project=project,
        compose_service=service,
        created=None if created is None else float(created),
        status=get_text(document, "State"),
    )


def find_compose(labels: Document) -> tuple[str, str]:
    """Return the names of the Compose project and service from a container's labels.

    A name is empty if the corresponding label is missing.
    """
    project = next(filter(None, (get_text(labels, name) for name in _COMPOSE_PROJECT)), "")
    service = next(filter(None, (get_text(labels, name) for name in _COMPOSE_SERVICE)), "")
    return project, service


def describe_engine(version: Document) -> str:
    """Return the engine's name and version from the answer to `/version`.

    An example of the result is `docker 26.1.5`. The result is empty if the answer contains no
    version.
    """
    number = get_text(version, "Version")
    parts = [get_text(as_mapping(part), "Name").lower() for part in get_list(version, "Components")]
    name = "podman" if any("podman" in part for part in parts) else "docker"
    return f"{name} {number}" if number else ""


def _parse_state(state: Document) -> State:
    health = get_mapping(state, "Health") or get_mapping(state, "Healthcheck")
    status = get_text(health, "Status")
    return State(
        status=get_text(state, "Status") or _guess_status(state),
        exit_code=get_number(state, "ExitCode") or 0,
        is_oom_killed=state.get("OOMKilled") is True,
        error=mask_text(get_text(state, "Error")),
        started=get_time(state, "StartedAt"),
        finished=get_time(state, "FinishedAt"),
        health=None if status in {"", "none"} else status,
        failing_streak=get_number(health, "FailingStreak") or 0,
        probes=tuple(map(_parse_probe, get_list(health, "Log")[-_MOST_PROBES:])),
    )


def _guess_status(state: Document) -> str:
    """Return a container's status from the flags in `State`, for engines that omit `Status`."""
    flags = {"Restarting": "restarting", "Paused": "paused", "Running": "running", "Dead": "dead"}
    found = next((status for flag, status in flags.items() if state.get(flag) is True), None)
    return found or ("exited" if get_time(state, "FinishedAt") else "created")


def _parse_probe(value: object) -> HealthProbe:
    probe = as_mapping(value)
    output = mask_text(get_text(probe, "Output"))[:_MOST_OUTPUT]
    return HealthProbe(get_time(probe, "End"), get_number(probe, "ExitCode") or 0, output)


def _parse_settings(document: Document, config: Document, host: Document) -> Settings:
    command = _find_command(document, config)
    variables = _find_variables(config)
    log = get_mapping(host, "LogConfig")
    return Settings(
        command=mask_command(command),
        variables=tuple(name for name, _ in variables),
        is_unbuffered=any(name == _UNBUFFERED and is_set for name, is_set in variables)
        or _starts_unbuffered(command),
        memory_limit_bytes=_positive(host, "Memory"),
        memory_swap_bytes=get_number(host, "MemorySwap") or None,
        shm_size_bytes=get_number(host, "ShmSize"),
        pids_limit=_positive(host, "PidsLimit"),
        has_init=host.get("Init") is True,
        restart_policy=get_text(get_mapping(host, "RestartPolicy"), "Name") or "no",
        log_driver=get_text(log, "Type"),
        log_options=_find_log_options(get_mapping(log, "Config")),
        network_mode=get_text(host, "NetworkMode"),
        wants_gpus=_wants_gpus(host),
        is_read_only=host.get("ReadonlyRootfs") is True,
        has_tty=config.get("Tty") is True,
        is_removed_at_end=host.get("AutoRemove") is True,
        stop_timeout_seconds=get_number(config, "StopTimeout"),
        user=get_text(config, "User"),
        mounts=_find_mounts(document, host),
    )


def _starts_unbuffered(command: Sequence[str]) -> bool:
    """Return whether a command starts Python with `-u`, directly or in the text of `sh -c`."""
    words = iter(" ".join(command).split())
    for word in words:
        if _PYTHON.fullmatch(word.lstrip("\"'(").rpartition("/")[2]) and _has_unbuffered(words):
            return True
    return False


def _has_unbuffered(words: Iterator[str]) -> bool:
    """Return whether Python's options contain `-u`, and consume the words that were checked."""
    for word in words:
        if not word.startswith("-") or word.startswith("--"):
            return False
        for at, letter in enumerate(word[1:], start=1):
            if letter == "u":
                return True
            if letter in _LAST_OPTIONS:
                return False
            if letter in _OPTIONS_WITH_VALUE:
                if at == len(word) - 1:
                    next(words, None)
                break
    return False


def _positive(document: Document, name: str) -> int | None:
    number = get_number(document, name)
    return number if number is not None and number > 0 else None


def _find_command(document: Document, config: Document) -> tuple[str, ...]:
    """Return the started program and arguments, or else the configured entry point and command."""
    path = get_text(document, "Path")
    if path:
        words = (path, *get_texts(document, "Args"))
    else:
        words = get_texts(config, "Entrypoint") + get_texts(config, "Cmd")
    return tuple(word[:_LONGEST_WORD] for word in words[:_MOST_WORDS])


def _find_variables(config: Document) -> tuple[tuple[str, bool], ...]:
    """Return the name of each environment variable, and whether the variable has a value."""
    parts = [entry.partition("=") for entry in get_texts(config, "Env")[:_MOST_VARIABLES]]
    return tuple((name, bool(value)) for name, _, value in parts)


def _find_log_options(options: Document) -> tuple[tuple[str, str], ...]:
    # An option may be a password or token for the log's destination.
    masked = mask_command([f"{name}={as_text(options[name])}" for name in sorted(options)])
    return tuple((name, value) for name, _, value in (word.partition("=") for word in masked))


def _wants_gpus(host: Document) -> bool:
    if get_text(host, "Runtime") == "nvidia":
        return True
    if any(_is_for_gpus(as_mapping(request)) for request in get_list(host, "DeviceRequests")):
        return True
    devices = (get_text(as_mapping(entry), "PathOnHost") for entry in get_list(host, "Devices"))
    return any(path.startswith(_DEVICES) for path in devices)


def _is_for_gpus(request: Document) -> bool:
    if get_text(request, "Driver") == "nvidia":
        return True
    wanted = [
        name
        for names in get_list(request, "Capabilities")
        if isinstance(names, list)
        for name in names
    ]
    return "gpu" in wanted or any("gpu" in name for name in get_texts(request, "DeviceIDs"))


def _find_mounts(document: Document, host: Document) -> tuple[tuple[str, str], ...]:
    mounts = [as_mapping(entry) for entry in get_list(document, "Mounts")[:_MOST_MOUNTS]]
    found = [
        (
            get_text(mount, "Source") or get_text(mount, "Name") or get_text(mount, "Type"),
            get_text(mount, "Destination"),
        )
        for mount in mounts
    ]
    found += [("tmpfs", path) for path in sorted(get_mapping(host, "Tmpfs"))[:_MOST_MOUNTS]]
    return tuple(found)
