"""Other processes: their state, and how they ended."""

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

# Columns of `/proc/PID/stat` after the name, which may hold spaces and brackets.
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
    """The exit of a process; one of the two is None.

    Attributes:
        code: Its exit code, if it exited by itself.
        signal: The signal that killed it.
    """

    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process, from `/proc/PID/stat`.

    Attributes:
        letter: `R` running, `S` waiting, `D` waiting in the kernel, `T` stopped, `t` stopped by a
            debugger, `Z` dead and not collected by its parent, ...
        start_ticks: When it started, in clock ticks since boot.
        is_exiting: Whether the process is exiting in the kernel.
        exit: How it ended, for one that is dead (`Z`); None if the kernel does not show it, as it
            does not show a 0.
    """

    letter: str
    start_ticks: int
    is_exiting: bool
    exit: Exit | None


def read_process_state(pid: int, *, procfs: Path = Path("/proc")) -> ProcessState | None:
    """Read the state of a process; None if it does not exist, or may not be read."""
    try:
        return _parse(Path(f"{procfs}/{pid}/stat").read_bytes())
    except OSError:
        return None


def read_users(pid: int, *, procfs: Path = Path("/proc")) -> frozenset[int]:
    """Read the users that a process acts as: real, effective, saved, and of files.

    Empty if it does not exist, or may not be read.
    """
    try:
        status = Path(f"{procfs}/{pid}/status").read_bytes()
    except OSError:
        return frozenset()
    found = _USERS.search(status)
    return frozenset(map(int, found[1].split())) if found else frozenset()


def may_map(pid: int, inode: int, *, procfs: Path = Path("/proc")) -> bool:
    """Return whether a process may have a file mapped to write to it.

    True if that is not visible, or if the process has too many mappings to read.

    Args:
        pid: The process.
        inode: The file's number.
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
        pid: The process, in our own PID namespace.
        start_ticks: When it started, to detect a `/proc` of another PID namespace, in which the
            same number is another process; 0 if unknown.
        procfs: The path of `/proc`.

    Raises:
        OSError: The process does not exist, the system has no pidfd, or too many files are open.
    """

    def __init__(self, pid: int, *, start_ticks: int = 0, procfs: Path = Path("/proc")) -> None:
        if not hasattr(os, "pidfd_open"):  # a Python that was built for an older kernel
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
        """Whether the result of `read_exit` is final."""
        return self._is_settled

    def is_dead(self) -> bool:
        """Return whether the process ended, whether or not its parent has waited for it."""
        return bool(self._poll.poll(0))

    def read_state(self) -> ProcessState | None:
        """Read the state of the process; None if it is gone or not visible in `/proc`."""
        if self._stat < 0:
            return None
        try:
            return _parse(os.pread(self._stat, _STAT_BYTES, 0))
        except OSError:
            return None

    def read_letter(self) -> str | None:
        """Read the letter of the process's state alone, which costs less."""
        if self._stat < 0:
            return None
        try:
            data = os.pread(self._stat, _STAT_BYTES, 0)
        except OSError:
            return None
        _, found, columns = data.rpartition(b") ")
        return chr(columns[0]) if found and columns else None

    def read_exit(self) -> Exit | None:
        """Read how the process ended.

        Linux 6.15 and newer report it once the parent has collected the process (PIDFD_INFO_EXIT);
        older ones only until then, and only to a user that may trace it.

        Returns:
            None while it lives, while its exit is not reported yet (ask again, unless
            `is_settled`), and if it never will be.
        """
        if self._is_settled:
            return None
        info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
        is_answered = True
        try:
            fcntl.ioctl(self._pidfd, _PIDFD_GET_INFO, info)
        except OSError:  # an older kernel, or it is collected and the kernel did not take note
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
        """Stop watching; a second call does nothing."""
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
    """Return exit code and signal, as `waitpid` packs them."""
    if number := status & 0x7F:
        return Exit(code=None, signal=number)
    return Exit(code=status >> 8 & 0xFF, signal=None)
