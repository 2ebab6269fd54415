"""Writes the run file of this process.

A record is a row of words that is filled in private memory. To publish the record, it is copied to
one of two slots of the file in turn, and then its checksum is written. Until the checksum matches,
a reader uses the previous record in the other slot. Recording makes no system call after the file
has been created.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import TrainvitalsError
from trainvitals.foreign_text import clean_file_name
from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    FILE_BYTES,
    LAST_WORDS_AT,
    LIVE_AT,
    LIVE_BYTES,
    MOST_METRICS,
    NAMES_AT,
    STATE_AT,
    STATE_SLOT_BYTES,
    STEP_AT,
    STEP_SLOT_BYTES,
    SUFFIX,
    TRACE_AT,
    TRACE_BYTES,
    Identity,
)
from trainvitals.runfile.codec import encode_header, encode_last_words, encode_name

_STAMP = struct.Struct("QQdd")
_OLD_SECONDS = 86400.0
_MOST_EXAMINED = 64
_NAME_BYTES = 48


class RunFileUnavailableError(TrainvitalsError):
    """The run file cannot be created; the message contains the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A run file that this process has open.

    Attributes:
        path: The path of the run file.
        descriptor: The file descriptor that holds the lock of the run; closing the descriptor
            releases the lock.
        map: The memory mapping of the run file.
        is_on_tmpfs: Whether the file is on a tmpfs, so that a store never waits for a disk.
    """

    path: Path
    descriptor: int
    map: mmap.mmap
    is_on_tmpfs: bool


class Row:
    """The words of one type of record, and the two slots in which they are published.

    Args:
        file: The memory mapping of the run file.
        at: The offset of slot A in the file, in bytes.
        slot_bytes: The size of a slot in bytes.
        empty: The initial values of the words.

    Attributes:
        data: The words as bytes, so that several words can be set at once; the first word is the
            sequence number.
        words: The same words as numbers, so that a single word can be set.
        number: The number of times the words have been published.
        published: The time of the last `publish`, in seconds of the monotonic clock.
        slots: The two slots with their checksums; the first slot is used for even sequence numbers.
    """

    __slots__ = ("data", "number", "published", "slots", "words")

    def __init__(self, file: mmap.mmap, at: int, slot_bytes: int, empty: tuple[float, ...]) -> None:
        self.data = bytearray(struct.pack(f"{len(empty)}d", *empty))
        self.words = memoryview(self.data).cast("d")
        self.slots = _view_slots(file, len(self.data), (at, at + slot_bytes))
        self.number = 0
        self.published = 0.0

    def publish(self, now: float, wall_time: float) -> None:
        """Make the current words visible to readers of the run file.

        Args:
            now: The current time of the monotonic clock, in seconds.
            wall_time: The current time in Unix seconds.
        """
        self.number += 1
        _STAMP.pack_into(self.data, 0, self.number, len(self.words), now * 1e9, wall_time)
        slot, checksum = self.slots[self.number & 1]
        slot[:] = self.data
        checksum[0] = zlib.crc32(self.data)
        self.published = now

    def release(self) -> None:
        """Release the file's memory mapping; later calls of `publish` write to private memory."""
        self.slots = _view_slots(bytearray(len(self.data) + 8), len(self.data), (0, 0))


def _view_slots(
    file: mmap.mmap | bytearray, size: int, offsets: tuple[int, int]
) -> tuple[tuple[memoryview, memoryview], ...]:
    view = memoryview(file)
    return tuple((view[at : at + size], view[at + size :][:8].cast("Q")) for at in offsets)


class Recorder:
    """The records of this process, in the run file or, if no file exists, in private memory.

    Args:
        file: The run file; None to record only in private memory.

    Attributes:
        step: The words and slots of the step record.
        state: The words and slots of the state record.
        live: The live words: the time at which each phase last began, in seconds of the monotonic
            clock.
        trace: The trace request and its answer.
        path: The path of the run file; None if the records are only in private memory.
        is_on_tmpfs: Whether the file is on a tmpfs, so that a store never waits for a disk.
    """

    def __init__(self, file: OpenFile | None) -> None:
        self._file = file
        self._map = file.map if file else mmap.mmap(-1, FILE_BYTES)
        self.step = Row(self._map, STEP_AT, STEP_SLOT_BYTES, EMPTY_STEP)
        self.state = Row(self._map, STATE_AT, STATE_SLOT_BYTES, EMPTY_STATE)
        self.live = memoryview(self._map)[LIVE_AT : LIVE_AT + LIVE_BYTES].cast("d")
        self.trace = memoryview(self._map)[TRACE_AT : TRACE_AT + TRACE_BYTES]
        self.path = file.path if file else None
        self.is_on_tmpfs = file.is_on_tmpfs if file else True
        self._names: dict[tuple[str, str], int] = {}

    def find_metric(self, name: str, split: str) -> int | None:
        """Return the number of a user-defined metric; a new name is assigned a new number.

        Returns:
            The number of the metric; None if the table of names is full.

        Raises:
            ValueError: The name is longer than 62 bytes, or the split is unknown.
        """
        number = self._names.get((name, split))
        if number is None and len(self._names) < MOST_METRICS:
            number = len(self._names)
            entry = encode_name(name, split)
            at = NAMES_AT + number * len(entry)
            self._map[at : at + len(entry)] = entry
            self._names[name, split] = number
        return number

    @property
    def name_count(self) -> int:
        """The number of user-defined metrics in the table of names."""
        return len(self._names)

    @property
    def is_deleted(self) -> bool:
        """Whether the run file has been deleted; an exporter that starts later cannot find it."""
        return self._file is not None and not os.fstat(self._file.descriptor).st_nlink

    def leave_last_words(self, text: str) -> None:
        """Record the class of the exception that ended the run."""
        words = encode_last_words(text)
        self._map[LAST_WORDS_AT : LAST_WORDS_AT + len(words)] = words

    def close(self) -> None:
        """Release the run file's lock and mapping; the contents of the file do not change.

        In a forked child, this call does not affect the lock held by the parent.
        """
        if self._file is None:
            return
        os.close(self._file.descriptor)
        self._file = None
        # The mapping is released with its last view, because a signal may have interrupted a store.
        self._map = mmap.mmap(-1, FILE_BYTES)
        self.live = memoryview(bytearray(LIVE_BYTES)).cast("d")
        self.trace = memoryview(bytearray(TRACE_BYTES))
        self.step.release()
        self.state.release()


def create_run_file(
    identity: Identity, directory: Path, *, clock: Callable[[], float] = time.time
) -> OpenFile:
    """Create the run file of this process and lock it.

    Args:
        identity: The identity of this process.
        directory: The run directory; it is created if missing.
        clock: A clock that returns Unix time in seconds, with which old files of ended runs are
            found and removed.

    Raises:
        RunFileUnavailableError: The system does not support record locks or cannot reserve space
            for a file, the directory cannot be created or written, or the file system is full.
    """
    try:
        import fcntl  # noqa: PLC0415 - not every system has it
    except ImportError as error:
        raise RunFileUnavailableError(
            "this system has no record locks; training goes on as it is"
        ) from error
    if not hasattr(os, "posix_fallocate"):  # macOS
        raise RunFileUnavailableError(
            "this system sets no room aside for a file, so the exporter cannot see this run"
        )
    try:
        folder = open_run_directory(directory)
    except OSError as error:
        raise RunFileUnavailableError(
            f"cannot use the run directory {directory}: {error.strerror}; "
            "set TRAINVITALS_RUN_DIR to one that this user may write"
        ) from error
    try:
        _discard_old(folder, identity.pid, clock())
        name = _compose_name(identity)
        descriptor = _write_file(folder, name, encode_header(identity), fcntl.lockf)
        return OpenFile(
            directory / name, descriptor, mmap.mmap(descriptor, FILE_BYTES), _is_tmpfs(folder)
        )
    except OSError as error:
        raise RunFileUnavailableError(
            f"cannot make a run file in {directory}: {error.strerror}; "
            "make room there or set TRAINVITALS_RUN_DIR"
        ) from error
    finally:
        os.close(folder)


def open_run_directory(path: Path) -> int:
    """Open the run directory and return a descriptor; a missing run directory is created.

    Raises:
        OSError: The directory cannot be created or opened, or it is a symbolic link.
    """
    try:
        path.mkdir(parents=True)
        path.chmod(0o1777)  # any user may add run files, but only owners may remove them
    except FileExistsError:
        pass
    # A symbolic link in a world-writable directory must not redirect the files.
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _compose_name(identity: Identity) -> str:
    stem = clean_file_name(identity.run)[:_NAME_BYTES]
    return f"{stem}.{identity.rank}.{identity.pid}.{os.urandom(4).hex()}{SUFFIX}"


def _write_file(
    folder: int, name: str, header: bytes, lock: Callable[[int, int, int, int], None]
) -> int:
    hidden = f".{name}.tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(hidden, flags, 0o644, dir_fd=folder)
    try:
        os.fchmod(descriptor, 0o644)  # whatever the umask: the exporter may be another user
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
        os.pwrite(descriptor, header, 0)
        lock(descriptor, _LOCK_NOW, 1, 0)
        os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(hidden, dir_fd=folder)
        os.close(descriptor)
        raise
    return descriptor


_LOCK_NOW = 2 | 4  # LOCK_EX | LOCK_NB


def _discard_old(folder: int, own_pid: int, now: float) -> None:
    """Remove this user's run files whose process has exited and that are over a day old.

    The age of a file is the time since the file was last written. At most 64 files are examined.
    The exporter also removes old run files.
    """
    for name in os.listdir(folder)[:_MOST_EXAMINED]:
        # If this process has locked a file, closing a second descriptor of it releases the lock.
        if not name.endswith(SUFFIX) or f".{own_pid}." in name:
            continue
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_uid == os.getuid() and now - status.st_mtime > _OLD_SECONDS:
                _discard_dead(folder, name)
        except OSError:
            continue


def _discard_dead(folder: int, name: str) -> None:
    import fcntl  # noqa: PLC0415 - not every system has it

    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        fcntl.lockf(descriptor, _LOCK_NOW, 1, 0)
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)


def _is_tmpfs(folder: int) -> bool:
    """Return whether a directory is on a tmpfs, according to `/proc/self/mountinfo`."""
    device = os.fstat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - cheap
            for line in lines:
                fields = line.split()
                if fields[2] == number and " - tmpfs " in line:
                    return True
    except (OSError, IndexError):
        return True  # if the file system is unknown, assume the most common case
    return False
