"""Opens and reads files that another user of the machine may have created.

Such a file may be a symbolic link to a file that only root may read, a pipe without a writer, a
device that never ends or that acts when it is opened, or a file of a terabyte. Therefore only
regular files are opened, and at most the requested number of bytes is read. A symbolic link is
followed only if the owner of the link may read the target.

Reading can still block if the file is on an unresponsive file system.
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
    """Open a regular file for reading, even if its path is replaced during the call.

    Opening a device can have side effects (a watchdog restarts the machine), and opening a pipe can
    block forever. Therefore the path is first opened with O_PATH, then checked, and only then
    opened for reading.

    Args:
        path: The path of the file.
        folder: The descriptor of the directory to which a relative path refers; None for the
            working directory.
        follows: Whether symbolic links are followed; links of other users are not followed to files
            that these users may not read. If False, the last component must not be a symbolic link.

    Raises:
        OSError: The file cannot be opened. The error is EINVAL if the file is not a regular file,
            and ELOOP if the path contains a symbolic link that is not followed.
    """
    if not hasattr(os, "O_PATH"):  # the system is not Linux
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


def open_beneath(folder: str, path: str) -> int:
    """Open a regular file below a directory without following symbolic links below the directory.

    Args:
        folder: The path of the directory, which may be a kernel link such as `/proc/PID/root`.
        path: The path of the file, which must begin with the path of the directory.

    Raises:
        OSError: The file cannot be opened. The error is EINVAL if the file is not a regular file or
            is not below the directory. It is ELOOP or ENOTDIR if the path contains a symbolic link.
    """
    steps = path.removeprefix(folder).split("/") if path.startswith(folder) else [".."]
    *folders, name = [step for step in steps if step] or [".."]
    if ".." in (*folders, name):
        raise OSError(errno.EINVAL, "it is outside of its folder")
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in folders:
            inner = os.open(
                step, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | _NO_LINK, dir_fd=place
            )
            os.close(place)
            place = inner
        return open_regular(name, folder=place, follows=False)
    finally:
        os.close(place)


def read_regular(
    path: Path, most_bytes: int, *, follows: bool = True, from_end: bool = False
) -> bytes:
    """Read at most `most_bytes` bytes of a regular file, opened by `open_regular`.

    Args:
        path: The path of the file.
        most_bytes: The maximum number of bytes to read.
        follows: Whether symbolic links are followed, with the exceptions of `open_regular`.
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
    """Read a complete regular file, opened by `open_regular`.

    Args:
        path: The path of the file.
        most_bytes: The maximum size of the file, in bytes.
        follows: Whether symbolic links are followed, with the exceptions of `open_regular`.

    Raises:
        OSError: The file cannot be opened or read; EFBIG if the file is larger than `most_bytes`.
    """
    return _require_whole(read_regular(path, most_bytes + 1, follows=follows), most_bytes)


def _require_whole(data: bytes, most_bytes: int) -> bytes:
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
    return data


def open_named(path: Path) -> BufferedReader:
    """Open a file that the user of a command specified.

    The file must be a regular file, unless the shell opened the file. The shell replaces
    `<(COMMAND)` with a path such as `/dev/fd/63`.

    Raises:
        OSError: The file cannot be opened; `open_regular` describes the errors EINVAL and ELOOP.
    """
    if path.parent == _OPEN_FILES:
        return path.open("rb")
    return open(open_regular(str(path)), "rb")


def read_named(path: Path, most_bytes: int) -> bytes:
    """Read a file that the user of a command specified, opened by `open_named`.

    Args:
        path: The path of the file.
        most_bytes: The maximum size of the file.

    Raises:
        OSError: The file cannot be opened or read; EFBIG if the file is larger than `most_bytes`.
    """
    with open_named(path) as file:
        return _require_whole(file.read(most_bytes + 1), most_bytes)


def explain_refusal(error: OSError) -> str:
    """Return the reason why a file could not be read, followed by a remedy."""
    match error.errno:
        case errno.ELOOP | errno.EINVAL:
            remedy = "put the file itself there"
        case errno.EFBIG:
            remedy = "keep the part that matters"
        case _:
            remedy = "run as a user that may read it"
    return f"{error.strerror}; {remedy}"


def _walk(path: str, folder: int | None) -> int:
    """Resolve a path component by component, and return an O_PATH descriptor of its target.

    Raises:
        OSError: A component cannot be opened; the error is ELOOP for a symbolic link that is not
            followed.
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
    """Return whether a user owns a file, or may read it according to the permission bits."""
    *folders, file = passed
    if file.st_uid == user:
        return True
    searches = (stat.S_IXUSR if each.st_uid == user else stat.S_IXOTH for each in folders)
    may_reach = all(each.st_mode & bit for each, bit in zip(folders, searches, strict=True))
    return may_reach and bool(file.st_mode & stat.S_IROTH)


def _follow(link: int, step: str, place: int, steps: list[str]) -> int:
    """Add a symbolic link's target to `steps`; return a descriptor of the next directory."""
    try:
        if not os.fstat(link).st_size:
            # The target of a kernel link such as `/proc/PID/root` cannot be opened by its name.
            return os.open(step, os.O_PATH | os.O_CLOEXEC, dir_fd=place)
        target = os.readlink("", dir_fd=link)
    finally:
        os.close(link)
    steps += _split(target)
    return os.open("/", os.O_PATH | os.O_CLOEXEC) if target.startswith("/") else os.dup(place)


def _split(path: str) -> list[str]:
    """Return the components of a path in reverse order."""
    return [step for step in reversed(path.split("/")) if step]


def _require_regular(descriptor: int) -> int:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link, no regular file")
    raise OSError(errno.EINVAL, "it is no regular file")
