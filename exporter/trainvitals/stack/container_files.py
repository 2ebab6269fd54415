"""Makes configuration files and files with secrets readable for containers.

If root runs the command, a file with secrets gets the container's user as its owner, and mode 0600.
Other users cannot change a file's owner. For these users, the file is world-readable in a directory
with mode 0700, and the container reads the file through a mount below that directory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from trainvitals.stack.configuration import Retention, add_retention, write_targets
from trainvitals.stack.writing import as_stack_errors, make_private, write_private

FOLDER = "config/compose"
_STORAGE = re.compile(r"^storage:", re.MULTILINE)
_ALERTMANAGER = (65534, 65534)
_GRAFANA = (472, 0)
_ADDRESSES = {
    "trainvitals": "exporter:9200",
    "prometheus": "prometheus:9090",
    "alertmanager": "alertmanager:9093",
}


def share_targets(state_dir: Path, *, machine: str) -> None:
    """Write Prometheus' targets, which are not secret, for the Prometheus container.

    Args:
        state_dir: The state directory.
        machine: The value of the label `instance` of all targets.

    Raises:
        StackError: The file cannot be written.
    """
    directory = _make_folder(state_dir) / "targets"
    make_private(directory)
    write_targets(directory, addresses=_ADDRESSES, machine=machine)
    with as_stack_errors(directory):
        directory.chmod(0o755)
        for path in directory.glob("*.yml"):
            path.chmod(0o644)


def share_prometheus_config(state_dir: Path, *, shipped: Path, retention: Retention | None) -> bool:
    """Write Prometheus' configuration; return whether the retention was appended to it.

    The configuration is not secret. The rules and targets are mounted into its directory.

    Args:
        state_dir: The state directory.
        shipped: The path of the shipped `prometheus.yml`, to which a user may have added a section
            `storage`.
        retention: The retention to append to the file; None if flags set the retention.

    Raises:
        StackError: The file cannot be read or written.
    """
    directory = _make_folder(state_dir) / "prometheus"
    make_private(directory)
    with as_stack_errors(directory):
        for name in ("rules", "targets"):
            (directory / name).mkdir(exist_ok=True)
            (directory / name).chmod(0o755)
        text = shipped.read_text(encoding="utf-8")
        is_added = retention is not None and not _STORAGE.search(text)
        path = directory / "prometheus.yml"
        write_private(path, add_retention(text, retention) if retention and is_added else text)
        path.chmod(0o644)
        directory.chmod(0o755)
    return is_added


def share_alertmanager_config(state_dir: Path, config: Path) -> None:
    """Copy Alertmanager's configuration and adjacent templates for the Alertmanager container.

    Raises:
        StackError: The file cannot be read or written.
    """
    directory = _make_folder(state_dir) / "alertmanager"
    files = {"alertmanager.yml": config}
    files |= {f"templates/{path.name}": path for path in config.parent.glob("templates/*.tmpl")}
    with as_stack_errors(directory):
        for folder in (directory, directory / "templates"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _set_owner(folder, _ALERTMANAGER)
        for name, source in files.items():
            _copy(source, directory / name)
        for old in directory.glob("templates/*.tmpl"):
            if f"templates/{old.name}" not in files:
                old.unlink()


def is_config_shared(state_dir: Path) -> bool:
    """Return whether a configuration for an Alertmanager container exists."""
    return (state_dir / FOLDER / "alertmanager").is_dir()


def share_password(path: Path) -> None:
    """Make the Grafana password file readable for the Grafana container.

    Raises:
        StackError: The file's owner or permissions cannot be changed.
    """
    with as_stack_errors(path):
        path.parent.chmod(0o700)
        _set_owner(path, _GRAFANA)


def _make_folder(state_dir: Path) -> Path:
    folder = state_dir / FOLDER
    make_private(folder)
    with as_stack_errors(folder):
        folder.chmod(0o700)
    return folder


def _copy(source: Path, target: Path) -> None:
    # The file is renamed into place, so that a container never reads a partial file.
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(source.read_bytes())
    _set_owner(partial, _ALERTMANAGER)
    partial.replace(target)


def _set_owner(path: Path, owner: tuple[int, int]) -> None:
    is_folder = path.is_dir()
    if os.geteuid() == 0:
        os.chown(path, *owner)
        path.chmod(0o700 if is_folder else 0o600)
    else:
        path.chmod(0o755 if is_folder else 0o644)
