"""Files that another user of the machine may have made: the one way to open and to read them.

Such a path can name a link to a file that only root may read, a pipe without a writer, a
device that never ends or has effects when it is opened, or a file of a terabyte. So only regular
files are opened, another user's link is not followed to files that this user may not read, and not
more is read than is asked for.

The read itself can still wait, if the file is on a file system that does not respond.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

_OPEN_FILES = Path("/dev/fd")
_CHUNK_BYTES = 1 << 20
_MOST_LINKS = 40
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def open_regular(path: str, *, folder: int | None = None, follows: bool = True) -> int:
    """Open a regular file for reading, even if another file may take its name in between.

    Opening a device can have effects (a watchdog restarts the machine), and opening a pipe can
    block forever. Therefore the path is opened with O_PATH first, then checked, and only then
    opened for reading.

    Args:
        path: The file.
        folder: An open directory that the path begins from.
        follows: Whether symbolic links are followed, except those of other users to files that
            they may not read; else the last component must not be one.

    Raises:
        OSError: The file cannot be opened; EINVAL if it is not a regular file, ELOOP if it is
            behind a symbolic link that is not followed.
    """
    if not hasattr(os, "O_PATH"):  # not Linux
        no_link = 0 if follows else _NO_LINK
        return _require_regular(os.open(path, _READING | no_link, dir_fd=folder))
    if follows:
        held = _walk(path, folder)
    else:
        held = os.open(path, os.O_PATH | os.O_CLOEXEC | _NO_LINK, dir_fd=folder)
    _require_regular(held)
    try:
        return os.open(f"/proc/self/fd/{held}", _READING)
    finally:
        os.close(held)


def read_regular(
    path: Path, most_bytes: int, *, follows: bool = True, from_end: bool = False
) -> bytes:
    """Read a regular file, opened as `open_regular` does.

    Args:
        path: The file.
        most_bytes: The maximum number of bytes.
        follows: As for `open_regular`.
        from_end: Whether the last bytes of a larger file are read instead of the first.

    Raises:
        OSError: The file cannot be opened or read.
    """
    descriptor = open_regular(str(path), follows=follows)
    try:
        start = max(0, os.fstat(descriptor).st_size - most_bytes) if from_end else 0
        data = bytearray()
        while left := most_bytes - len(data):
            more = os.pread(descriptor, min(left, _CHUNK_BYTES), start + len(data))
            if not more:
                break
            data += more
        return bytes(data)
    finally:
        os.close(descriptor)


def read_whole(path: Path, most_bytes: int, *, follows: bool = True) -> bytes:
    """Read a regular file that is of no use in part.

    Args:
        path: The file.
        most_bytes: The size up to which it is read.
        follows: As for `open_regular`.

    Raises:
        OSError: The file cannot be opened or read; EFBIG if it is larger.
    """
    return _require_whole(read_regular(path, most_bytes + 1, follows=follows), most_bytes)


def _require_whole(data: bytes, most_bytes: int) -> bytes:
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
    return data


def open_named(path: Path) -> BufferedReader:
    """Open a file that the user of a command named.

    It must be a regular one, except those that the shell opened: `<(COMMAND)` is `/dev/fd/63`.

    Raises:
        OSError: As for `open_regular`.
    """
    if path.parent == _OPEN_FILES:
        return path.open("rb")
    return open(open_regular(str(path)), "rb")


def read_named(path: Path, most_bytes: int) -> bytes:
    """Read a file that the user of a command named, opened as `open_named` does.

    Args:
        path: The file.
        most_bytes: The size up to which it is read.

    Raises:
        OSError: The file cannot be opened or read; EFBIG if it is larger.
    """
    with open_named(path) as file:
        return _require_whole(file.read(most_bytes + 1), most_bytes)


def explain_refusal(error: OSError) -> str:
    """Return why a file could not be read, and what to do about it."""
    match error.errno:
        case errno.ELOOP | errno.EINVAL:
            remedy = "put the file itself there"
        case errno.EFBIG:
            remedy = "keep the part that matters"
        case _:
            remedy = "run as a user that may read it"
    return f"{error.strerror}; {remedy}"


def _walk(path: str, folder: int | None) -> int:
    """Return a descriptor with O_PATH for what a path leads to, component by component.

    Raises:
        OSError: A component does not exist, or ELOOP as in `open_regular`.
    """
    flags = os.O_PATH | os.O_CLOEXEC | _NO_LINK
    place = os.open("/" if path.startswith("/") else ".", flags, dir_fd=folder)
    steps = _split(path)
    links: list[os.stat_result] = []
    passed: list[os.stat_result] = []
    try:
        while steps and len(links) <= _MOST_LINKS:
            step = steps.pop()
            inner = os.open(step, flags, dir_fd=place)
            status = os.fstat(inner)
            if stat.S_ISLNK(status.st_mode):
                links.append(status)
                inner = _follow(inner, step, place, steps)
                status = os.fstat(inner)
            os.close(place)
            place = inner
            passed.append(status)
        _check_links(links, passed)
    except OSError:
        os.close(place)
        raise
    return place


def _check_links(links: Sequence[os.stat_result], passed: Sequence[os.stat_result]) -> None:
    if len(links) > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    makers = {link.st_uid for link in links} - {0, os.geteuid()}
    if not all(_may_read(maker, passed) for maker in makers):
        raise OSError(errno.ELOOP, "it is behind a symbolic link of a user who may not read it")


def _may_read(user: int, passed: Sequence[os.stat_result]) -> bool:
    """Return whether a file is a user's, or its mode and those of its folders let him read it."""
    *folders, file = passed
    if file.st_uid == user:
        return True
    searches = (stat.S_IXUSR if each.st_uid == user else stat.S_IXOTH for each in folders)
    may_reach = all(each.st_mode & bit for each, bit in zip(folders, searches, strict=True))
    return may_reach and bool(file.st_mode & stat.S_IROTH)


def _follow(link: int, step: str, place: int, steps: list[str]) -> int:
    """Return where to go on after a symbolic link, and put what it names before the other steps."""
    try:
        if not os.fstat(link).st_size:
            # The target of a kernel link such as `/proc/PID/root` cannot be opened by its text.
            return os.open(step, os.O_PATH | os.O_CLOEXEC, dir_fd=place)
        target = os.readlink("", dir_fd=link)
    finally:
        os.close(link)
    steps += _split(target)
    return os.open("/", os.O_PATH | os.O_CLOEXEC) if target.startswith("/") else os.dup(place)


def _split(path: str) -> list[str]:
    """Return the components of a path, the last first."""
    return [step for step in reversed(path.split("/")) if step]


def _require_regular(descriptor: int) -> int:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link, no regular file")
    raise OSError(errno.EINVAL, "it is no regular file")
