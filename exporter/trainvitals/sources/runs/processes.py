"""Read the state of other processes, and how these processes ended."""

from __future__ import annotations

import io
import os
import re
import select
import struct
from dataclasses import dataclass
from pathlib import Path

from trainvitals.sources.runs.descriptors import require_room

try:
    import fcntl
except ImportError:  # Windows has no run files
    fcntl = None  # type: ignore[assignment]

# Columns of `/proc/PID/stat` after the name, which may contain spaces and brackets.
_STATE = 0
_FLAGS = 6
_START_TICKS = 19
_EXIT_STATUS = 49
_COLUMNS = 20
_PF_EXITING = 0x4

# From the kernel's uapi/linux/pidfd.h: the first published `struct pidfd_info` has 64 bytes, u64
# mask first and i32 exit_code last; the request is _IOWR(0xFF, 11, struct pidfd_info).
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO = struct.Struct("=Q52xi")
_STAT_BYTES = 4096
_USERS = re.compile(rb"^Uid:((?:[ \t]+[0-9]{1,10}){4})$", re.MULTILINE)
_MOST_MAPS_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit code or the signal with which a process exited.

    Attributes:
        code: The exit code of the process; None if a signal killed the process.
        signal: The signal that killed the process; None if no signal killed the process.
    """

    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process, read from `/proc/PID/stat`.

    Attributes:
        letter: The letter of the state, such as `R` for running, `S` for waiting, `D` for waiting
            in the kernel, `T` for stopped, `t` for stopped by a debugger, or `Z` for a zombie,
            whose parent has not waited for it yet.
        start_ticks: The time when the process started, in clock ticks since boot.
        is_exiting: Whether the process is exiting in the kernel.
        exit: The exit of a zombie (`Z`); None if the kernel does not show the zombie's exit or
            shows 0.
    """

    letter: str
    start_ticks: int
    is_exiting: bool
    exit: Exit | None


def read_process_state(pid: int, *, procfs: Path = Path("/proc")) -> ProcessState | None:
    """Return a process's state; None if the process does not exist or cannot be read."""
    try:
        return _parse(Path(f"{procfs}/{pid}/stat").read_bytes())
    except OSError:
        return None


def read_users(pid: int, *, procfs: Path = Path("/proc")) -> frozenset[int]:
    """Return a process's user IDs: real, effective, saved and file system.

    The result is empty if the process does not exist or cannot be read.
    """
    try:
        status = Path(f"{procfs}/{pid}/status").read_bytes()
    except OSError:
        return frozenset()
    found = _USERS.search(status)
    return frozenset(map(int, found[1].split())) if found else frozenset()


def may_map(pid: int, inode: int, *, procfs: Path = Path("/proc")) -> bool:
    """Return whether a process may have mapped a file for writing.

    The result is also True if the mappings are not visible or are too many to read.

    Args:
        pid: The PID of the process.
        inode: The inode number of the file.
        procfs: The path of `/proc`.
    """
    try:
        with open(f"{procfs}/{pid}/maps", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
            maps = _read_at_most(file, _MOST_MAPS_BYTES)
    except OSError:
        return True
    if len(maps) >= _MOST_MAPS_BYTES:
        return True
    number = b"%d" % inode
    shared = [line.split(maxsplit=5) for line in maps.splitlines() if b" rw-s " in line]
    return not maps or any(columns[4] == number for columns in shared)


def _read_at_most(file: io.FileIO, most_bytes: int) -> bytes:
    data = b""
    while len(data) < most_bytes and (more := file.read(most_bytes - len(data))):
        data += more
    return data


class Watch:
    """A living process that is followed beyond its end, even if its PID is reused.

    Args:
        pid: The process ID, in the PID namespace of the calling process.
        start_ticks: The time when the process started, in clock ticks since boot; 0 if the time is
            unknown. This time is used to detect a `/proc` of another PID namespace, in which the
            PID belongs to another process.
        procfs: The path of `/proc`.

    Raises:
        OSError: The process does not exist, the system has no pidfd, or too many files are open.
    """

    def __init__(self, pid: int, *, start_ticks: int = 0, procfs: Path = Path("/proc")) -> None:
        if not hasattr(os, "pidfd_open"):  # this Python was built for a kernel without pidfds
            raise OSError(f"cannot watch process {pid}: this Python has no os.pidfd_open")
        self._pidfd = require_room(os.pidfd_open(pid))
        self._stat = -1
        self._poll = select.poll()
        self._poll.register(self._pidfd, select.POLLIN)
        self._is_settled = False
        try:
            self._stat = require_room(os.open(f"{procfs}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return
        state = self.read_state()
        if state is None or state.start_ticks != (start_ticks or state.start_ticks):
            os.close(self._stat)
            self._stat = -1

    @property
    def is_settled(self) -> bool:
        """Whether `read_exit` has returned the exit, or will never return it."""
        return self._is_settled

    def is_dead(self) -> bool:
        """Return whether the process has ended, even if its parent has not waited for it."""
        return bool(self._poll.poll(0))

    def read_state(self) -> ProcessState | None:
        """Return the state of the process; None if the process is not visible in `/proc`."""
        if self._stat < 0:
            return None
        try:
            return _parse(os.pread(self._stat, _STAT_BYTES, 0))
        except OSError:
            return None

    def read_letter(self) -> str | None:
        """Return only the letter of the process's state; None if the process is not visible.

        Reading the letter alone is faster than reading the whole state.
        """
        if self._stat < 0:
            return None
        try:
            data = os.pread(self._stat, _STAT_BYTES, 0)
        except OSError:
            return None
        _, found, columns = data.rpartition(b") ")
        return chr(columns[0]) if found and columns else None

    def read_exit(self) -> Exit | None:
        """Return how the process exited; the exit is returned only once.

        Linux 6.15 and newer report the exit once the parent has waited for the process
        (PIDFD_INFO_EXIT). Older kernels report the exit only until the parent has waited, and only
        to a user who is permitted to trace the process.

        Returns:
            The exit code or signal of the process. The result is None while the process is alive,
            while the exit has not been reported yet, and if the exit will never be reported. If
            `is_settled` is False, a later call may return the exit.
        """
        if self._is_settled:
            return None
        info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
        is_answered = True
        try:
            fcntl.ioctl(self._pidfd, _PIDFD_GET_INFO, info)
        except OSError:  # an older kernel, or the exit was not recorded
            is_answered = False
        mask, status = _PIDFD_INFO.unpack(info)
        if is_answered and mask & _PIDFD_INFO_EXIT:
            self._is_settled = True
            return _understand(status)
        state = self.read_state()
        if state is not None and state.letter == "Z" and state.exit is not None:
            self._is_settled = True
            return state.exit
        self._is_settled = state is None and not is_answered and self.is_dead()
        return None

    def close(self) -> None:
        """Stop following the process; a second call does nothing."""
        self._is_settled = True
        for descriptor in (self._pidfd, self._stat):
            if descriptor >= 0:
                os.close(descriptor)
        self._pidfd = self._stat = -1


def _parse(data: bytes) -> ProcessState | None:
    columns = data[data.rfind(b") ") + 2 :].split()
    if len(columns) < _COLUMNS:
        return None
    try:
        flags, start_ticks = int(columns[_FLAGS]), int(columns[_START_TICKS])
        status = int(columns[_EXIT_STATUS]) if len(columns) > _EXIT_STATUS else 0
    except ValueError:
        return None
    return ProcessState(
        letter=columns[_STATE].decode("ascii", "replace"),
        start_ticks=start_ticks,
        is_exiting=bool(flags & _PF_EXITING),
        exit=_understand(status) if status else None,
    )


def _understand(status: int) -> Exit:
    """Return the exit that a status from `waitpid` describes."""
    if number := status & 0x7F:
        return Exit(code=None, signal=number)
    return Exit(code=status >> 8 & 0xFF, signal=None)
