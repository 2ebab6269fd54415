"""Whether the process behind a run file lives, and what the kernel tells about its end.

The writer of a run file holds a POSIX record lock on its first byte for as long as it lives, so
the kernel tells at once, and across PID namespaces, whether it does. Where another kernel is in
between (gVisor, Kata, another machine's file system) and the lock is not seen, its PID and start
time decide if it is in our PID namespace, and the age of its record if not.
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
from trainvitals.sources.training.oomkills import OomKills, find_oom_file
from trainvitals.sources.training.processes import Exit, Watch, may_map, read_process_state

try:
    import fcntl
except ImportError:  # Windows has no run files
    fcntl = None  # type: ignore[assignment]

# `struct flock` of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
# Asks for a lock that keeps readers out; Linux numbers F_RDLCK 0 and F_UNLCK 2.
_ASKED = _FLOCK.pack(0, os.SEEK_SET, 0, 1, 0)
_UNLOCKED = struct.pack("h", 2)
_UNKNOWN_BOOT = bytes(16)
_DEAD_LETTERS = "ZXx"
_SIGKILL = 9
# To list what a process maps takes a millisecond. What takes a writer's place also takes its lock, so
# the first time that the lock is missed is the one that counts.
_ASKED_EVERY = 16
_BUSY_SECONDS = 0.2
_RUNNING = "R"

Evidence = Literal["lock", "pid", "age"]


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether a rank's process lives.

    Attributes:
        is_alive: Whether it does; one that said its last word and let go of its file does not,
            though the process may stay for other work.
        evidence: What says so: the `lock` on its file, its `pid` and start time, or the `age` of
            its record alone.
        host_pid: The process in our PID namespace, also after its death; None where the kernel
            does not show it.
        state: The letter of its state in `/proc/PID/stat`, such as `T` for stopped or `D` for
            waiting in the kernel; None once it is dead, and where it is not shown.
        exit: How it ended; None while it lives, and where the kernel does not tell (or not yet:
            before 6.15 it tells only who looks before the parent does, and from then on when the
            parent has looked).
        oom_killed: Whether it died, by SIGKILL or by what the kernel does not tell, while the
            kernel counted an OOM kill in its control group. False where there is no such count.
    """

    is_alive: bool
    evidence: Evidence
    host_pid: int | None = None
    state: str | None = None
    exit: Exit | None = None
    oom_killed: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that liveness is judged on.

    Attributes:
        boot_id: The boot, from `/proc/sys/kernel/random/boot_id`; zeros unknown.
        pid_namespace: The inode of the PID namespace that `procfs` shows; 0 unknown.
        procfs: Where processes are found.
        cgroupfs: Where control groups are found.
        silence_seconds: How long a rank may say nothing before it counts as dead, where nothing
            but the age of its record is to be had.
    """

    boot_id: bytes
    pid_namespace: int
    procfs: Path = Path("/proc")
    cgroupfs: Path = Path("/sys/fs/cgroup")
    silence_seconds: float = 600.0


def read_host(*, procfs: Path = Path("/proc"), cgroupfs: Path = Path("/sys/fs/cgroup")) -> Host:
    """Read which boot and which PID namespace this is; what cannot be read is unknown."""
    try:
        text = (procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace")
        boot_id = _read_uuid(text)
    except (OSError, ValueError):
        boot_id = _UNKNOWN_BOOT
    namespace = _read_inode(procfs / "1/ns/pid") or _read_inode(procfs / "self/ns/pid")
    return Host(boot_id, namespace, procfs, cgroupfs)


def query_lock(descriptor: int) -> int | None:
    """Ask who holds a write lock on the first byte of a file.

    A lock for reading, which anybody may hold who may read the file, counts for nothing.

    Returns:
        The holder in our own PID namespace; 0 for one that the kernel does not show us, as from
        another PID namespace; None where nobody but we ourselves may hold it.

    Raises:
        OSError: The file system or this system cannot tell.
    """
    if sys.platform != "linux":
        raise OSError("cannot ask for the holder of a lock; run on Linux")
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _ASKED)
    if answer[:2] == _UNLOCKED:
        return None
    pid: int = _FLOCK.unpack(answer)[-1]
    return max(pid, 0)


class Pulse:
    """Tells, again and again, whether the process behind one run file lives.

    Args:
        descriptor: The open run file; it stays the caller's.
        identity: Who wrote it.
        host: The machine.
        oom_kills: The counts of OOM kills; the caller begins their rounds.
        may_watch: Asked once, when the process is met alive, whether to follow it to its end,
            which takes two descriptors until then; without, its state, its exit and OOM kills
            are not told.
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
        """Whether it holds descriptors of the process."""
        return self._watch is not None

    def read(self, *, has_ended: bool, age_seconds: float) -> Liveness:
        """Tell whether the process lives.

        Args:
            has_ended: Whether the record says that the run is over, well or badly.
            age_seconds: How old the record is.
        """
        if self._dead is not None:
            return self._read_on_the_dead(self._dead)
        kills = None if self._oom_file is None else self._oom_kills.count(self._oom_file)
        try:
            holder = query_lock(self._descriptor)
        except OSError:
            return self._judge_unlocked(age_seconds, has_ended=has_ended, is_told=False)
        if holder is None:
            return self._judge_unlocked(age_seconds, has_ended=has_ended, is_told=True)
        self._kills_before = kills
        if not self._was_locked:
            self._was_locked = True
            self._begin_watch(holder)
        return self._say_alive("lock", self._read_letter(age_seconds))

    def _read_letter(self, age_seconds: float) -> str | None:
        if self._watch is None:
            return None
        # Who wrote a moment ago runs; to ask the kernel costs more than all else of a reading.
        is_busy = self._alive is not None and 0 <= age_seconds < _BUSY_SECONDS
        return _RUNNING if is_busy else self._watch.read_letter()

    def close(self) -> None:
        """Stop following the process."""
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
            if query_lock(self._descriptor) != holder:  # it died before we held on to it
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
        return (identity.pid or None) if is_ours else None

    def _is_same_kernel(self) -> bool:
        return self._identity.boot_id == self._host.boot_id != _UNKNOWN_BOOT

    def _judge_unlocked(self, age_seconds: float, *, has_ended: bool, is_told: bool) -> Liveness:
        """Judge a process that holds no lock, or whose file system has none (`is_told` False)."""
        if has_ended and is_told:
            return self._say_dead("lock")
        if self._watch is not None:
            return self._judge_by_watch(self._watch, is_told=is_told)
        pid = self._own_namespace_pid()
        if pid is not None and self._identity.start_ticks:
            return self._judge_by_pid(pid, has_ended=has_ended, is_told=is_told)
        if is_told and (self._was_locked or self._is_same_kernel()):
            return self._say_dead("lock")
        is_recent = abs(age_seconds) <= self._host.silence_seconds
        return Liveness(is_alive=is_recent and not has_ended, evidence="age")

    def _judge_by_watch(self, watch: Watch, *, is_told: bool) -> Liveness:
        """Judge a process that we follow; it may have lost the lock by closing a copy of the file."""
        state = watch.read_state()
        if watch.is_dead() or state is None or state.is_exiting:
            return self._say_dead("lock")
        if is_told and self._is_replaced(self._host_pid):
            self.close()  # how the other program ends is not how this one did
            return self._say_dead("lock")
        return self._say_alive("pid", state.letter)

    def _judge_by_pid(self, pid: int, *, has_ended: bool, is_told: bool) -> Liveness:
        self._host_pid = pid
        state = read_process_state(pid, procfs=self._host.procfs)
        if (
            has_ended
            or state is None
            or state.is_exiting
            or state.letter in _DEAD_LETTERS
            or state.start_ticks != self._identity.start_ticks
            or (is_told and self._is_replaced(pid))
        ):
            return self._say_dead("lock" if self._was_locked else "pid")
        return self._say_alive("pid", state.letter)

    def _is_replaced(self, pid: int | None) -> bool:
        """Tell whether another program has taken the writer's place (execve) and maps no file of its."""
        self._asked += 1
        if pid is None or self._asked % _ASKED_EVERY != 1:
            return False
        inode = os.fstat(self._descriptor).st_ino
        return not may_map(pid, inode, procfs=self._host.procfs)

    def _say_alive(self, evidence: Evidence, letter: str | None) -> Liveness:
        alive = self._alive
        if alive is None or alive.state != letter or alive.evidence != evidence:
            alive = Liveness(
                is_alive=True, evidence=evidence, host_pid=self._host_pid, state=letter
            )
            self._alive = alive
        return alive

    def _say_dead(self, evidence: Evidence) -> Liveness:
        if self._oom_file is not None and self._kills_before is not None:
            kills = self._oom_kills.count_now(self._oom_file)
            self._oom_counted = kills is not None and kills > self._kills_before
        host_pid = self._host_pid or self._own_namespace_pid()
        self._dead = Liveness(is_alive=False, evidence=evidence, host_pid=host_pid)
        return self._read_on_the_dead(self._dead)

    def _read_on_the_dead(self, dead: Liveness) -> Liveness:
        """Add what the kernel tells of the end, as soon as it does."""
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
    """Read a UUID; `uuid` would cost the exporter some memory.

    Raises:
        ValueError: It is none.
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
