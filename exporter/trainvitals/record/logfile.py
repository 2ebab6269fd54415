"""The file that snapshots are written to: whole or not at all, and never too large.

`NAME` is written to; when it would grow past its bound it becomes `NAME.1.gz`, what was `NAME.1.gz`
becomes `NAME.2.gz`, and so on up to the number that is kept. Where there is no room to compress it,
it stays as `NAME.1`. A file that must begin with a line of its own and begins otherwise is put away
likewise.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from trainvitals.errors import ConfigurationError

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_STANDARD_OUTPUT = 1
_FASTEST = 1  # the beat must not wait for the last percent
_CHUNK_BYTES = 1 << 16


class Console:
    """The standard output.

    Attributes:
        path: What it is called in messages.
    """

    path = Path("the standard output")

    def __init__(self) -> None:
        self._head = ""

    def read_first_line(self) -> str:
        """Give an empty line: nothing was written yet."""
        return ""

    def append(self, text: str, head: str = "") -> None:
        """Write a piece, after the head where that is new.

        Raises:
            OSError: It could not be written.
        """
        if head != self._head:
            text = head + text
        _write_on(_STANDARD_OUTPUT, text.encode(errors="replace"))
        self._head = head

    def close(self) -> None:
        """Leave it open."""


class LogFile:
    """A file that is appended to in whole pieces.

    Args:
        path: Where; folders that are missing are made, for the owner alone.
        max_bytes: How large it may get; 0 for no bound.
        keep: How many old ones are kept, compressed.
        is_durable: Have each piece on the disk before going on, so that a machine that dies
            leaves it.
        cuts_torn_line: Take away the last line of a file that is there already where it has no
            end; else it is given one.

    Raises:
        ConfigurationError: It cannot be written there, or another recording writes to it.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int = 0,
        keep: int = 5,
        *,
        is_durable: bool = False,
        cuts_torn_line: bool = False,
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._is_durable = is_durable
        self._cuts_torn_line = cuts_torn_line
        self._descriptor: int | None = None
        try:
            path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise ConfigurationError(_say_why_not(path, error)) from error

    def read_first_line(self) -> str:
        """Read how the file begins, up to 64 KiB; empty where it is empty or no regular file."""
        if not self._is_regular:
            return ""
        with self.path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(_CHUNK_BYTES)

    def append(self, text: str, head: str = "") -> None:
        """Write a piece; where that fails, nothing of it stays.

        Args:
            text: Whole lines.
            head: What the file begins with.

        Raises:
            OSError: It could not be written.
        """
        data, first = text.encode(errors="replace"), head.encode(errors="replace")
        descriptor = self._open()
        if self._is_regular:
            size = os.fstat(descriptor).st_size
            is_too_large = self._max_bytes and size + len(data) > self._max_bytes
            if size and (is_too_large or not self._begins_with(first)):
                self._rotate()
                descriptor, size = self._open(), 0
            self._write_whole(descriptor, data if size else first + data, size)
        else:
            _write_on(descriptor, data)

    def close(self) -> None:
        """Close it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _is_regular(self) -> bool:
        return self._descriptor is not None and stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def _open(self) -> int:
        """Give the open file, that which has the name now."""
        if self._descriptor is not None and not self._is_named():
            self.close()  # somebody moved or removed it
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, _FILE_MODE)
            if self._is_regular:
                self._lock(self._descriptor)
                self._end_last_line(self._descriptor)
        return self._descriptor

    def _begins_with(self, head: bytes) -> bool:
        with self.path.open("rb") as file:
            return file.read(len(head)) == head

    def _end_last_line(self, descriptor: int) -> None:
        """Deal with a line that a recording which was killed, or a machine that died, left torn."""
        size = os.fstat(descriptor).st_size
        with self.path.open("rb") as file:
            end = _find_end_of_lines(file, size)
        if end == size:
            return
        if self._cuts_torn_line:
            os.ftruncate(descriptor, end)
        else:
            _write_on(descriptor, b"\n")

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # A file system without locks cannot be asked.
            if error.errno == errno.EWOULDBLOCK:
                self.close()
                raise

    def _is_named(self) -> bool:
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _write_whole(self, descriptor: int, data: bytes, size: int) -> None:
        # One write, so that who reads along sees a piece whole; what a full disk cut off, goes.
        try:
            rest = data[os.write(descriptor, data) :]
            _write_on(descriptor, rest)  # says why the disk did not take all of it at once
            if self._is_durable:
                os.fdatasync(descriptor)
        except OSError:
            with suppress(OSError):  # as it stood on a disk that fails
                os.ftruncate(descriptor, size)
            raise

    def _rotate(self) -> None:
        for number in range(self._keep, 0, -1):
            for ending in ("", ".gz"):
                old = self._name(number, ending)
                if not old.exists():
                    continue
                if number == self._keep:
                    old.unlink()
                else:
                    old.rename(self._name(number + 1, ending))
        if not self._keep:
            self.path.unlink()
            return
        first = self._name(1, "")
        self.path.rename(first)
        self.close()
        _compress(first, self._name(1, ".gz"))

    def _name(self, number: int, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}{ending}")


def _find_end_of_lines(file: BinaryIO, size: int) -> int:
    """Find where the last whole line ends; 0 where there is none."""
    at = size
    while at > 0:
        begin = max(0, at - _CHUNK_BYTES)
        file.seek(begin)
        found = file.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0


def _write_on(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _compress(plain: Path, packed: Path) -> None:
    part = packed.with_name(f"{packed.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        with (
            plain.open("rb") as source,
            os.fdopen(descriptor, "wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_FASTEST) as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
            target.close()
            os.fsync(descriptor)  # the plain one goes only when this one stays
        part.rename(packed)
        plain.unlink()
    except OSError:  # no room: it stays as it is
        with suppress(OSError):
            part.unlink()


def _say_why_not(path: Path, error: OSError) -> str:
    if error.errno == errno.EWOULDBLOCK:
        return f"{path}: another recording writes to it; choose another with --output"
    where = error.filename or path
    return (
        f"cannot write {where}: {error.strerror}; choose another place with --output or --directory"
    )
