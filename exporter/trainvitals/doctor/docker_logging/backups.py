"""Replaces a file atomically, with backups.

A backup is stored in the directory of the original file. The backup's name contains the file name
and the time: `daemon.json.trainvitals-TIME`. If the original file did not exist, the backup is
empty and its name ends in `.absent`. If `--revert` replaces a file, the replaced file is kept under
a name that ends in `.reverted`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trainvitals.errors import ConfigurationError
from trainvitals.units import format_stamp

_NAME = re.compile(r"\.trainvitals-(\d{8}T\d{6}Z)(?:-(\d+))?(\.absent)?")
_PLAIN = 0o644
_REMEDIES = {
    errno.EACCES: "run this with sudo",
    errno.EPERM: "run this with sudo",
    errno.EROFS: "the file system is read-only: change the file where it is generated",
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
}


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of a file before a change.

    Attributes:
        path: The path of the backup.
        was_absent: Whether the file did not exist when the backup was made.
    """

    path: Path
    was_absent: bool


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, following symbolic links; None if the file does not exist.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check what it is")
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; {remedy}") from error


def replace_file(path: Path, data: bytes, before: bytes | None, *, time: float) -> Backup:
    """Replace a file, keep its owner and mode, and keep the old file as a backup.

    Args:
        path: The path of the file; if it is a symbolic link, the link is kept and the target is
            replaced.
        data: The new content of the file.
        before: The content of the file when it was read; None if the file did not exist.
        time: The current time in Unix seconds.

    Raises:
        ConfigurationError: The file cannot be written, or has changed since it was read.
    """
    target = _follow(path)
    with _explained(target):
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.trainvitals-partial")
        partial.unlink(missing_ok=True)
        try:
            # The new file is written before the backup, so that a failure leaves no backup behind.
            _write(partial, data, target)
            if read_file(target) != before:
                raise ConfigurationError(
                    f"{path} was changed by another program meanwhile; run this again"
                )
            ending = ".absent" if before is None else ""
            backup = Backup(_find_free(target, time, ending), was_absent=before is None)
            _write(backup.path, before or b"", target)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        _sync(target.parent)
    return backup


def restore(path: Path, *, time: float) -> tuple[Backup, Path | None]:
    """Replace a file with its newest backup, byte for byte.

    Args:
        path: The path of the file; if it is a symbolic link, the link is kept.
        time: The current time in Unix seconds.

    Returns:
        The backup, which has been removed, and the path at which the replaced file is kept. The
        path is None if the file did not exist.

    Raises:
        ConfigurationError: No backup exists, or the file cannot be written.
    """
    target = _follow(path)
    with _explained(target):
        newest, present, kept = _find_newest(target), read_file(target), None
        if present is not None:
            kept = _find_free(target, time, ".reverted")
            _write(kept, present, target)
        if newest.was_absent:
            target.unlink(missing_ok=True)
            newest.path.unlink()
        else:
            newest.path.replace(target)
        _sync(target.parent)
    return newest, kept


def _find_newest(target: Path) -> Backup:
    found = [
        (name[1], int(name[2] or 0), path, bool(name[3]))
        for path in target.parent.glob("*.trainvitals-*")
        if (name := _NAME.fullmatch(path.name.removeprefix(target.name)))
    ]
    if not found:
        raise ConfigurationError(
            f"cannot revert: there is no backup {target}.trainvitals-… of an earlier --apply"
        )
    _, _, path, was_absent = max(found)
    return Backup(path, was_absent)


def _follow(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(
            f"cannot resolve {path}: the symbolic link points to itself"
        ) from error


def _find_free(target: Path, time: float, ending: str) -> Path:
    stem = target.with_name(f"{target.name}.trainvitals-{format_stamp(time)}")
    names = (str(stem) if number == 1 else f"{stem}-{number}" for number in count(1))
    endings = ("", ".absent", ".reverted")
    return Path(next(n for n in names if not any(Path(n + e).exists() for e in endings)) + ending)


def _write(path: Path, data: bytes, like: Path) -> None:
    """Write a new file atomically, with the owner, mode and attributes of another file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if not like.exists():
            path.chmod(_PLAIN)
            return
        there = like.stat()
        if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(path, there.st_uid, there.st_gid)
        shutil.copystat(like, path)
        os.utime(path)
    except OSError:
        path.unlink()
        raise


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check what is there")
        raise ConfigurationError(f"cannot write {target}: {error.strerror}; {remedy}") from error
