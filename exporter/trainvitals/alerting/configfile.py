"""Writes Alertmanager's configuration files, which are generated from `.env`.

The first line of a file contains the SHA-256 checksum of the following lines. A file without a
checksum, or with a checksum that does not match, counts as manually edited and is not overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.alerting.alertmanager import PARTIAL
from trainvitals.alerting.configuration import Links, read_links, render, render_links
from trainvitals.alerting.receivers import (
    Destinations,
    find_destinations,
    find_unsupported,
    read_receivers,
)
from trainvitals.errors import ConfigurationError
from trainvitals.homes import expand_home
from trainvitals.sources.external_program import Version

Report = Callable[[str], None]

_FILE = "alertmanager.yml"
_LINKS = "links.tmpl"
_MARK = "written by `trainvitals notify` from .env, and no more once it is changed here"
_MARKED = re.compile(rf"{re.escape(_MARK)} \(sha256 ([0-9a-f]{{64}})\)")
_PRIVATE_DIRECTORY, _SHARED_DIRECTORY, _PRIVATE_FILE = 0o700, 0o750, 0o600


@dataclass(frozen=True, slots=True)
class Rendered:
    """The result of writing Alertmanager's configuration.

    Attributes:
        path: The path of Alertmanager's configuration file.
        destinations: The destinations of alerts according to the configuration.
    """

    path: Path
    destinations: Destinations


def write_configuration(
    variables: Mapping[str, str],
    directory: Path,
    *,
    shipped: Path,
    links: Links | None = None,
    version: Version | None = None,
    report: Report = lambda _: None,
    check: Callable[[Path], None] = lambda _: None,
) -> Rendered:
    """Write all files of Alertmanager's configuration and templates, or none of them on an error.

    A manually edited file is not overwritten. If ALERTMANAGER_CONFIG is set, the file at this path
    is used and nothing is written.

    Args:
        variables: The variables in the environment and in `.env`.
        directory: The directory for the files, which only the directory's owner can access.
        shipped: The path of the shipped directory `alertmanager`.
        links: The links in notifications if GRAFANA_URL and RUNBOOK_URL are not set; None for links
            with the default ports.
        version: The version of Alertmanager that will read the file; None for the oldest supported
            version.
        report: Called with each warning as one line.
        check: Called with the new configuration before the old one is replaced; raises an exception
            if the new configuration is invalid.

    Raises:
        ConfigurationError: A variable or the configuration is invalid, or a file cannot be
            written.
    """
    chosen = variables.get("ALERTMANAGER_CONFIG")
    if chosen:
        return _use_chosen(expand_home(Path(chosen), "ALERTMANAGER_CONFIG").absolute(), check)
    receivers = read_receivers(variables)
    texts = {
        f"templates/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(shipped.glob("templates/*.tmpl"))
    }
    texts[f"templates/{_LINKS}"] = render_links(read_links(variables, links))
    text = render(receivers, base=shipped / _FILE, version=version)
    try:
        for each in (directory, directory / "templates"):
            _make_private(each)
        is_ours = {name: _write(directory / name, each) for name, each in texts.items()}
        is_ours[_FILE] = _write(directory / _FILE, text, check)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {error.filename or directory}: {error.strerror}; choose another "
            "directory with --state-dir"
        ) from error
    for remark in (*receivers.remarks, *find_unsupported(receivers, version)):
        report(remark)
    for path in (directory / name for name, ours in is_ours.items() if not ours):
        report(f"{path} was edited by hand and is not changed; remove it to use .env again")
    if not is_ours[_FILE]:
        return Rendered(directory / _FILE, Destinations(written_by_hand=directory / _FILE))
    return Rendered(directory / _FILE, find_destinations(receivers, version))


def _use_chosen(path: Path, check: Callable[[Path], None]) -> Rendered:
    if not path.is_file():
        raise ConfigurationError(
            f"ALERTMANAGER_CONFIG={path}: there is no such file; correct it, or remove it from .env"
        )
    check(path)
    return Rendered(path, Destinations(written_by_hand=path))


def _make_private(directory: Path) -> None:
    # `parents=True` would create the parents with the default mode, which other users can read.
    for each in (*reversed(directory.parents), directory):
        if not each.is_dir():
            each.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    # If root writes the files, Alertmanager may be a member of the group that reads the directory.
    allowed = _SHARED_DIRECTORY if os.geteuid() == 0 else _PRIVATE_DIRECTORY
    if (mode := directory.stat().st_mode & 0o777) & ~allowed:
        directory.chmod(mode & allowed)


def _write(path: Path, body: str, check: Callable[[Path], None] = lambda _: None) -> bool:
    """Write a file unless it is up to date; return False if a manually edited file is kept."""
    line = f"{_MARK} (sha256 {_digest(body)})"
    text = (f"{{{{/* {line} */}}}}\n" if path.suffix == ".tmpl" else f"# {line}\n") + body
    old = _read(path)
    if old is not None and not _is_ours(old):
        check(path)
        return False
    if old == text and path.stat().st_mode & 0o777 == _PRIVATE_FILE:
        check(path)
        return True
    partial = path.with_name(f".{path.name}{PARTIAL}")
    try:
        _create(partial, text, _find_owner(path))
        check(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _flush_directory(path.parent)
    return True


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _is_ours(text: str) -> bool:
    line, _, body = text.partition("\n")
    marked = _MARKED.search(line)
    return marked is not None and marked[1] == _digest(body)


def _read(path: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8", errors="replace")
    return None


def _find_owner(path: Path) -> tuple[int, int] | None:
    """Return the owner of a file that root replaces, because Alertmanager may run as this owner."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    return None


def _create(path: Path, text: str, owner: tuple[int, int] | None) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, _PRIVATE_FILE)
        if owner is not None:
            os.fchown(descriptor, *owner)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
