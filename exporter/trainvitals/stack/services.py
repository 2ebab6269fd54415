"""Manages the Compose project's images and containers, and explains Docker's errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

from trainvitals.errors import StackError
from trainvitals.foreign_text import strip_escape_codes
from trainvitals.http.listen import find_port_holder
from trainvitals.stack.project import Project

Report = Callable[[str], None]
# A step in BuildKit's output, `#9 [exporter build 5/7] RUN pip …`, and the result of the step.
_STEP = re.compile(r"^(#\d+) \[(?:\S+ )?(\S+ +\d+/\d+)\] (.{1,60})")
_RESULT = re.compile(r"^(#\d+) (CACHED|\S)")
_PORT = re.compile(
    r"(?:Bind for|listen tcp[46]?|exposing port \S{1,80}) [^\s:]{0,80}(?::[^\s:]{0,80}){0,8}:(\d{1,5})(?!\d)"
)
_TAKEN = re.compile(r"port is already allocated|address already in use")
_UNREACHABLE = re.compile(
    r"no such host|dial tcp|i/o timeout|TLS handshake|failed to (?:do request|resolve|authorize)"
    r"|pull access denied|manifest unknown|not found: manifest|toomanyrequests"
    r"|Client\.Timeout|connection refused|server misbehaving|failed to fetch",
    re.IGNORECASE,
)
_LAST_LINES = 10
_NATIVE = "run `trainvitals up --way native`"


@dataclass(frozen=True, slots=True)
class Container:
    """A container of the stack.

    Attributes:
        service: The name of the container's Compose service.
        id: The container's ID in Docker.
        state: The state that Docker reports: created, running, restarting, paused, exited, dead.
        health: The health that Docker reports: `healthy`, `unhealthy` or `starting`; empty if the
            container has no health check.
        exit_code: The container's last exit code; 0 while the container runs.
        ports: The ports that the container publishes on the host.
    """

    service: str
    id: str
    state: str
    health: str
    exit_code: int
    ports: frozenset[int]

    @property
    def condition(self) -> str:
        """The state of the container, or its health if it is running but not healthy."""
        return self.state if self.state != "running" or self.is_healthy else self.health

    @property
    def is_healthy(self) -> bool:
        """Whether the container is running and healthy."""
        return self.state == "running" and self.health in {"healthy", ""}


class _Publisher(TypedDict):
    PublishedPort: int


class _Row(TypedDict):
    Service: str
    ID: str
    State: str
    Health: str
    ExitCode: int
    Publishers: list[_Publisher] | None


def list_containers(project: Project) -> tuple[Container, ...]:
    """Return the project's containers; an empty tuple if the engine does not respond."""
    result = project.docker.call(*project.words("ps", "--all", "--format", "json"))
    if result.code:
        return ()
    return tuple(
        Container(
            service=row["Service"],
            id=row["ID"],
            state=row["State"],
            health=row.get("Health", ""),
            exit_code=row["ExitCode"],
            ports=frozenset(each["PublishedPort"] for each in row["Publishers"] or ()),
        )
        for row in _read_rows(result.output)
    )


def _read_rows(text: str) -> Iterator[_Row]:
    # Up to version 2.20, Compose prints one list; later versions print one object per line.
    try:
        for line in text.splitlines():
            parsed = json.loads(line)
            yield from cast("list[_Row]", parsed if isinstance(parsed, list) else [parsed])
    except ValueError:
        return


def read_last_lines(project: Project, service: str) -> list[str]:
    """Return the last ten log lines of a service's containers."""
    result = project.docker.call(
        *project.words("logs", "--no-color", "--no-log-prefix", "--tail", str(_LAST_LINES), service)
    )
    text = strip_escape_codes(result.output + result.error)
    return text.splitlines()[-_LAST_LINES:] if not result.code else []


@dataclass(frozen=True, slots=True)
class Image:
    """The container image of a Compose service.

    Attributes:
        name: The name of the image, including the tag.
        is_built: Whether the image is built locally instead of pulled.
    """

    name: str
    is_built: bool


class _Service(TypedDict, total=False):
    image: str
    build: object


def list_images(project: Project) -> Mapping[str, Image]:
    """Return the images of a Compose project by service.

    Raises:
        StackError: The project's files or variables are invalid.
    """
    result = project.docker.call(*project.words("config", "--format", "json"))
    if result.code:
        raise StackError(explain(result.error, doing="read docker-compose.yml"))
    services = cast("dict[str, dict[str, _Service]]", json.loads(result.output))["services"]
    return {
        name: Image(service.get("image", name), is_built="build" in service)
        for name, service in services.items()
    }


def pull_images(project: Project, images: Mapping[str, Image], report: Report) -> None:
    """Pull the missing images, except images that are built locally.

    Raises:
        StackError: An image cannot be pulled.
    """
    for image in images.values():
        if image.is_built or not project.docker.call("image", "inspect", image.name).code:
            continue
        report(f"pulling {image.name}")
        result = project.docker.follow("pull", "--quiet", image.name, on_line=lambda _: None)
        if result.code:
            raise StackError(explain(result.error, doing=f"pull {image.name}"))


def build_images(project: Project, report: Report) -> None:
    """Build the exporter's image, with Docker's build cache.

    Raises:
        StackError: An image cannot be built.
    """
    report("building the exporter's image")
    steps: dict[str, str] = {}

    def on_line(line: str) -> None:
        if step := _STEP.match(line):
            steps[step[1]] = f"  {' '.join(step[2].split())} {step[3].strip()}"
        elif news := _RESULT.match(line):
            words = steps.pop(news[1], None)
            if words is not None and news[2] != "CACHED":  # Cached steps are not reported.
                report(words)

    result = project.docker.follow(*project.words("build", "exporter"), on_line=on_line)
    if result.code:
        for line in result.error.splitlines()[-10:]:
            report(f"build | {line}")
        raise StackError(explain(result.error, doing="build the exporter's image"))


def explain(error: str, *, doing: str) -> str:
    """Return a Docker error as one line that contains the reason and a remedy.

    Args:
        error: Docker's error output.
        doing: The failed operation, such as `pull prom/prometheus:v3`.
    """
    if "no space left on device" in error:
        return f"cannot {doing}: Docker's disk is full; see `docker system df` and free some space"
    if _TAKEN.search(error) and (taken := _PORT.search(error)):
        holder = find_port_holder(int(taken[1])) or "another program"
        return f"cannot {doing}: port {taken[1]} is in use by {holder}; stop it, or set another port in .env"
    if "could not select device driver" in error or "unknown or invalid runtime" in error:
        return (
            f"cannot {doing}: Docker cannot pass the accelerators to containers; reinstall the "
            f"vendor's container toolkit, or {_NATIVE}"
        )
    reason = _find_reason(error)
    if _UNREACHABLE.search(error):
        return (
            f"cannot {doing}: {reason}; without access to a registry, set local images in .env "
            f"(PROMETHEUS_IMAGE, …), or {_NATIVE}"
        )
    return f"cannot {doing}: {reason}"


def _find_reason(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"Error|ERROR|failed|.* is unhealthy", line)]
    reason = (errors or lines or ["no reason given"])[-1]
    return re.sub(r"^(?:Error response from daemon|ERROR|Error)[: ]+", "", reason)[:300]
