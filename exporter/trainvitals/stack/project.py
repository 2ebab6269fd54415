"""The stack's Compose project: the directory, the files and the variables.

In a checkout, the project directory is the checkout. For an installed package, the project
directory is `compose/` in the state directory, which is created from the files in the package.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.http.host_names import VARIABLE as ALLOWED_HOST_VARIABLE
from trainvitals.http.host_names import is_loopback_name
from trainvitals.shipped import PACKAGE, find_shipped
from trainvitals.stack.dockercli import Docker
from trainvitals.stack.engine import Engine
from trainvitals.stack.plan import own_url
from trainvitals.stack.settings import Settings
from trainvitals.stack.writing import as_stack_errors, make_private, write_private

BASE = "docker-compose.yml"
CONTAINERS = "docker-compose.containers.yml"
THRESHOLDS = "prometheus/rules/thresholds.yml"
_COPIED = ".yml.shipped"  # Prometheus loads only *.yml as rule files
_FILE = "compose.json"
_FILES = PACKAGE / "stack/files"
# The files from which the image is built and that containers read, as paths in a checkout.
_COPIED_FILES = (
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "pyproject.toml",
    "requirements.lock",
    "requirements-build.lock",
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
    """A Compose project that runs the stack.

    Attributes:
        name: The prefix of the names of the project's containers, networks and volumes.
        directory: The directory of the Compose files, which is also the build context.
        files: The names of the Compose files, in the order in which they are merged.
        environment: The complete environment in which `docker` runs.
    """

    name: str
    directory: Path
    files: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def docker(self) -> Docker:
        """The command `docker`, run in the project's directory."""
        there = self.directory if self.directory.is_dir() else None
        return Docker(self.environment, there)

    def words(self, *words: str) -> tuple[str, ...]:
        """Return the arguments with which `docker` runs a Compose command on the project."""
        # The environment already contains the variables of `.env`.
        head = ("compose", "--ansi", "never", "--env-file", os.devnull, "-p", self.name)
        files = (word for name in self.files for word in ("-f", str(self.directory / name)))
        # If the checkout was deleted, Compose finds the containers by their labels.
        if not (self.directory / BASE).is_file():
            return (*head, *words)
        return (*head, "--project-directory", str(self.directory), *files, *words)


def find_project(
    settings: Settings,
    overrides: tuple[str, ...] = (),
    *,
    engine: Engine | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Project:
    """Return the project for the settings; for an installed package, create its directory.

    Args:
        settings: The stack's ports, directories and variables.
        overrides: The Compose files for this machine's accelerators.
        engine: The Docker engine whose socket the container collector reads.
        environ: The inherited environment variables.

    Raises:
        StackError: The directory cannot be written, or a shipped file is missing or unreadable.
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
    if not shipped.is_relative_to(PACKAGE):
        _require_readable_files(shipped)
        return shipped
    directory = state_dir / "compose"
    make_private(directory)
    with as_stack_errors(directory):
        edited = _read_edit(directory / THRESHOLDS)
        for name in _COPIED_FILES:
            _copy(find_shipped(name), directory / name)
        _restore_edit(find_shipped(THRESHOLDS), directory / THRESHOLDS, edited)
        _copy(PACKAGE, directory / "exporter/trainvitals")
    return directory


def _read_edit(path: Path) -> str | None:
    """Return the text of the thresholds file if a user edited the file; otherwise None."""
    copied = path.with_suffix(_COPIED)
    if not path.is_file() or not copied.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    return None if text == copied.read_text(encoding="utf-8") else text


def _restore_edit(shipped: Path, path: Path, edited: str | None) -> None:
    """Restore the user's thresholds, and copy the shipped file in order to detect later edits."""
    shutil.copyfile(shipped, path.with_suffix(_COPIED))
    if edited is not None:
        path.write_text(edited, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a directory tree and make it world-readable; keep mounted directories."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o644)
        return
    target.mkdir(parents=True, exist_ok=True)
    target.chmod(0o755)
    names = {each.name for each in source.iterdir()} - {"__pycache__"}
    # In a checkout, the shipped files are beside the package and therefore in this directory.
    if source == _FILES.parent:
        names.discard(_FILES.name)
    for left in {each.name for each in target.iterdir()} - names:
        path = target / left
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in sorted(names):
        _copy(source / name, target / name)


def _require_readable_files(directory: Path) -> None:
    """Check that the users in the containers can read the project's files."""
    for name in _READ_BY_CONTAINERS:
        for path in _walk(directory / name):
            needed = 0o005 if path.is_dir() else 0o004
            if path.stat().st_mode & needed != needed:
                raise StackError(
                    f"the containers' users may not read {path}: run `chmod -R a+rX "
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
        "BIND_ADDR": f"[{bind}]" if ":" in bind else bind.replace("*", "") or "0.0.0.0",  # noqa: S104 - set by the user
        "EXPORTER_PORT": str(settings.exporter_port),
        "PROMETHEUS_PORT": str(settings.prometheus_port),
        "ALERTMANAGER_PORT": str(settings.alertmanager_port),
        "GRAFANA_PORT": str(settings.grafana_port),
        "PROMETHEUS_CONFIG_DIR": str(config / "prometheus"),
        "TARGETS_DIR": str(config / "targets"),
        "ALERTMANAGER_CONFIG_DIR": str(config / "alertmanager"),
        "SECRETS_DIR": str(settings.state_dir / "secrets"),
        "BUILDKIT_PROGRESS": "plain",
    }
    if is_loopback_name(bind) and not given.get(ALLOWED_HOST_VARIABLE):
        variables[ALLOWED_HOST_VARIABLE] = "localhost"  # only this name reaches the published port
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
        with as_stack_errors(engine.socket):
            variables["DOCKER_GID"] = str(engine.socket.stat().st_gid)
    return variables


def save_project(state_dir: Path, project: Project) -> None:
    """Save the project in the state directory, so that `status` and `down` need no flags.

    Raises:
        StackError: The file cannot be written.
    """
    kept = {"name": project.name, "directory": str(project.directory), "files": project.files}
    write_private(state_dir / _FILE, json.dumps(kept) + "\n")


def load_project(settings: Settings, environ: Mapping[str, str] = os.environ) -> Project | None:
    """Return the project that was last started; None before the first start."""
    try:
        kept = json.loads((settings.state_dir / _FILE).read_text(encoding="utf-8"))
        return Project(
            name=str(kept["name"]),
            directory=Path(kept["directory"]),
            files=tuple(map(str, kept["files"])),
            environment={**environ, **settings.variables, **_list_variables(settings, None)},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
