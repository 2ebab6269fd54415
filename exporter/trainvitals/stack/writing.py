"""Files of the state directory: written whole, for the owner alone, or refused in one line."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainvitals.errors import StackError

# Prometheus alone maps a write-ahead log and chunks of this order before it has kept anything.
LEAST_FREE_BYTES = 200_000_000
_MEGABYTE = 1_000_000


@contextmanager
def told_clearly(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a path into one line.

    Raises:
        StackError: The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise StackError(
            f"cannot write {error.filename or path}: {error.strerror or error}; "
            "choose another with --state-dir"
        ) from error


def make_private(directory: Path) -> None:
    """Make a directory, with its parents, that only its owner enters.

    Raises:
        StackError: It cannot be made.
    """
    with told_clearly(directory):
        # `parents=True` would leave those above open to everybody.
        for each in (*reversed(directory.parents), directory):
            if not each.is_dir():
                each.mkdir(mode=0o700, exist_ok=True)


def refuse_closed_directory(state_dir: Path) -> None:
    """Check that what is in a state directory can be seen; one that is not there has nothing in it.

    Raises:
        StackError: It is another user's.
    """
    try:
        with os.scandir(state_dir):
            (state_dir / ".").stat()
    except PermissionError as error:
        raise StackError(
            f"cannot look into {state_dir}: {error.strerror}; ask as the user who started the stack"
        ) from error
    except OSError:
        return


@contextmanager
def hold_lock(state_dir: Path) -> Iterator[None]:
    """Make the state directory where it is missing, and wait until nobody else changes the stack.

    Raises:
        StackError: The directory cannot be written.
    """
    make_private(state_dir)
    with told_clearly(state_dir):
        lock = (state_dir / "lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads: the whole new one, or what was there before.

    Raises:
        StackError: It cannot be written.
    """
    # The name begins with a dot so that no pattern for configuration files finds it.
    partial = path.with_name(f".{path.name}.partial")
    with told_clearly(path):
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
    """Make a symbolic link, in the place of an older one that leads elsewhere.

    Raises:
        StackError: It cannot be made.
    """
    if path.is_symlink() and path.readlink() == target:
        return
    partial = path.with_name(f".{path.name}.partial")
    with told_clearly(path):
        partial.unlink(missing_ok=True)
        partial.symlink_to(target)
        partial.replace(path)


def refuse_full_disk(directory: Path, *, least_bytes: int = LEAST_FREE_BYTES) -> None:
    """Check that there is room to begin with.

    Raises:
        StackError: Less than `least_bytes` are free.
    """
    with told_clearly(directory):
        free = shutil.disk_usage(directory).free
    if free < least_bytes:
        raise StackError(
            f"{free // _MEGABYTE} MB are free in {directory} and at least "
            f"{least_bytes // _MEGABYTE} MB are needed: make room, or choose another directory "
            "with --state-dir"
        )
