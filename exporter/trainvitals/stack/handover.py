"""Files that a container reads: given to its user where we may, else opened to it.

Root gives a secret to the user of the container, who alone can read it then. Anybody else cannot
give files away: there they are readable by all, in a folder that nobody else can enter, and reach
the container by a mount that leads past that folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainvitals.stack.configuration import write_targets
from trainvitals.stack.writing import make_private, told_clearly

FOLDER = "config/compose"
_ALERTMANAGER = (65534, 65534)
_GRAFANA = (472, 0)
_ADDRESSES = {
    "trainvitals": "exporter:9200",
    "prometheus": "prometheus:9090",
    "alertmanager": "alertmanager:9093",
}


def hand_over_targets(state_dir: Path, *, machine: str) -> None:
    """Write what Prometheus scrapes, which is no secret, for its container.

    Args:
        state_dir: The state directory.
        machine: The label `instance` of all targets.

    Raises:
        StackError: It cannot be written.
    """
    directory = _make_folder(state_dir) / "targets"
    make_private(directory)
    write_targets(directory, addresses=_ADDRESSES, machine=machine)
    with told_clearly(directory):
        directory.chmod(0o755)
        for path in directory.glob("*.yml"):
            path.chmod(0o644)


def hand_over_alertmanager(state_dir: Path, config: Path) -> None:
    """Copy Alertmanager's configuration, and the templates beside it, for its container.

    Raises:
        StackError: It cannot be read or written.
    """
    directory = _make_folder(state_dir) / "alertmanager"
    files = {"alertmanager.yml": config}
    files |= {f"templates/{path.name}": path for path in config.parent.glob("templates/*.tmpl")}
    with told_clearly(directory):
        for folder in (directory, directory / "templates"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _give(folder, _ALERTMANAGER)
        for name, source in files.items():
            _copy(source, directory / name)
        for old in directory.glob("templates/*.tmpl"):
            if f"templates/{old.name}" not in files:
                old.unlink()


def is_handed_over(state_dir: Path) -> bool:
    """Whether an Alertmanager in a container reads a copy of the configuration."""
    return (state_dir / FOLDER / "alertmanager").is_dir()


def hand_over_password(path: Path) -> None:
    """Let Grafana's container read the file with the password.

    Raises:
        StackError: The file's owner or permissions cannot be changed.
    """
    with told_clearly(path):
        path.parent.chmod(0o700)
        _give(path, _GRAFANA)


def _make_folder(state_dir: Path) -> Path:
    folder = state_dir / FOLDER
    make_private(folder)
    with told_clearly(folder):
        folder.chmod(0o700)
    return folder


def _copy(source: Path, target: Path) -> None:
    # Written beside and moved there: a container never sees half a file.
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(source.read_bytes())
    _give(partial, _ALERTMANAGER)
    partial.replace(target)


def _give(path: Path, owner: tuple[int, int]) -> None:
    is_folder = path.is_dir()
    if os.geteuid() == 0:
        os.chown(path, *owner)
        path.chmod(0o700 if is_folder else 0o600)
    else:
        path.chmod(0o755 if is_folder else 0o644)
