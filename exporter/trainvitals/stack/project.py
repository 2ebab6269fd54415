"""The Compose project: where its files are, and what they are told by variables.

In a checkout it is the checkout. An installed package has no such folder, so one like it is put
together in `compose/` of the state directory out of what the package carries.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack.dockercli import Docker
from trainvitals.stack.engine import Engine
from trainvitals.stack.lineup import own_url
from trainvitals.stack.settings import Settings
from trainvitals.stack.shipped import find_shipped
from trainvitals.stack.writing import make_private, told_clearly, write_private

BASE = "docker-compose.yml"
CONTAINERS = "docker-compose.containers.yml"
_REMEMBERED = "compose.json"
_PACKAGE = Path(__file__).parents[1]
_FILES = _PACKAGE / "stack/files"
# What the image is built from and the containers read, as it lies in a checkout.
_CARRIED = (
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "pyproject.toml",
    BASE,
    CONTAINERS,
    "docker-compose.gaudi.yml",
    "docker-compose.nvidia.yml",
    "exporter/Dockerfile",
    "alertmanager",
    "deploy/docker-proxy",
    "docs/runbooks",
    "grafana/dashboards",
    "grafana/provisioning",
    "prometheus",
)
_READ_BY_CONTAINERS = (
    "prometheus",
    "grafana/dashboards",
    "grafana/provisioning",
    "deploy/docker-proxy",
)
_ON = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Project:
    """What `docker compose` is to work on.

    Attributes:
        name: The name that its containers, networks and volumes begin with.
        directory: Where its files are, and where the image is built.
        files: The names of the Compose files, each adding to those before it.
        environment: All variables of the command.
    """

    name: str
    directory: Path
    files: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def docker(self) -> Docker:
        """The command, to be run in the project's directory."""
        there = self.directory if self.directory.is_dir() else None
        return Docker(self.environment, there)

    def words(self, *words: str) -> tuple[str, ...]:
        """Give the arguments of `docker` that do something to this project."""
        # The variables are ours; what `.env` says is among them already.
        head = ("compose", "--ansi", "never", "--env-file", os.devnull, "-p", self.name)
        files = (word for name in self.files for word in ("-f", str(self.directory / name)))
        if not (self.directory / BASE).is_file():  # a checkout that is gone: its labels remain
            return (*head, *words)
        return (*head, "--project-directory", str(self.directory), *files, *words)


def find_project(
    settings: Settings,
    overrides: tuple[str, ...] = (),
    *,
    engine: Engine | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Project:
    """Give the project that these settings describe; its folder is made where it is to be made.

    Args:
        settings: Ports, directories and variables.
        overrides: Compose files for the accelerators of this machine.
        engine: The engine whose socket the collector of containers would read.
        environ: What the command inherits.

    Raises:
        StackError: The folder cannot be written, or a shipped file is missing or closed.
    """
    given = settings.variables
    wants_containers = given.get("CONTAINER_COLLECTOR", "").lower() in _ON
    files = (BASE, *overrides, *((CONTAINERS,) if wants_containers else ()))
    return Project(
        name=given.get("COMPOSE_PROJECT_NAME") or "trainvitals",
        directory=_find_directory(settings.state_dir),
        files=files,
        environment={**environ, **given, **_list_variables(settings, engine)},
    )


def _find_directory(state_dir: Path) -> Path:
    shipped = find_shipped(BASE).parent
    if not shipped.is_relative_to(_PACKAGE):
        _refuse_closed_files(shipped)
        return shipped
    directory = state_dir / "compose"
    make_private(directory)
    with told_clearly(directory):
        for name in _CARRIED:
            _carry(find_shipped(name), directory / name)
        _carry(_PACKAGE, directory / "exporter/trainvitals")
    return directory


def _carry(source: Path, target: Path) -> None:
    """Make the target like the source, readable by all, keeping folders that containers mounted."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o644)
        return
    target.mkdir(parents=True, exist_ok=True)
    target.chmod(0o755)
    names = {each.name for each in source.iterdir()} - {"__pycache__"}
    if source == _FILES.parent:  # they lie beside the package in a checkout, and so in this folder
        names.discard(_FILES.name)
    for left in {each.name for each in target.iterdir()} - names:
        path = target / left
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in sorted(names):
        _carry(source / name, target / name)


def _refuse_closed_files(directory: Path) -> None:
    """Check that the users of the containers can read what they are given."""
    for name in _READ_BY_CONTAINERS:
        for path in _walk(directory / name):
            needed = 0o005 if path.is_dir() else 0o004
            if path.stat().st_mode & needed != needed:
                raise StackError(
                    f"{path} is closed to the containers' users: `chmod -R a+rX "
                    f"{' '.join(str(directory / each) for each in _READ_BY_CONTAINERS)}`"
                )


def _walk(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir():
        yield from path.rglob("*")


def _list_variables(settings: Settings, engine: Engine | None) -> dict[str, str]:
    bind, given = settings.bind_address, settings.variables
    config = settings.state_dir / "config/compose"
    variables = {
        "BIND_ADDR": f"[{bind}]" if ":" in bind else bind.replace("*", "") or "0.0.0.0",  # noqa: S104 - asked for
        "EXPORTER_PORT": str(settings.exporter_port),
        "PROMETHEUS_PORT": str(settings.prometheus_port),
        "ALERTMANAGER_PORT": str(settings.alertmanager_port),
        "GRAFANA_PORT": str(settings.grafana_port),
        "TARGETS_DIR": str(config / "targets"),
        "ALERTMANAGER_CONFIG_DIR": str(config / "alertmanager"),
        "SECRETS_DIR": str(settings.state_dir / "secrets"),
        "BUILDKIT_PROGRESS": "plain",
    }
    urls = {
        "GRAFANA_URL": settings.grafana_port,
        "PROMETHEUS_EXTERNAL_URL": settings.prometheus_port,
        "ALERTMANAGER_EXTERNAL_URL": settings.alertmanager_port,
    }
    variables |= {
        name: own_url(settings, port) for name, port in urls.items() if not given.get(name)
    }
    if engine is not None:
        variables["DOCKER_SOCKET"] = str(engine.socket)
        with told_clearly(engine.socket):
            variables["DOCKER_GID"] = str(engine.socket.stat().st_gid)
    return variables


def remember_project(state_dir: Path, project: Project) -> None:
    """Write down what is about to be started, so that asking and stopping need no flags.

    Raises:
        StackError: It cannot be written.
    """
    kept = {"name": project.name, "directory": str(project.directory), "files": project.files}
    write_private(state_dir / _REMEMBERED, json.dumps(kept) + "\n")


def recall_project(settings: Settings, environ: Mapping[str, str] = os.environ) -> Project | None:
    """Give the project that was started last; None where that is none."""
    try:
        kept = json.loads((settings.state_dir / _REMEMBERED).read_text(encoding="utf-8"))
        return Project(
            name=str(kept["name"]),
            directory=Path(kept["directory"]),
            files=tuple(map(str, kept["files"])),
            environment={**environ, **settings.variables, **_list_variables(settings, None)},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
