"""Putting a file in its place: whole or not at all, and never without a way back.

A backup lies beside the file and is named after it and the time, `daemon.json.trainvitals-TIME`.
Where there was no file before, the backup is empty and its name ends in `.absent`.
What `--revert` takes away is kept under a name that ends in `.reverted`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trainvitals.errors import ConfigurationError

_NAME = re.compile(r"\.trainvitals-(\d{8}T\d{6}Z)(?:-(\d+))?(\.absent)?")
_PRIVATE = 0o600
_PLAIN = 0o644
_BITS = 0o7777


@dataclass(frozen=True, slots=True)
class Backup:
    """What there was before a change.

    Attributes:
        path: Where it is kept.
        was_absent: Whether there was no file.
    """

    path: Path
    was_absent: bool


def read_file(path: Path) -> bytes | None:
    """Read the file, through links; None where there is none.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        remedy = "run it with sudo" if isinstance(error, PermissionError) else "look at what it is"
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; {remedy}") from error


def place(path: Path, data: bytes, before: bytes | None, *, time: float) -> Backup:
    """Write a file anew with the owner and mode of the old one, which is kept as a backup.

    Args:
        path: The file; a link stays, and what it leads to is written.
        data: What it is to say.
        before: What it said when it was read; None where there was none.
        time: Now, seconds since 1970.

    Raises:
        ConfigurationError: It cannot be written, or is no longer what it was.
    """
    target = _follow(path)
    with _told_clearly(target):
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Written first, so that nothing is left behind where this cannot be.
        partial = _write_partial(target, data)
        try:
            if read_file(target) != before:
                raise ConfigurationError(f"{path} was changed just now: call this again")
            backup = _keep(target, before, time)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        _sync(target.parent)
    return backup


def restore(path: Path, *, time: float) -> tuple[Backup, Path | None]:
    """Put the newest backup in the place of the file, byte for byte.

    Args:
        path: The file; a link stays.
        time: Now, seconds since 1970.

    Returns:
        The backup that was used up, and where the file that was there is kept; None for none.

    Raises:
        ConfigurationError: There is no backup, or the file cannot be written.
    """
    target = _follow(path)
    with _told_clearly(target):
        backups = list_backups(target)
        if not backups:
            raise ConfigurationError(
                f"there is nothing to go back to: no {target}.trainvitals-… from an earlier --apply"
            )
        newest, present, kept = backups[0], read_file(target), None
        if present is not None:
            kept = _write_copy(target, _find_free(target, time, ".reverted"), present)
        if newest.was_absent:
            target.unlink(missing_ok=True)
            newest.path.unlink()
        else:
            newest.path.replace(target)
        _sync(target.parent)
    return newest, kept


def list_backups(target: Path) -> tuple[Backup, ...]:
    """List the backups of a file, the newest first."""
    paths = target.parent.glob(f"{_escape(target.name)}.trainvitals-*")
    named = [(_NAME.fullmatch(path.name[len(target.name) :]), path) for path in paths]
    found = [
        ((name[1], int(name[2] or 0)), Backup(path, was_absent=bool(name[3])))
        for name, path in named
        if name
    ]
    return tuple(backup for _, backup in sorted(found, key=lambda each: each[0], reverse=True))


def _escape(name: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", name)


def _follow(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise ConfigurationError(f"cannot follow the link {path}: it leads to itself") from error


def _keep(target: Path, before: bytes | None, time: float) -> Backup:
    if before is None:
        backup = Backup(_find_free(target, time, ".absent"), was_absent=True)
        _write_new(backup.path, b"", _PRIVATE)
        return backup
    return Backup(_write_copy(target, _find_free(target, time, ""), before), was_absent=False)


def _find_free(target: Path, time: float, ending: str) -> Path:
    stamp = datetime.fromtimestamp(time, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    stem = f"{target.name}.trainvitals-{stamp}"
    for number in range(1, 1000):
        name = stem if number == 1 else f"{stem}-{number}"
        if not any(target.with_name(name + each).exists() for each in ("", ".absent", ".reverted")):
            return target.with_name(name + ending)
    raise ConfigurationError(f"there are too many {stem}…: remove what you do not need")


def _write_copy(target: Path, copy: Path, data: bytes) -> Path:
    _write_new(copy, data, _PRIVATE)
    try:
        _liken(copy, target)
    except OSError:
        copy.unlink()
        raise
    return copy


def _write_partial(target: Path, data: bytes) -> Path:
    partial = target.with_name(f".{target.name}.trainvitals-partial")
    with suppress(FileNotFoundError):
        partial.unlink()
    if target.exists():
        return _write_copy(target, partial, data)
    _write_new(partial, data, _PRIVATE)
    partial.chmod(_PLAIN)
    return partial


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is not there yet, whole or not at all."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        path.unlink()
        raise


def _liken(path: Path, original: Path) -> None:
    """Give a file the owner, mode and extended attributes of another."""
    there = original.stat()
    if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, there.st_uid, there.st_gid)
    for name in os.listxattr(original):
        with suppress(OSError):  # what the file system sets itself
            os.setxattr(path, name, os.getxattr(original, name))
    path.chmod(there.st_mode & _BITS)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _told_clearly(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "look at what is there"
        if error.errno in {errno.EACCES, errno.EPERM}:
            remedy = "run it with sudo"
        elif error.errno == errno.EROFS:
            remedy = "its file system is read-only: change the file where it comes from"
        elif error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "make room there"
        raise ConfigurationError(f"cannot write {target}: {error.strerror}; {remedy}") from error
