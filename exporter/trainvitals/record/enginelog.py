"""What a container engine newly logged about itself, from its log file or the journal."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

# Gives the telling lines of a text, masked, each with its time where it has one.
Parse = Callable[[str], Iterable[tuple[float | None, str]]]

_FILES = ("var/log/docker.log", "var/log/upstart/docker.log")
_MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_END_SECONDS = 2.0


class EngineLog(Protocol):
    """Gives what is new in a log."""

    def read(self) -> bytes | None:
        """Read what came since the last call, in whole lines, at most 1 MiB; None: unreadable."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def find_engine_log(
    rootfs: Path = Path("/"), *, find: Callable[[str], str | None] = shutil.which
) -> EngineLog | None:
    """Find the engine's log; None where there is none.

    Args:
        rootfs: The host's root directory.
        find: Finds a program.
    """
    for name in _FILES:
        if (rootfs / name).is_file():
            return LogTail(rootfs / name)
    journalctl = find("journalctl") if _is_own(rootfs) else None
    return None if journalctl is None else JournalTail(journalctl)


def _is_own(rootfs: Path) -> bool:
    """Tell whether a root directory is that of this process, by whatever name."""
    try:
        return rootfs.samefile("/")
    except OSError:
        return False


class LogTail:
    """What is new in a log file, from its present end on, also after it was rotated.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        with suppress(OSError):
            found = path.stat()
            self._inode, self._offset = found.st_ino, found.st_size

    def read(self) -> bytes | None:
        """Read what came since the last call, in whole lines, at most 1 MiB; None: unreadable."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self._inode, self._offset = found.st_ino, 0
                self._offset = max(self._offset, found.st_size - _MOST_BYTES)
                file.seek(self._offset)
                whole, newline, _ = file.read(_MOST_BYTES).rpartition(b"\n")
        except OSError:
            return None
        self._offset += len(whole) + len(newline)
        return whole

    def close(self) -> None:
        """Do nothing: the file is open only while it is read."""


class JournalTail:
    """What is new in the journal about Docker and Podman, from a `journalctl` that follows it.

    Args:
        journalctl: The program.
    """

    def __init__(self, journalctl: str) -> None:
        self._command = (
            journalctl,
            "--follow",
            "--lines=0",
            "--quiet",
            "--no-pager",
            "--output=short-iso-precise",
            "--unit=docker",
            "--unit=podman",
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._start()

    def read(self) -> bytes | None:
        """Read what came since the last call, in whole lines, at most 1 MiB; None: unreadable."""
        if self._process is None or self._process.stdout is None:
            return None
        data = self._rest
        has_ended = False
        while len(data) < _MOST_BYTES:
            try:
                more = os.read(self._process.stdout.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                break
            has_ended = not more
            if has_ended:
                break
            data += more
        whole, _, self._rest = data.rpartition(b"\n")
        self._rest = self._rest[:_CHUNK_BYTES]
        if has_ended:
            self.close()
            self._start()
            return whole or None
        return whole

    def close(self) -> None:
        """End the program."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is ours
                bufsize=0,
            )
        except OSError:  # then there is no journal here
            return
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
