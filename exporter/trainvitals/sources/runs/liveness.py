"""Determine whether a run file's writer is alive and, from the kernel, how the writer ended.

The writer of a run file holds a POSIX record lock on the file's first byte until the writer exits.
Testing the lock therefore shows immediately, even across PID namespaces, whether the writer is
alive. The lock is not visible if another kernel is involved, as with gVisor, Kata or another
machine's file system. In that case, the writer's PID and start time are checked if the writer is in
the PID namespace of the calling process. Otherwise, the age of the writer's record is checked.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainvitals.runfile import Identity
from trainvitals.sources.runs.oomkills import OomKills, find_oom_file
from trainvitals.sources.runs.processes import Exit, Watch, may_map, read_process_state, read_users

try:
    import fcntl
except ImportError:  # Windows has no run files
    fcntl = None  # type: ignore[assignment]

# `struct flock` of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
# Queries the lock that would block a reader; in Linux, F_RDLCK is 0 and F_UNLCK is 2.
_ASKED = _FLOCK.pack(0, os.SEEK_SET, 0, 1, 0)
_UNLOCKED = struct.pack("h", 2)
_UNKNOWN_BOOT = bytes(16)
_DEAD_LETTERS = "ZXx"
_SIGKILL = 9
# Listing a process's mappings takes a millisecond, so only the first of this many checks lists the
# mappings. The first check without a lock matters most, since a program that replaces the writer
# releases the lock.
_ASKED_EVERY = 16
_BUSY_SECONDS = 0.2
_RUNNING = "R"

Evidence = Literal["lock", "pid", "age"]


@dataclass(frozen=True, slots=True)
class Liveness:
    """The liveness of the process that runs a rank.

    Attributes:
        is_alive: Whether the process is alive; also False for a process that recorded its end and
            released the run file, although the process may continue with other work.
        evidence: The evidence for `is_alive`: the `lock` on the run file, the process's `pid` and
            start time, or only the `age` of the record.
        host_pid: The process's PID in the PID namespace of the calling process, kept after the
            process's end; None if the kernel does not show the PID.
        state: The letter of the process's state in `/proc/PID/stat`, such as `T` for stopped or `D`
            for waiting in the kernel; None if the process has ended or the state is not visible.
        exit: The way in which the process ended; None while the process is alive, or if the kernel
            has not reported the exit. Before Linux 6.15, the kernel reports an exit only until the
            parent has waited for the process; since Linux 6.15, the kernel also reports the exit of
            a followed process afterwards.
        oom_killed: Whether the process ended by SIGKILL, or in a way that is not reported, while
            the kernel counted an OOM kill in the process's control group; False if the system does
            not count OOM kills.
    """

    is_alive: bool
    evidence: Evidence
    host_pid: int | None = None
    state: str | None = None
    exit: Exit | None = None
    oom_killed: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """The machine on which the liveness of processes is checked.

    Attributes:
        boot_id: The ID of the machine's boot, from `/proc/sys/kernel/random/boot_id`; zeros if the
            ID is unknown.
        pid_namespace: The inode of the PID namespace that `procfs` shows; 0 if the inode is
            unknown.
        procfs: The path of `/proc`.
        cgroupfs: The path of the control group file system.
        silence_seconds: The age of a record, in seconds, at which the rank counts as dead if there
            is no other evidence.
    """

    boot_id: bytes
    pid_namespace: int
    procfs: Path = Path("/proc")
    cgroupfs: Path = Path("/sys/fs/cgroup")
    silence_seconds: float = 600.0


def read_host(*, procfs: Path = Path("/proc"), cgroupfs: Path = Path("/sys/fs/cgroup")) -> Host:
    """Read the IDs of this boot and PID namespace; an ID that cannot be read counts as unknown."""
    try:
        text = (procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace")
        boot_id = _read_uuid(text)
    except (OSError, ValueError):
        boot_id = _UNKNOWN_BOOT
    namespace = _read_inode(procfs / "1/ns/pid") or _read_inode(procfs / "self/ns/pid")
    return Host(boot_id, namespace, procfs, cgroupfs)


def query_lock(descriptor: int) -> int | None:
    """Return the process that holds a write lock on the first byte of a file.

    Read locks are ignored, because any user with read permission may hold a read lock.

    Returns:
        The lock holder's PID in the PID namespace of the calling process; 0 if the holder is not
        visible, for example because it is in another PID namespace; None if no other process holds
        a write lock.

    Raises:
        OSError: The file system or operating system cannot report locks.
    """
    if sys.platform != "linux":
        raise OSError("cannot ask for the holder of a lock; run on Linux")
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _ASKED)
    if answer[:2] == _UNLOCKED:
        return None
    pid: int = _FLOCK.unpack(answer)[-1]
    return max(pid, 0)


class LivenessCheck:
    """Checks at every reading whether the writer of one run file is alive.

    Args:
        descriptor: The descriptor of the open run file, which the caller closes.
        identity: The identity of the process that wrote the file.
        host: The machine on which the process runs.
        oom_kills: The OOM kill counts; the caller calls `OomKills.begin` before each round of
            readings.
        may_watch: A function that is called once, at the first reading of a living process, and
            decides whether the process is followed until the process's end. Following a process
            uses two file descriptors. The state, exit and OOM kills of a process that is not
            followed are not reported.
    """

    def __init__(
        self,
        descriptor: int,
        identity: Identity,
        *,
        host: Host,
        oom_kills: OomKills,
        may_watch: Callable[[], bool] = lambda: True,
    ) -> None:
        self._descriptor = descriptor
        self._identity = identity
        self._host = host
        self._oom_kills = oom_kills
        self._may_watch = may_watch
        self._watch: Watch | None = None
        self._oom_file: str | None = None
        self._kills_before: int | None = None
        self._host_pid: int | None = None
        self._was_locked = False
        self._alive: Liveness | None = None
        self._dead: Liveness | None = None
        self._oom_counted = False
        self._asked = 0

    @property
    def is_watching(self) -> bool:
        """Whether the process is being followed; a followed process uses file descriptors."""
        return self._watch is not None

    def read(self, *, has_ended: bool, age_seconds: float) -> Liveness:
        """Return the liveness of the process that wrote the run file.

        Args:
            has_ended: Whether the record marks the run as ended, successfully or not.
            age_seconds: The age of the record, in seconds.
        """
        if self._dead is not None:
            return self._add_exit(self._dead)
        kills = None if self._oom_file is None else self._oom_kills.count(self._oom_file)
        try:
            holder = query_lock(self._descriptor)
        except OSError:
            return self._check_unlocked(age_seconds, has_ended=has_ended, has_locks=False)
        if holder is None:
            return self._check_unlocked(age_seconds, has_ended=has_ended, has_locks=True)
        self._kills_before = kills
        if not self._was_locked:
            self._was_locked = True
            self._begin_watch(holder)
        return self._report_alive("lock", self._read_letter(age_seconds))

    def _read_letter(self, age_seconds: float) -> str | None:
        if self._watch is None:
            return None
        # A process that has just written is running; reading its state costs more than the rest of
        # the check.
        is_busy = self._alive is not None and 0 <= age_seconds < _BUSY_SECONDS
        return _RUNNING if is_busy else self._watch.read_letter()

    def close(self) -> None:
        """Stop following the process, and close the file descriptors used for following."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _begin_watch(self, holder: int) -> None:
        self._host_pid = holder or self._own_namespace_pid()
        if not holder or not self._may_watch():
            return
        start_ticks, procfs = self._identity.start_ticks, self._host.procfs
        try:
            self._watch = Watch(holder, start_ticks=start_ticks, procfs=procfs)
            if query_lock(self._descriptor) != holder:  # the process has just ended
                self.close()
                return
        except OSError:
            return
        self._oom_file = find_oom_file(holder, procfs=procfs, cgroupfs=self._host.cgroupfs)
        if self._oom_file is not None:
            self._kills_before = self._oom_kills.count(self._oom_file)

    def _own_namespace_pid(self) -> int | None:
        identity, host = self._identity, self._host
        is_ours = identity.pid_namespace == host.pid_namespace and self._is_same_kernel()
        return (identity.pid or None) if is_ours and self._may_be_writer(identity.pid) else None

    def _may_be_writer(self, pid: int) -> bool:
        """Return whether a process may have written the run file.

        A process that has ended or that runs as the file's owner may have written the file. A file
        owned by root may have been written by a process that dropped its privileges.
        """
        users = read_users(pid, procfs=self._host.procfs)
        owner = os.fstat(self._descriptor).st_uid
        return not users or owner == 0 or owner in users

    def _is_same_kernel(self) -> bool:
        return self._identity.boot_id == self._host.boot_id != _UNKNOWN_BOOT

    def _check_unlocked(self, age_seconds: float, *, has_ended: bool, has_locks: bool) -> Liveness:
        """Determine the liveness of a process that holds no lock.

        The argument `has_locks` is False if the file system does not support locks.
        """
        if has_ended and has_locks:
            return self._report_dead("lock")
        if self._watch is not None:
            return self._check_by_watch(self._watch, has_locks=has_locks)
        pid = self._own_namespace_pid()
        if pid is not None and self._identity.start_ticks:
            return self._check_by_pid(pid, has_ended=has_ended, has_locks=has_locks)
        if has_locks and (self._was_locked or self._is_same_kernel()):
            return self._report_dead("lock")
        is_recent = abs(age_seconds) <= self._host.silence_seconds
        return Liveness(is_alive=is_recent and not has_ended, evidence="age")

    def _check_by_watch(self, watch: Watch, *, has_locks: bool) -> Liveness:
        """Determine the liveness of a followed process, which may have lost the lock."""
        state = watch.read_state()
        if watch.is_dead() or state is None or state.is_exiting:
            return self._report_dead("lock")
        if has_locks and self._is_replaced(self._host_pid):
            self.close()  # the new program's exit is not that of the trainer
            return self._report_dead("lock")
        return self._report_alive("pid", state.letter)

    def _check_by_pid(self, pid: int, *, has_ended: bool, has_locks: bool) -> Liveness:
        self._host_pid = pid
        state = read_process_state(pid, procfs=self._host.procfs)
        if (
            has_ended
            or state is None
            or state.is_exiting
            or state.letter in _DEAD_LETTERS
            or state.start_ticks != self._identity.start_ticks
            or (has_locks and self._is_replaced(pid))
        ):
            return self._report_dead("lock" if self._was_locked else "pid")
        return self._report_alive("pid", state.letter)

    def _is_replaced(self, pid: int | None) -> bool:
        """Return whether the process has replaced its program and no longer maps the run file.

        Only the first and then every 16th call checks the process; all other calls return False.
        """
        self._asked += 1
        if pid is None or self._asked % _ASKED_EVERY != 1:
            return False
        inode = os.fstat(self._descriptor).st_ino
        return not may_map(pid, inode, procfs=self._host.procfs)

    def _report_alive(self, evidence: Evidence, letter: str | None) -> Liveness:
        alive = self._alive
        if alive is None or alive.state != letter or alive.evidence != evidence:
            alive = Liveness(
                is_alive=True, evidence=evidence, host_pid=self._host_pid, state=letter
            )
            self._alive = alive
        return alive

    def _report_dead(self, evidence: Evidence) -> Liveness:
        if self._oom_file is not None and self._kills_before is not None:
            kills = self._oom_kills.count_now(self._oom_file)
            self._oom_counted = kills is not None and kills > self._kills_before
        host_pid = self._host_pid or self._own_namespace_pid()
        self._dead = Liveness(is_alive=False, evidence=evidence, host_pid=host_pid)
        return self._add_exit(self._dead)

    def _add_exit(self, dead: Liveness) -> Liveness:
        """Return a liveness to which the exit is added as soon as the kernel reports the exit."""
        if self._watch is None:
            return dead
        exit_ = self._watch.read_exit()
        if self._watch.is_settled:
            self.close()
        is_oom = self._oom_counted and (exit_ is None or exit_.signal == _SIGKILL)
        if exit_ != dead.exit or is_oom != dead.oom_killed:
            dead = Liveness(
                is_alive=False,
                evidence=dead.evidence,
                host_pid=dead.host_pid,
                exit=exit_,
                oom_killed=is_oom,
            )
            self._dead = dead
        return dead


def _read_uuid(text: str) -> bytes:
    """Parse a UUID without importing the module `uuid`, which would increase memory usage.

    Raises:
        ValueError: The text is not a UUID.
    """
    data = bytes.fromhex(text.strip().replace("-", ""))
    if len(data) != len(_UNKNOWN_BOOT):
        raise ValueError(f"{text!r} is no UUID")
    return data


def _read_inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
