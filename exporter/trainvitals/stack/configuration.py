"""The configuration that Prometheus gets.

`config/prometheus` of the state directory leads to the shipped `prometheus.yml` and rules, and has
targets of its own: where this machine's programs listen, and under which name alerts speak of it.
Files that a person adds to `targets` stay, and so does a `prometheus.yml` in the link's place.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

from trainvitals.stack.writing import link, make_private, told_clearly, write_private

_JOBS = ("trainvitals", "prometheus", "alertmanager")
_HEADER = """\
# Written by `trainvitals up`, which writes it again.
# Other machines go into a file of their own beside this one, as {job}-others.yml.
"""


def name_machine(variables: Mapping[str, str]) -> str:
    """Give the name that alerts call this machine by: `HOST_NAME`, else the host name."""
    return variables.get("HOST_NAME") or socket.gethostname()


def write_prometheus_config(
    directory: Path, *, shipped: Path, addresses: Mapping[str, str], machine: str
) -> Path:
    """Write the directory and give the path of its `prometheus.yml`.

    Args:
        directory: `config/prometheus` of the state directory.
        shipped: The shipped directory `prometheus`.
        addresses: `HOST:PORT` of each job that there is on this machine.
        machine: The label `instance` of all of them.

    Raises:
        StackError: The directory cannot be written.
    """
    make_private(directory / "targets")
    for name in ("prometheus.yml", "rules"):
        path = directory / name
        if path.is_symlink() or not path.exists():
            link(path, shipped / name)
    write_targets(directory / "targets", addresses=addresses, machine=machine)
    return directory / "prometheus.yml"


def write_targets(directory: Path, *, addresses: Mapping[str, str], machine: str) -> None:
    """Write this machine's targets into a directory and leave what else is in it.

    Args:
        directory: It is there.
        addresses: `HOST:PORT` of each job that there is.
        machine: The label `instance` of all of them.

    Raises:
        StackError: The directory cannot be written.
    """
    for job in _JOBS:
        path = directory / f"{job}.yml"
        if job in addresses:
            _write_changed(path, _render_targets(job, addresses[job], machine))
        else:
            with told_clearly(path):
                path.unlink(missing_ok=True)


def _render_targets(job: str, address: str, machine: str) -> str:
    # A string of JSON is one of YAML too, whatever the name of the machine contains.
    return (
        _HEADER.format(job=job)
        + f"- targets: [{json.dumps(address)}]\n  labels: {{instance: {json.dumps(machine)}}}\n"
    )


def _write_changed(path: Path, text: str) -> None:
    with told_clearly(path):
        written = path.read_text(encoding="utf-8") if path.exists() else None
    if written != text:
        write_private(path, text)
