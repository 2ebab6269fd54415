"""The Docker engine of this machine: whether the stack can run on it, and what it can hand over."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.stack.dockercli import Docker

# The first with all that is asked of it: `up --wait-timeout`.
LEAST_COMPOSE = (2, 17)
_PATIENCE_SECONDS = 15.0
_LOCAL = "unix://"
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that the stack can run on.

    Attributes:
        socket: The path of its socket.
        runtimes: The names of the runtimes that it knows, such as `runc` and `nvidia`.
    """

    socket: Path
    runtimes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Lack:
    """Why the stack cannot run on an engine here.

    Attributes:
        reason: One line for a person, with what to do.
        is_news: Whether to tell it unasked: not where there is no Docker at all.
    """

    reason: str
    is_news: bool = True


@dataclass(frozen=True, slots=True)
class Cards:
    """Accelerators that only a special runtime hands to a container.

    Attributes:
        nvidia: NVIDIA's driver is loaded.
        gaudi: Habana's driver is loaded.
    """

    nvidia: bool
    gaudi: bool


def look_for_engine(environ: Mapping[str, str] = os.environ) -> Engine | Lack:
    """Ask for an engine on this machine, Compose, and permission to use both."""
    if shutil.which("docker", path=environ.get("PATH")) is None:
        return Lack("there is no docker command here", is_news=False)
    docker = Docker(environ)
    host = docker.ask("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").output.strip()
    if not host.startswith(_LOCAL):
        return Lack(f"docker speaks to the engine of another machine ({host or 'unknown'})")
    server = docker.ask(
        "version", "--format", "{{.Server.Version}}", patience_seconds=_PATIENCE_SECONDS
    )
    if server.code:
        return _explain(server.complaint, host.removeprefix(_LOCAL))
    if lack := _judge_compose(docker):
        return lack
    told = docker.ask("info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}")
    return Engine(Path(host.removeprefix(_LOCAL)), frozenset(told.output.split()))


def _explain(complaint: str, socket: str) -> Lack:
    if "permission denied" in complaint.lower():
        return Lack(
            f"this user may not use the engine at {socket}: ask root for "
            "`usermod --append --groups docker USER` and log in again (that makes USER as mighty "
            "as root)"
        )
    if "cannot connect" in complaint.lower():
        return Lack(f"no engine answers at {socket}: start it with `systemctl start docker`")
    return Lack(f"the engine at {socket} does not answer: {_last_line(complaint)}")


def _judge_compose(docker: Docker) -> Lack | None:
    told = docker.ask("compose", "version", "--short")
    found = re.match(r"v?(\d+)\.(\d+)", told.output.strip())
    if told.code or not found:
        return Lack(
            "docker has no Compose: install docker-compose-plugin (Docker's packages), "
            "docker-compose-v2 (Ubuntu) or docker-compose (Debian 13)"
        )
    version = (int(found[1]), int(found[2]))
    if version < LEAST_COMPOSE:
        least = ".".join(map(str, LEAST_COMPOSE))
        return Lack(f"Compose {found[0]} is too old: install {least} or newer")
    return None


def find_cards(root: Path = Path("/")) -> Cards:
    """Look for the drivers of accelerators on this machine."""
    return Cards(
        nvidia=(root / "dev/nvidiactl").exists(),
        gaudi=(root / "sys/module/habanalabs").exists() or any(root.glob("dev/hl[0-9]*")),
    )


def find_overrides(
    engine: Engine, cards: Cards, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Name the Compose files that hand this machine's accelerators to the exporter."""
    hooked = any(shutil.which(hook, path=environ.get("PATH")) for hook in _HOOKS)
    files = []
    if cards.nvidia and ("nvidia" in engine.runtimes or hooked):
        files.append("docker-compose.nvidia.yml")
    if cards.gaudi and "habana" in engine.runtimes:
        files.append("docker-compose.gaudi.yml")
    return tuple(files)


def find_withheld(cards: Cards, overrides: tuple[str, ...]) -> str | None:
    """Say which accelerators a container would not see, and what it takes; None for none."""
    if cards.nvidia and "docker-compose.nvidia.yml" not in overrides:
        return (
            "Docker cannot hand the GPUs to a container: install NVIDIA's container toolkit and "
            "run `nvidia-ctk runtime configure`"
        )
    if cards.gaudi and "docker-compose.gaudi.yml" not in overrides:
        return "Docker cannot hand the Gaudi cards to a container: install habanalabs-container-runtime"
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
