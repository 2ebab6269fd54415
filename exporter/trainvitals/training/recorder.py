"""Writing the run file of this process.

A row of words is filled in private memory, copied into the slot whose turn it is, and sealed there
with its checksum; until that is right, a reader takes the record before it. No system call is made
after the file is there.
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
    encode_header,
    encode_last_words,
    encode_name,
)

_STAMP = struct.Struct("QQdd")
_OLD_SECONDS = 86400.0
_MOST_EXAMINED = 64
_NAME_BYTES = 48


class RunFileUnavailableError(TrainvitalsError):
    """No run file can be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A run file that this process holds.

    Attributes:
        path: Where it is.
        descriptor: Holds the lock; closing it lets the lock go.
        map: The mapped file.
        is_on_tmpfs: A store into it never waits for a disk.
    """

    path: Path
    descriptor: int
    map: mmap.mmap
    is_on_tmpfs: bool


class Row:
    """The words of one kind of record, and the two slots they are published to.

    Args:
        file: What to publish to.
        at: Where slot A begins in it.
        slot_bytes: The size of a slot.
        empty: The words at first.

    Attributes:
        data: The words as bytes, to be filled many at once; the sequence number is the first.
        words: The same words, to be filled one by one.
        number: How often they were published.
        published: When `publish` was called last, in seconds of the monotonic clock.
        slots: The two slots and their checksums; that of an even number is the first.
    """

    __slots__ = ("data", "number", "published", "slots", "words")

    def __init__(self, file: mmap.mmap, at: int, slot_bytes: int, empty: tuple[float, ...]) -> None:
        self.data = bytearray(struct.pack(f"{len(empty)}d", *empty))
        self.words = memoryview(self.data).cast("d")
        self.slots = _view_slots(file, len(self.data), (at, at + slot_bytes))
        self.number = 0
        self.published = 0.0

    def publish(self, now: float, wall_time: float) -> None:
        """Make the words visible to readers, with the time at which they were right.

        Args:
            now: The monotonic clock, seconds.
            wall_time: Unix seconds.
        """
        self.number += 1
        _STAMP.pack_into(self.data, 0, self.number, len(self.words), now * 1e9, wall_time)
        slot, checksum = self.slots[self.number & 1]
        slot[:] = self.data
        checksum[0] = zlib.crc32(self.data)
        self.published = now

    def release(self) -> None:
        """Let go of the mapped file; what is published from now on reaches nobody."""
        self.slots = _view_slots(bytearray(len(self.data) + 8), len(self.data), (0, 0))


def _view_slots(
    file: mmap.mmap | bytearray, size: int, offsets: tuple[int, int]
) -> tuple[tuple[memoryview, memoryview], ...]:
    view = memoryview(file)
    return tuple((view[at : at + size], view[at + size :][:8].cast("Q")) for at in offsets)


class Recorder:
    """The records of this process, in its run file or, without one, in its own memory.

    Args:
        file: The run file; None to keep everything to ourselves.

    Attributes:
        step: The step record.
        state: The state record.
        live: The live words: when each phase began last, in seconds of the monotonic clock.
        trace: The request for a trace and its answer.
        path: Where the file is; None without one.
        is_on_tmpfs: A store never waits for a disk.
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
        """Give the number of a free metric, a new one where it is met for the first time.

        Returns:
            None where the table of names is full.

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
        """How many free metrics have a name."""
        return len(self._names)

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted the file; what is written to it is read by nobody new."""
        return self._file is not None and not os.fstat(self._file.descriptor).st_nlink

    def leave_last_words(self, text: str) -> None:
        """Record the class of the exception that ended the run."""
        words = encode_last_words(text)
        self._map[LAST_WORDS_AT : LAST_WORDS_AT + len(words)] = words

    def close(self) -> None:
        """Let lock and file go; the file stays, and nothing changes it any more.

        A child that was forked does so too, which leaves its parent's lock alone.
        """
        if self._file is None:
            return
        os.close(self._file.descriptor)
        self._file = None
        # The map goes with the last view of it: a signal may have come between two stores.
        self._map = mmap.mmap(-1, FILE_BYTES)
        self.live = memoryview(bytearray(LIVE_BYTES)).cast("d")
        self.trace = memoryview(bytearray(TRACE_BYTES))
        self.step.release()
        self.state.release()


def create_run_file(
    identity: Identity, directory: Path, *, clock: Callable[[], float] = time.time
) -> OpenFile:
    """Make the run file of this process and lock it.

    Args:
        identity: Who writes it.
        directory: The run directory; it is made where it is missing.
        clock: Tells the time, to find files that are long dead.

    Raises:
        RunFileUnavailableError: There is no record lock on this system, the directory cannot be
            made or written, or the file system is full.
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
        folder = _open_directory(directory)
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


def _open_directory(path: Path) -> int:
    try:
        path.mkdir(parents=True)
        path.chmod(0o1777)  # anyone may tell of a run, only its owner may take the file away
    except FileExistsError:
        pass
    # A symlink planted in a directory that all may write must not lead the files elsewhere.
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _compose_name(identity: Identity) -> str:
    slug = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in identity.run)
    return f"{slug[:_NAME_BYTES]}.{identity.rank}.{identity.pid}.{os.urandom(4).hex()}{SUFFIX}"


def _write_file(
    folder: int, name: str, header: bytes, lock: Callable[[int, int, int, int], None]
) -> int:
    hidden = f".{name}.tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(hidden, flags, 0o644, dir_fd=folder)
    try:
        os.fchmod(descriptor, 0o644)  # whatever the umask: the exporter is another user
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
    """Take away own files of runs that died a day ago; where an exporter runs, it does so too."""
    for name in os.listdir(folder)[:_MOST_EXAMINED]:
        # A descriptor of a file that this very process has locked would drop the lock when closed.
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
    """Tell whether a directory is on tmpfs, by its device's line in mountinfo."""
    device = os.fstat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - cheap
            for line in lines:
                fields = line.split()
                if fields[2] == number and " - tmpfs " in line:
                    return True
    except (OSError, IndexError):
        return True  # cannot be told: as on most systems
    return False


def read_self(*, procfs: Path = Path("/proc")) -> tuple[int, bytes, int]:
    """Tell this process from any other.

    Returns:
        Its start in clock ticks since boot, the boot's id, and the inode of its PID namespace;
        zeros where `/proc` does not tell.
    """
    try:
        stat = (procfs / "self/stat").read_bytes()
        ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
        boot = bytes.fromhex(
            (procfs / "sys/kernel/random/boot_id").read_text("utf-8").replace("-", "")
        )
        namespace = (procfs / "self/ns/pid").stat().st_ino
    except (OSError, ValueError, IndexError):
        return (0, bytes(16), 0)
    return (ticks, boot.ljust(16, b"\0")[:16], namespace)
