"""Writes private files and links in the state directory atomically."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.units import format_bytes

# Prometheus preallocates about this much space for its write-ahead log and chunks.
LEAST_FREE_BYTES = 200_000_000


@contextmanager
def as_stack_errors(path: Path) -> Iterator[None]:
    """Convert an OSError about a path into a StackError with a one-line message.

    Raises:
        StackError: The body of the `with` statement raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise StackError(
            f"cannot write {error.filename or path}: {error.strerror or error}; "
            "choose another with --state-dir"
        ) from error


def make_private(directory: Path) -> None:
    """Create a directory and the missing parent directories with mode 0700.

    Raises:
        StackError: The directory cannot be created.
    """
    with as_stack_errors(directory):
        # `parents=True` would create the parents with the default mode.
        for each in (*reversed(directory.parents), directory):
            if not each.is_dir():
                each.mkdir(mode=0o700, exist_ok=True)


def require_readable(state_dir: Path) -> None:
    """Check that a state directory is readable or does not exist.

    Raises:
        StackError: The directory belongs to another user.
    """
    try:
        with os.scandir(state_dir):
            (state_dir / ".").stat()
    except PermissionError as error:
        raise StackError(
            f"cannot read {state_dir}: {error.strerror}; run this as the user who started the stack"
        ) from error
    except OSError:
        return


@contextmanager
def hold_lock(state_dir: Path) -> Iterator[None]:
    """Create the state directory if it is missing, and hold the directory's lock.

    Raises:
        StackError: The directory cannot be written.
    """
    make_private(state_dir)
    with as_stack_errors(state_dir):
        lock = (state_dir / "lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, with mode 0600.

    Raises:
        StackError: The file cannot be written.
    """
    # A name that begins with a dot does not match any pattern for configuration files.
    partial = path.with_name(f".{path.name}.partial")
    with as_stack_errors(path):
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)
                file.write(text)
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def link(path: Path, target: Path) -> None:
    """Create a symbolic link, or replace an existing link that has another target.

    Raises:
        StackError: The link cannot be created.
    """
    if path.is_symlink() and path.readlink() == target:
        return
    partial = path.with_name(f".{path.name}.partial")
    with as_stack_errors(path):
        partial.unlink(missing_ok=True)
        partial.symlink_to(target)
        partial.replace(path)


def require_free_space(
    directory: Path,
    *,
    least_bytes: int = LEAST_FREE_BYTES,
    remedy: str = "free some space, or choose another directory with --state-dir",
) -> None:
    """Check that a file system has enough free space.

    Raises:
        StackError: Fewer than `least_bytes` bytes are free; the message ends with the remedy.
    """
    with as_stack_errors(directory):
        free = shutil.disk_usage(directory).free
    if free < least_bytes:
        raise StackError(
            f"{format_bytes(free)} are free in {directory} and at least "
            f"{format_bytes(least_bytes)} are needed: {remedy}"
        )
