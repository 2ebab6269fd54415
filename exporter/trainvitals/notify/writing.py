"""Files that are written anew from variables, and left alone once a person has written in them.

The first line of such a file has the SHA-256 of the rest. Where it has none, or another one, the
file is a person's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainvitals.errors import ConfigurationError
from trainvitals.homes import expand_home
from trainvitals.notify.channels import Version
from trainvitals.notify.checking import PARTIAL
from trainvitals.notify.destinations import Destinations, find_destinations
from trainvitals.notify.links import Links, read_links, render_links
from trainvitals.notify.receivers import read_receivers
from trainvitals.notify.rendering import find_left_out, render

Report = Callable[[str], None]
Fate = Literal["written", "same", "kept"]

_FILE = "alertmanager.yml"
_LINKS = "links.tmpl"
_MARK = "written by `trainvitals notify` from .env, and no more once it is changed here"
_MARKED = re.compile(rf".*{re.escape(_MARK)} \(sha256 ([0-9a-f]{{64}})\).*")
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Rendered:
    """What was written.

    Attributes:
        path: The configuration that Alertmanager is to read.
        destinations: Where alerts go with it.
        is_changed: Whether anything is new, so that a running Alertmanager must read it again.
        remarks: What a person should know, in one line each.
    """

    path: Path
    destinations: Destinations
    is_changed: bool
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Access:
    """Who may read a file: None keeps what the old file has."""

    owner: tuple[int, int] | None
    mode: int


def write_configuration(
    variables: Mapping[str, str],
    directory: Path,
    *,
    shipped: Path,
    links: Links | None = None,
    version: Version | None = None,
    report: Report = lambda _: None,
    check: Callable[[Path], None] = lambda _: None,
    owner: tuple[int, int] | None = None,
    mode: int = 0o600,
) -> Rendered:
    """Write the configuration and the templates, all or nothing.

    A file that a person has written or changed is left as it is. ALERTMANAGER_CONFIG names a file
    to be used instead; then nothing is written.

    Args:
        variables: The environment and `.env`.
        directory: Where the files go; only its owner can enter it.
        shipped: The shipped directory `alertmanager`.
        links: Where links lead without GRAFANA_URL and RUNBOOK_URL; None for the usual ports.
        version: Of the Alertmanager that will read it; None for the oldest that is still about.
        report: Told what a person should know, in one line each.
        check: Given the new configuration before it takes the old one's place; raises if it is bad.
        owner: User and group of the files and the directory; None for those who own the old file,
            else the user who runs this.
        mode: Permissions of the files.

    Raises:
        ConfigurationError: A variable cannot be, the configuration is bad, or a file cannot be
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
    remarks = [*receivers.remarks, *find_left_out(receivers, version)]
    access = _Access(owner, mode)
    try:
        for each in (directory, directory / "templates"):
            _make_private(each, owner)
        fates = [_write(directory / name, each, access) for name, each in texts.items()]
        fates.append(_write(directory / _FILE, text, access, check))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {error.filename or directory}: {error.strerror}; mend that, or choose "
            "another with --state-dir"
        ) from error
    kept = [name for name, fate in zip([*texts, _FILE], fates, strict=True) if fate == "kept"]
    remarks += [
        f"{directory / name} was written by hand and is left as it is; remove it to go back to .env"
        for name in kept
    ]
    for remark in remarks:
        report(remark)
    destinations = find_destinations(receivers, version)
    if _FILE in kept:
        destinations = Destinations(written_by_hand=directory / _FILE)
    return Rendered(directory / _FILE, destinations, "written" in fates, tuple(remarks))


def _use_chosen(path: Path, check: Callable[[Path], None]) -> Rendered:
    if not path.is_file():
        raise ConfigurationError(
            f"ALERTMANAGER_CONFIG names {path}, and there is no such file: correct it, or take it "
            "out of .env"
        )
    check(path)
    # What is in it is not known here, so a running Alertmanager reads it again.
    return Rendered(path, Destinations(written_by_hand=path), is_changed=True)


def _make_private(directory: Path, owner: tuple[int, int] | None) -> None:
    # `parents=True` would leave those above open to everybody.
    for each in (*reversed(directory.parents), directory):
        if not each.is_dir():
            each.mkdir(mode=_PRIVATE, exist_ok=True)
    if directory.stat().st_mode & ~_PRIVATE & 0o777:
        directory.chmod(_PRIVATE)
    if owner is not None:
        os.chown(directory, *owner)


def _write(
    path: Path, body: str, access: _Access, check: Callable[[Path], None] = lambda _: None
) -> Fate:
    line = f"{_MARK} (sha256 {_digest(body)})"
    text = (f"{{{{/* {line} */}}}}\n" if path.suffix == ".tmpl" else f"# {line}\n") + body
    old = _read(path)
    if old is not None and not _is_ours(old):
        check(path)
        return "kept"
    partial = path.with_name(f".{path.name}{PARTIAL}")
    access = _keep_access(path, access)
    if old == text and path.stat().st_mode & 0o777 == access.mode:
        check(path)
        return "same"
    try:
        _create(partial, text, access)
        check(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _flush_directory(path.parent)
    return "written"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _is_ours(text: str) -> bool:
    line, _, body = text.partition("\n")
    marked = _MARKED.fullmatch(line)
    return marked is not None and marked[1] == _digest(body)


def _read(path: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8", errors="replace")
    return None


def _keep_access(path: Path, access: _Access) -> _Access:
    """Leave a file to whom it was given: the user of a container may be another than ours."""
    if access.owner is not None or os.geteuid() != 0:
        return access
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return _Access((status.st_uid, status.st_gid), access.mode)
    return access


def _create(path: Path, text: str, access: _Access) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, access.mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, access.mode)
        if access.owner is not None:
            os.fchown(descriptor, *access.owner)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
