"""The file of a recording, which supports atomic appends and rotation by size.

The recording is appended to the file `NAME`. Before this file exceeds its maximum size, it becomes
`NAME.1.gz`, the old `NAME.1.gz` becomes `NAME.2.gz`, and so on up to the number of files to keep.
If there is no space for the compressed file, `NAME.1` remains uncompressed. A file whose header
differs from the required header is also rotated.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import shutil
import stat
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import open_regular

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_STANDARD_OUTPUT = 1
_FASTEST = 1  # A low compression level, because compression delays the next snapshot.
_CHUNK_BYTES = 1 << 16


class Console:
    """Standard output as the destination of a recording.

    Attributes:
        path: The name of the stream, for error messages.
    """

    path = Path("the standard output")

    def __init__(self) -> None:
        self._head = ""

    def read_first_line(self) -> str:
        """Return an empty string, because standard output has no earlier content."""
        return ""

    def append(self, text: str, head: str = "") -> None:
        """Write a piece of a recording, preceded by the header if the header has changed.

        Raises:
            OSError: The write failed.
        """
        if head != self._head:
            text = head + text
        _write_on(_STANDARD_OUTPUT, text.encode(errors="replace"))
        self._head = head

    def close(self) -> None:
        """Do nothing: standard output stays open."""


class LogFile:
    """A file to which only complete records are appended.

    Args:
        path: The path of the file; missing parent directories are created with mode 0700.
        max_bytes: The maximum size of the file; 0 means that the size is not limited.
        keep: The number of compressed old files to keep.
        is_durable: Whether each piece is synced to the disk, so that the piece survives a crash of
            the machine.
        cuts_torn_line: Whether an unterminated last line of an existing file is removed; if not, a
            line break is appended to the line.

    Raises:
        ConfigurationError: The file cannot be written, or another recording writes to it.
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
        """Return up to 64 KiB of the first line; empty if the file is empty or not regular."""
        if not self._is_regular:
            return ""
        with _read(self.path) as file:
            return file.readline(_CHUNK_BYTES).decode(errors="replace")

    def append(self, text: str, head: str = "") -> None:
        """Append a piece to the file; if this fails, remove the written part from a regular file.

        Args:
            text: The complete lines of the piece.
            head: The header that the file must begin with.

        Raises:
            OSError: The write failed.
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
        """Close the file of the recording."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _is_regular(self) -> bool:
        return self._descriptor is not None and stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def _open(self) -> int:
        """Return a descriptor of the file that the path currently refers to."""
        if self._descriptor is not None and not self._is_named():
            self.close()  # The file was moved or removed, for example by logrotate.
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, _FILE_MODE)
            if self._is_regular:
                self._lock(self._descriptor)
                self._end_last_line(self._descriptor)
        return self._descriptor

    def _begins_with(self, head: bytes) -> bool:
        with _read(self.path) as file:
            return file.read(len(head)) == head

    def _end_last_line(self, descriptor: int) -> None:
        """Remove or terminate the partial line that a killed recording or a crash left behind."""
        size = os.fstat(descriptor).st_size
        with _read(self.path) as file:
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
            # Some network file systems do not support locks.
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
        # A single write lets `tail -f` show complete pieces. If a full disk truncates a piece, the
        # piece is removed.
        try:
            rest = data[os.write(descriptor, data) :]
            _write_on(descriptor, rest)  # A short write hides its error; this write raises it.
            if self._is_durable:
                os.fdatasync(descriptor)
        except OSError:
            with suppress(OSError):  # If the disk is failing, the file stays as it is.
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
    """Return the offset of the end of the file's last complete line; 0 if no line is complete."""
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


def _read(path: Path) -> BufferedReader:
    # Other users may be able to write to the directory.
    return open(open_regular(str(path), follows=False), "rb")  # noqa: PTH123 - of a descriptor


def _compress(plain: Path, packed: Path) -> None:
    part = packed.with_name(f"{packed.name}.part")
    try:
        # Remove a file that an interrupted compression or another program has left.
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        with (
            _read(plain) as source,
            os.fdopen(descriptor, "wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_FASTEST) as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
            target.close()
            # The original is removed only after the compressed file is complete.
            os.fsync(descriptor)
        part.rename(packed)
        plain.unlink()
    except OSError:  # For example, the disk is full: the file stays uncompressed.
        with suppress(OSError):
            part.unlink()


def _say_why_not(path: Path, error: OSError) -> str:
    if error.errno == errno.EWOULDBLOCK:
        return f"{path}: another recording writes to it; choose another with --output"
    where = error.filename or path
    return (
        f"cannot write {where}: {error.strerror}; choose another place with --output or --directory"
    )
