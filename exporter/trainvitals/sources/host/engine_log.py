"""Read the lines about problems from a container engine's log.

Docker writes lines such as `time="…" level=… msg="…"`, to which journald and syslog add a prefix.
Docker's log is a file or, if the file does not exist, a part of the journal. `read_engine_log`
reads the lines around a time. `LogTail` and `JournalTail` read new lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from trainvitals.foreign_files import open_regular, read_regular
from trainvitals.foreign_text import clean_text
from trainvitals.masking import mask_text
from trainvitals.sources import external_program
from trainvitals.sources.containers.evidence import Gap
from trainvitals.sources.host.kernel_lines import DatedLine
from trainvitals.sources.timestamps import parse_time

_FIELDS = re.compile(r'\btime="?(?P<time>[^" ]+)"? level=(?P<level>\w+) (?P<rest>.*)')
_LEVELS = frozenset({"warning", "warn", "error", "fatal", "panic"})
_TELLING = re.compile(r"failed to exit within|using the force|panic:|fatal error:|\bOOM\b")
# Lines without diagnostic value, which the engine writes for each container that exits.
_NOISE = re.compile(r"ignoring event|shim disconnected|cleaning up (?:after shim|dead shim)")
_SYSLOG = re.compile(r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d+) (?P<clock>\d\d:\d\d:\d\d) ")
_MOST_CHARACTERS = 1000
_FILES = ("var/log/docker.log", "var/log/upstart/docker.log")
_MOST_BYTES = 2 << 20
_MOST_NEW_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_END_SECONDS = 2.0
_AROUND_SECONDS, _PATIENCE_SECONDS = 60, 5.0
_JOURNALCTL = (
    "--no-pager",
    "--quiet",
    "--output=short-iso-precise",
    "--unit=docker",
    "--unit=podman",
)


def parse_engine_log(text: str) -> tuple[DatedLine, ...]:
    """Return the lines about problems in an engine's log, in order, with secrets masked."""
    chosen = []
    for line in text.split("\n"):
        found = _FIELDS.search(line)
        if found is None:
            if _TELLING.search(line) and not _NOISE.search(line):
                chosen.append((_read_head(line), line.strip()))
            continue
        is_telling = found["level"] in _LEVELS or _TELLING.search(found["rest"])
        if is_telling and not _NOISE.search(found["rest"]):
            chosen.append((parse_time(found["time"]), f"{found['level']}: {found['rest'].strip()}"))
    return tuple(DatedLine(time, mask_text(words[:_MOST_CHARACTERS])) for time, words in chosen)


def _read_head(line: str) -> float | None:
    """Return the time at the start of a log line; None if the line does not begin with a time.

    A time in the format of syslog contains no year. The current year is assumed, or the previous
    year if the time would otherwise be in the future.
    """
    stamp = parse_time(line)
    if stamp is not None:
        return stamp
    found = _SYSLOG.match(line)
    if found is None:
        return None
    now = datetime.now(timezone.utc).astimezone()
    words = f"{now.year} {found['month']} {found['day']} {found['clock']}"
    try:
        moment = datetime.strptime(words, "%Y %b %d %H:%M:%S").astimezone()
    except ValueError:
        return None
    if moment > now:
        moment = moment.replace(year=now.year - 1)
    return moment.timestamp()


def read_engine_log(
    around: float,
    *,
    rootfs: Path = Path("/"),
    find: Callable[[str], str | None] = shutil.which,
) -> tuple[tuple[DatedLine, ...], Gap | None]:
    """Read the lines about problems from the engine's log file, or from the journal around a time.

    Args:
        around: The time, in seconds since 1970. The journal is read from 60 s before this time to
            60 s after this time; the log file is read regardless of this time.
        rootfs: The host's root directory.
        find: A function that returns a program's path, or None if the program is not installed.

    Returns:
        The lines about problems, and a gap that states why the log could not be read. The gap is
        None if the log was read.
    """
    path = _find_file(rootfs)
    if path is not None:
        return _read_file(path)
    journalctl = find("journalctl") if _is_own(rootfs) else None
    if journalctl is None:
        return (), Gap(
            "the engine's log",
            f"there is no journal here, and no /{_FILES[0]}",
            "run `dockerd` by systemd, or have it write to /var/log/docker.log",
        )
    return _ask_journal(journalctl, around)


def _read_file(path: Path) -> tuple[tuple[DatedLine, ...], Gap | None]:
    try:
        data = read_regular(path, _MOST_BYTES, from_end=True)
    except OSError as error:
        return (), Gap("the engine's log", f"{path}: {error.strerror}", "run it as root")
    return parse_engine_log(data.decode(errors="replace")), None


def _ask_journal(journalctl: str, around: float) -> tuple[tuple[DatedLine, ...], Gap | None]:
    command = [
        journalctl,
        *_JOURNALCTL,
        f"--since=@{around - _AROUND_SECONDS:.0f}",
        f"--until=@{around + _AROUND_SECONDS:.0f}",
    ]
    remedy = "be a member of the group systemd-journal or adm, or run it as root"
    try:
        answer = external_program.run(command, timeout_seconds=_PATIENCE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), Gap("the engine's log", f"journalctl: {error}", remedy)
    errors = answer.stderr.strip()
    if answer.returncode or (errors and not answer.stdout):
        why = clean_text(errors.partition("\n")[0]) or "journalctl failed"
        return (), Gap("the engine's log", why, remedy)
    return parse_engine_log(answer.stdout[-_MOST_BYTES:]), None


class EngineLog(Protocol):
    """A container engine's log, from which new lines are read."""

    def read(self) -> bytes | None:
        """Return the lines added since the last call, at most 1 MiB; None for an unreadable log."""
        ...

    def close(self) -> None:
        """Stop reading the log, and release its resources."""
        ...


def find_engine_log(
    rootfs: Path = Path("/"), *, find: Callable[[str], str | None] = shutil.which
) -> EngineLog | None:
    """Return a reader for the container engine's log; None if no log file or journal exists.

    Args:
        rootfs: The host's root directory.
        find: A function that returns a program's path, or None if the program is not installed.
    """
    path = _find_file(rootfs)
    if path is not None:
        return LogTail(path)
    journalctl = find("journalctl") if _is_own(rootfs) else None
    return None if journalctl is None else JournalTail(journalctl)


def _find_file(rootfs: Path) -> Path | None:
    return next((rootfs / name for name in _FILES if (rootfs / name).is_file()), None)


def _is_own(rootfs: Path) -> bool:
    """Return whether a path is the root directory of this process."""
    try:
        return rootfs.samefile("/")
    except OSError:
        return False


class LogTail:
    """Reads the lines that are added to a log file, even if the file is rotated.

    Lines that were written before this object was created are skipped.

    Args:
        path: The path of the log file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        with suppress(OSError):
            found = path.stat()
            self._inode, self._offset = found.st_ino, found.st_size

    def read(self) -> bytes | None:
        """Return the lines added since the last call, at most 1 MiB; None for an unreadable log."""
        try:
            with open(open_regular(str(self._path)), "rb") as file:  # noqa: PTH123 - of a descriptor
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self._inode, self._offset = found.st_ino, 0
                self._offset = max(self._offset, found.st_size - _MOST_NEW_BYTES)
                file.seek(self._offset)
                whole, newline, _ = file.read(_MOST_NEW_BYTES).rpartition(b"\n")
        except OSError:
            return None
        self._offset += len(whole) + len(newline)
        return whole

    def close(self) -> None:
        """Do nothing, because the log file is open only during `read`."""


class JournalTail:
    """Reads the new lines of Docker and Podman in the journal, with `journalctl --follow`.

    Args:
        journalctl: The path of `journalctl`.
    """

    def __init__(self, journalctl: str) -> None:
        self._command = (journalctl, "--follow", "--lines=0", *_JOURNALCTL)
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._start()

    def read(self) -> bytes | None:
        """Return the lines added since the last call, at most 1 MiB; None for an unreadable log."""
        if self._process is None or self._process.stdout is None:
            return None
        data = self._rest
        has_ended = False
        while len(data) < _MOST_NEW_BYTES:
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
        """Stop `journalctl`."""
        process, self._process = self._process, None
        if process is None:
            return
        external_program.stop(process, timeout_seconds=_END_SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not stop `journalctl`
                bufsize=0,
            )
        except OSError:  # `journalctl` cannot be started
            return
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
