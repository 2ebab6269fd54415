"""Checks whether the stack can run on this machine's Docker engine and access accelerators."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.stack.dockercli import Docker

# The first Compose version with `up --wait-timeout`.
LEAST_COMPOSE = (2, 17)
_TIMEOUT_SECONDS = 15.0
_LOCAL = "unix://"
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


@dataclass(frozen=True, slots=True)
class Engine:
    """A Docker engine on which the stack can run.

    Attributes:
        socket: The path of the engine's socket.
        runtimes: The names of the engine's runtimes, such as `runc` and `nvidia`.
    """

    socket: Path
    runtimes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The result if the stack cannot run in Docker Compose on this machine.

    Attributes:
        reason: Why the stack cannot run, and the remedy, in one line.
        is_news: Whether the reason is reported even if Compose was not requested; False if Docker
            is not installed.
    """

    reason: str
    is_news: bool = True


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The kinds of accelerators that need a vendor's runtime in containers.

    Attributes:
        nvidia: Whether the NVIDIA driver is loaded.
        gaudi: Whether the Habana driver is loaded.
    """

    nvidia: bool
    gaudi: bool


def find_engine(environ: Mapping[str, str] = os.environ) -> Engine | Unavailable:
    """Return this machine's Docker engine, or why the stack cannot run on an engine."""
    if shutil.which("docker", path=environ.get("PATH")) is None:
        return Unavailable("docker is not installed", is_news=False)
    docker = Docker(environ)
    host = docker.call(
        "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"
    ).output.strip()
    if not host.startswith(_LOCAL):
        return Unavailable(f"docker uses the engine of another machine ({host or 'unknown'})")
    server = docker.call(
        "version", "--format", "{{.Server.Version}}", timeout_seconds=_TIMEOUT_SECONDS
    )
    if server.code:
        return _explain(server.error, host.removeprefix(_LOCAL))
    if lack := _judge_compose(docker):
        return lack
    result = docker.call("info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}")
    return Engine(Path(host.removeprefix(_LOCAL)), frozenset(result.output.split()))


def _explain(error: str, socket: str) -> Unavailable:
    if "permission denied" in error.lower():
        return Unavailable(
            f"this user may not use the engine at {socket}: ask root to run "
            "`usermod --append --groups docker USER`, which lets USER become root, and log in again"
        )
    if "cannot connect" in error.lower():
        return Unavailable(
            f"no engine responds at {socket}: start it with `systemctl start docker`"
        )
    return Unavailable(f"the engine at {socket} does not respond: {_last_line(error)}")


def _judge_compose(docker: Docker) -> Unavailable | None:
    result = docker.call("compose", "version", "--short")
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})", result.output.strip())
    if result.code or not found:
        return Unavailable(
            "Docker Compose is not installed: install docker-compose-plugin (Docker's packages), "
            "docker-compose-v2 (Ubuntu) or docker-compose (Debian 13)"
        )
    version = (int(found[1]), int(found[2]))
    if version < LEAST_COMPOSE:
        least = ".".join(map(str, LEAST_COMPOSE))
        return Unavailable(f"Docker Compose {found[0]} is too old: install {least} or newer")
    return None


def find_accelerators(root: Path = Path("/")) -> Accelerators:
    """Return which accelerator drivers are loaded on this machine."""
    return Accelerators(
        nvidia=(root / "dev/nvidiactl").exists(),
        gaudi=(root / "sys/module/habanalabs").exists() or any(root.glob("dev/hl[0-9]*")),
    )


def find_overrides(
    engine: Engine, cards: Accelerators, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the Compose files that give the exporter access to this machine's accelerators."""
    hooked = any(shutil.which(hook, path=environ.get("PATH")) for hook in _HOOKS)
    files = []
    if cards.nvidia and ("nvidia" in engine.runtimes or hooked):
        files.append("docker-compose.nvidia.yml")
    if cards.gaudi and "habana" in engine.runtimes:
        files.append("docker-compose.gaudi.yml")
    return tuple(files)


def explain_missing_runtime(cards: Accelerators, overrides: tuple[str, ...]) -> str | None:
    """Return why containers cannot use the accelerators, and the remedy; None if they can."""
    if cards.nvidia and "docker-compose.nvidia.yml" not in overrides:
        return (
            "Docker cannot pass GPUs to containers: install the NVIDIA Container Toolkit and run "
            "`nvidia-ctk runtime configure`"
        )
    if cards.gaudi and "docker-compose.gaudi.yml" not in overrides:
        return "Docker cannot pass Gaudi cards to containers: install habanalabs-container-runtime"
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
