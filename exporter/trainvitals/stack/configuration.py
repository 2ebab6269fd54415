"""Writes the files in the state directory that the stack's programs read.

`config/prometheus` in the state directory contains symbolic links to the shipped `prometheus.yml`
and rules. The directory also contains this machine's targets, which are the addresses of the
machine's programs with the label `instance`. If the Prometheus version can read the retention from
its configuration file, `prometheus.yml` is a copy of the shipped file with the retention appended.
Files that users add to `targets` are kept, as is a `prometheus.yml` that a user has written.

`config/alertmanager` contains Alertmanager's configuration and templates, and the list of alert
destinations that `trainvitals status` shows; `secrets` contains the Grafana password.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.alerting.alertmanager import check_configuration
from trainvitals.alerting.configfile import Rendered, write_configuration
from trainvitals.alerting.configuration import Links
from trainvitals.errors import StackError
from trainvitals.sources.external_program import Version
from trainvitals.stack.settings import Settings
from trainvitals.stack.writing import as_stack_errors, link, make_private, write_private

_JOBS = ("trainvitals", "prometheus", "alertmanager")
_HEADER = """\
# Written by `trainvitals up`, which writes it again.
# Write other machines to another file beside this one, such as {job}-others.yml.
"""
# Prometheus 3.10 reads the retention time in the file as a million times the specified time.
_CONFIGURES_RETENTION: Version = (3, 11)
_RETENTION_TIME, _RETENTION_SIZE = "15d", "8GB"
_RETENTION_HEADER = """\
# Written by `trainvitals up`, which writes it again: the shipped file with the retention at the end.
# To use your own instead, write it here without this line.
"""
_PASSWORD = "secrets/grafana_admin_password"  # noqa: S105 - a path, not a password
_LENGTH_BYTES = 18
_ALERTMANAGER = "config/alertmanager"
_DESTINATIONS = "destinations.json"


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits on the samples that Prometheus stores.

    Attributes:
        time: The maximum age of samples, such as `15d`.
        size: The maximum disk space for samples, such as `8GB`.
    """

    time: str
    size: str

    @property
    def flags(self) -> tuple[str, ...]:
        """The retention as command-line flags, which are deprecated in Prometheus 3."""
        return (
            f"--storage.tsdb.retention.time={self.time}",
            f"--storage.tsdb.retention.size={self.size}",
        )

    @property
    def section(self) -> str:
        """The retention as a section of Prometheus' configuration, in YAML."""
        fields = {"time": self.time, "size": self.size}
        return f"storage: {json.dumps({'tsdb': {'retention': fields}})}\n"


def read_retention(variables: Mapping[str, str]) -> Retention:
    """Return the retention that the variables define; 15 days and 8 GB by default."""
    return Retention(
        variables.get("PROMETHEUS_RETENTION_TIME") or _RETENTION_TIME,
        variables.get("PROMETHEUS_RETENTION_SIZE") or _RETENTION_SIZE,
    )


def add_retention(config: str, retention: Retention) -> str:
    """Return the text of the shipped `prometheus.yml` with the retention appended."""
    return f"{_RETENTION_HEADER}{config}\n{retention.section}"


def name_machine(variables: Mapping[str, str]) -> str:
    """Return this machine's value of the label `instance`: `HOST_NAME` if set, or the host name."""
    return variables.get("HOST_NAME") or socket.gethostname()


def write_prometheus_config(
    directory: Path,
    *,
    shipped: Path,
    addresses: Mapping[str, str],
    machine: str,
    retention: Retention | None = None,
) -> Path:
    """Write Prometheus' configuration directory and return the path of `prometheus.yml`.

    Args:
        directory: The directory `config/prometheus` in the state directory.
        shipped: The path of the shipped directory `prometheus`.
        addresses: The address (`HOST:PORT`) of each job on this machine.
        machine: The value of the label `instance` of all targets.
        retention: The retention to append to the shipped `prometheus.yml`; None for a symbolic link
            to the shipped file.

    Raises:
        StackError: The directory cannot be written.
    """
    make_private(directory / "targets")
    for name in ("prometheus.yml", "rules"):
        path = directory / name
        if path.is_symlink() or not path.exists() or has_our_retention(path):
            link(path, shipped / name)
    write_targets(directory / "targets", addresses=addresses, machine=machine)
    config = directory / "prometheus.yml"
    if retention is not None and config.is_symlink():
        text = config.read_text(encoding="utf-8")
        write_private(config, add_retention(text, retention))
    return config


def has_our_retention(config: Path) -> bool:
    """Return whether `trainvitals up` wrote a `prometheus.yml` that contains the retention."""
    try:
        return config.read_text(encoding="utf-8").startswith(_RETENTION_HEADER)
    except (OSError, UnicodeDecodeError):
        return False


def configures_retention(version: Version | None) -> bool:
    """Return whether a Prometheus version reads the retention from a file; False if unknown."""
    return version is not None and version >= _CONFIGURES_RETENTION


def write_targets(directory: Path, *, addresses: Mapping[str, str], machine: str) -> None:
    """Write this machine's targets into a directory, and keep the other files in the directory.

    Args:
        directory: The directory of the targets, which must exist.
        addresses: The address (`HOST:PORT`) of each job.
        machine: The value of the label `instance` of all targets.

    Raises:
        StackError: The directory cannot be written.
    """
    for job in _JOBS:
        path = directory / f"{job}.yml"
        if job in addresses:
            _write_changed(path, _render_targets(job, addresses[job], machine))
        else:
            with as_stack_errors(path):
                path.unlink(missing_ok=True)


def _render_targets(job: str, address: str, machine: str) -> str:
    # JSON strings are valid YAML, whatever characters the host name contains.
    return (
        _HEADER.format(job=job)
        + f"- targets: [{json.dumps(address)}]\n  labels: {{instance: {json.dumps(machine)}}}\n"
    )


def _write_changed(path: Path, text: str) -> None:
    with as_stack_errors(path):
        written = path.read_text(encoding="utf-8") if path.exists() else None
    if written != text:
        write_private(path, text)


def ensure_admin_password(
    state_dir: Path,
    variables: Mapping[str, str],
    *,
    report: Callable[[str], None],
    generate: Callable[[], str] = lambda: secrets.token_urlsafe(_LENGTH_BYTES),
) -> Path:
    """Return the path of the file with the Grafana admin password; create a missing file.

    Grafana reads the password only when it creates its database.

    Args:
        state_dir: The state directory; the file is `secrets/grafana_admin_password`, with mode
            0600.
        variables: The variables in the environment and in `.env`; `GRAFANA_ADMIN_PASSWORD` is
            written to the file if this variable is set.
        report: Called with one line if a password was generated.
        generate: Returns a new random password for Grafana.

    Raises:
        StackError: The file cannot be written.
    """
    path = state_dir / _PASSWORD
    make_private(path.parent)
    given = variables.get("GRAFANA_ADMIN_PASSWORD")
    with as_stack_errors(path):
        written = path.read_text(encoding="utf-8") if path.exists() else ""
    if given and given != written:
        write_private(path, given)
    elif not written:
        password = generate()
        write_private(path, password)
        report(f"log in to Grafana as admin with the password {password} (saved in {path})")
    return path


def write_alertmanager_config(
    settings: Settings,
    *,
    shipped: Path,
    links: Links,
    version: Version | None,
    amtool: Path | None,
    report: Callable[[str], None],
) -> Rendered:
    """Write Alertmanager's configuration to the state directory.

    Args:
        settings: The settings, which contain the state directory and the variables that define the
            receivers.
        shipped: The path of the shipped directory `alertmanager`.
        links: The links in notifications that apply unless a variable overrides them.
        version: The version of the Alertmanager that will read the file; None if the version is
            unknown.
        amtool: The path of the amtool that checks the new file before it replaces the old file;
            None to skip the check.
        report: Called with each warning as one line.

    Raises:
        ConfigurationError: A variable is invalid, amtool rejects the result, or a file cannot be
            written.
    """
    return write_configuration(
        settings.variables,
        settings.state_dir / _ALERTMANAGER,
        shipped=shipped,
        links=links,
        version=version,
        report=report,
        check=lambda path: check_configuration(path, amtool=amtool) if amtool else None,
    )


def find_amtool(find: Callable[[str], Path]) -> Path | None:
    """Return the path of amtool; None if amtool is not available."""
    try:
        return find("amtool")
    except StackError:
        return None


def save_destinations(state_dir: Path, lines: tuple[str, ...]) -> None:
    """Save the alert destinations that `trainvitals status` shows.

    Raises:
        StackError: The file cannot be written.
    """
    make_private(state_dir / _ALERTMANAGER)
    write_private(state_dir / _ALERTMANAGER / _DESTINATIONS, json.dumps(lines) + "\n")


def load_destinations(state_dir: Path) -> tuple[str, ...]:
    """Return the saved alert destinations, one line each; empty if none have been saved yet."""
    try:
        lines = json.loads((state_dir / _ALERTMANAGER / _DESTINATIONS).read_text(encoding="utf-8"))
        return tuple(map(str, lines))
    except (OSError, ValueError, TypeError):
        return ()


def report_destinations(
    state_dir: Path, report: Callable[[str], None], *, head: str = "alerts go to"
) -> None:
    """Report the saved alert destinations, one line each, aligned to the right of a heading."""
    for number, line in enumerate(load_destinations(state_dir)):
        report(f"{'' if number else head:{len(head)}} {line}")
