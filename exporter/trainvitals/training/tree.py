"""What a process and all its descendants use, DataLoader workers among them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from psutil import Process

_LISTING_SECONDS = 5.0
_LISTING_SHARE = 500


@dataclass(frozen=True, slots=True)
class TreeReading:
    """What a process tree has used until now.

    Attributes:
        cpu_seconds: CPU time of all, also of those that ended; never falls.
        resident_bytes: Resident memory of those that live; pages they share count for each.
        read_bytes: What all have read from storage; never falls; None where the system does not
            tell, as on macOS.
        write_bytes: The same for what they wrote.
    """

    cpu_seconds: float
    resident_bytes: int
    read_bytes: int | None
    write_bytes: int | None


@dataclass(slots=True)
class _Member:
    process: Process
    cpu_seconds: float = 0.0
    read_bytes: int | None = None
    write_bytes: int | None = None


class ProcessTree:
    """Reads this process and its descendants, with psutil.

    Finding the descendants costs more than reading them, so it is done every 5 s, and less often
    where the machine has so many processes that it would cost more than 0.2 % of the time.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        import psutil  # noqa: PLC0415 - the training client imports the standard library only

        self._clock = clock
        self._members = [_Member(psutil.Process())]
        self._listed_until = float("-inf")
        self._ended = TreeReading(0.0, 0, 0, 0)
        self._highest = TreeReading(0.0, 0, 0, 0)

    def read(self) -> TreeReading:
        """Read what the tree has used until now."""
        if self._clock() >= self._listed_until:
            self._list_members()
        resident_bytes = sum(self._read_member(member) for member in self._members)
        reads = [member.read_bytes for member in self._members]
        writes = [member.write_bytes for member in self._members]
        cpu_seconds = sum(member.cpu_seconds for member in self._members)
        # A child that ended is missing until its parent has taken over its counts.
        self._highest = TreeReading(
            max(self._highest.cpu_seconds, self._ended.cpu_seconds + cpu_seconds),
            resident_bytes,
            _rise(self._highest.read_bytes, self._ended.read_bytes, reads),
            _rise(self._highest.write_bytes, self._ended.write_bytes, writes),
        )
        return self._highest

    def _list_members(self) -> None:
        started_at = self._clock()
        root = self._members[0]
        known = {member.process: member for member in self._members}
        children = _find_descendants(root.process)
        self._members = [root, *(known.get(child) or _Member(child) for child in children)]
        gone = known.keys() - {member.process for member in self._members}
        if sys.platform == "win32":  # elsewhere the parent's counts take over the child's
            self._keep([known[process] for process in gone])
        now = self._clock()
        self._listed_until = now + max(_LISTING_SECONDS, _LISTING_SHARE * (now - started_at))

    def _keep(self, gone: list[_Member]) -> None:
        self._ended = TreeReading(
            self._ended.cpu_seconds + sum(member.cpu_seconds for member in gone),
            0,
            (self._ended.read_bytes or 0) + sum(member.read_bytes or 0 for member in gone),
            (self._ended.write_bytes or 0) + sum(member.write_bytes or 0 for member in gone),
        )

    def _read_member(self, member: _Member) -> int:
        """Read one process and give its resident bytes; its counts stay while it is a zombie."""
        import psutil  # noqa: PLC0415

        process = member.process
        try:
            times = process.cpu_times()
            resident = int(process.memory_info().rss)
        except (psutil.Error, OSError):
            if not process.is_running() and sys.platform != "win32":  # the parent has its counts
                member.cpu_seconds, member.read_bytes, member.write_bytes = 0.0, 0, 0
            return 0
        ended_children = getattr(times, "children_user", 0.0) + getattr(
            times, "children_system", 0.0
        )
        member.cpu_seconds = times.user + times.system + ended_children
        _read_io(member)
        return resident


def _find_descendants(root: Process) -> list[Process]:
    import psutil  # noqa: PLC0415

    pids = _list_descendants(root.pid)
    try:
        if pids is None:
            return root.children(recursive=True)
    except psutil.Error:
        return []
    found = []
    for pid in pids:
        with suppress(psutil.Error):  # it has ended meanwhile
            found.append(psutil.Process(pid))
    return found


def _list_descendants(root: int, *, procfs: Path = Path("/proc")) -> list[int] | None:
    """List the descendants of a process; None where the kernel does not list children.

    psutil looks through all processes of the machine instead, which on a large one takes longer
    than many a training step.
    """
    if not (procfs / f"{root}/task/{root}/children").exists():
        return None
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = _list_children(procfs / f"{waiting.pop()}/task")
        found += children
        waiting += children
    return found


def _list_children(tasks: Path) -> list[int]:
    """List the children of all threads of a process; of those that end meanwhile, none."""
    children: list[int] = []
    with suppress(OSError):
        for task in tasks.iterdir():
            with suppress(OSError):
                children += map(int, (task / "children").read_bytes().split())
    return children


def _read_io(member: _Member) -> None:
    import psutil  # noqa: PLC0415

    if not hasattr(member.process, "io_counters"):  # macOS
        return
    try:
        counters = member.process.io_counters()
    except (psutil.Error, OSError, RuntimeError):  # a zombie's file is empty: RuntimeError
        return
    member.read_bytes, member.write_bytes = int(counters.read_bytes), int(counters.write_bytes)


def _rise(highest: int | None, ended: int | None, counts: list[int | None]) -> int | None:
    """Give the sum, or the highest before it; None when nobody could be read."""
    known = [count for count in counts if count is not None]
    return max(highest or 0, (ended or 0) + sum(known)) if known else None
