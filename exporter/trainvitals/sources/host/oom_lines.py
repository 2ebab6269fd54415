"""Parse the kernel log lines of OOM kills.

The OOM killer writes about 50 lines for each kill. Since Linux 5.0, one of these lines begins with
`oom-kill:` and names the control groups, and the next line contains `Killed process`. After ten
kills in five seconds, the kernel writes only the `Killed process` line of each further kill. Before
Linux 5.0, the kernel wrote `Task in GROUP killed as a result of limit of GROUP` instead of the
`oom-kill:` line, but only if a limit was reached. With `memory.oom.group`, one `oom-kill:` line is
followed by `Tasks in GROUP are going to be killed` and by one line for each killed process.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, replace

# The processes of a group are killed at the same time, but old kernels write lines between the
# kills, which takes seconds on a slow console.
_GROUP_SECONDS = 1.0
_OLD_SECONDS = 5.0
# The maximum duration of an OOM report: about 50 lines, which a slow console delays.
_REPORT_SECONDS = 30.0
_MOST_REMEMBERED = 64
_LIMIT, _HOST = "CONSTRAINT_MEMCG", "CONSTRAINT_NONE"
_BYTES_PER_KB = 1024
_NO_LIMIT_BYTES = 1 << 60
# A process name has at most 15 characters, some of which the kernel escapes, such as `\x0a`.
_NAME = r"(?:\\x[0-9a-f]{2}|.){0,15}"
_OOM_KILL = re.compile(
    r"^oom-kill:constraint=(?P<constraint>CONSTRAINT_[A-Z_]{1,20}),nodemask=.{0,900}?"
    r"(?:,global_oom|,oom_memcg=(?P<oom_memcg>.{0,900}?)),task_memcg=(?P<task_memcg>.{0,900}?)"
    rf",task=(?P<task>{_NAME}),pid=(?P<pid>[0-9]{{1,10}}),uid=[0-9]+"
)
_KILLED = re.compile(
    r"(?P<scope>Memory cgroup out of memory: |Out of memory(?: \(\w+\))?: |)"
    rf"Killed process (?P<pid>[0-9]{{1,10}})(?:,(?: UID [0-9]{{1,10}},)?)?(?: \((?P<task>{_NAME})\)|)(?P<rest>.*)"
)
_CHOSEN = re.compile(
    r"(?P<scope>Memory cgroup out of memory|Out of memory)(?: \(\w+\))?: Kill process [0-9]+ "
)
_TASK_IN = re.compile(
    r"^Task in (?P<task_memcg>/.*) killed as a result of limit of (?P<oom_memcg>/.*)"
)
_TASKS_IN = re.compile(
    r"^Tasks in (?P<task_memcg>/.*) are going to be killed due to memory\.oom\.group set"
)
_ANON_RSS = re.compile(r"anon-rss:([0-9]{1,15})kB")
_SHMEM_RSS = re.compile(r"shmem-rss:([0-9]{1,15})kB")
_REAPED = re.compile(
    rf"^oom_reaper: reaped process (?P<pid>[0-9]{{1,10}}) \((?P<task>{_NAME})\), now (?P<rest>.*)"
)
_USAGE = re.compile(r"memory: usage [0-9]{1,16}kB, limit ([0-9]{1,16})kB")


@dataclass(frozen=True, slots=True)
class OomKill:
    """A kill by the kernel's OOM killer, according to the kernel log.

    Attributes:
        time: The time of the kill, in seconds since 1970.
        constraint: The kernel's name for the exhausted resource: `CONSTRAINT_MEMCG` for a control
            group's limit, `CONSTRAINT_NONE` for the host's memory, and `CONSTRAINT_CPUSET` or
            `CONSTRAINT_MEMORY_POLICY` for the memory of NUMA nodes. The value is empty if the log
            does not contain the constraint.
        oom_memcg: The control group whose limit was reached; None if the log does not name the
            control group.
        task_memcg: The control group of the killed process; empty if the log does not name the
            control group.
        task: The name of the killed process, truncated to 15 characters.
        pid: The PID of the killed process on the host.
        anon_rss_bytes: The killed process's anonymous memory, in bytes; None if the kernel did not
            log the size.
        shmem_rss_bytes: The killed process's shared memory, in bytes; None if the kernel did not
            log the size.
        limit_bytes: The memory limit that was reached, in bytes; None if the kernel did not log the
            limit.
    """

    time: float
    constraint: str
    oom_memcg: str | None
    task_memcg: str
    task: str
    pid: int
    anon_rss_bytes: int | None = None
    shmem_rss_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The control group of the following kills, whose `Killed process` lines do not name it.

    Attributes:
        until: The last time at which a kill is attributed to the group.
        constraint: The `constraint` of each kill; see `OomKill`.
        is_for_one: Whether the group applies to one kill only, not to all kills until `until`.
        oom_memcg: The `oom_memcg` of each kill; see `OomKill`.
        task_memcg: The `task_memcg` of each kill; see `OomKill`.
    """

    until: float
    constraint: str
    is_for_one: bool = True
    oom_memcg: str | None = None
    task_memcg: str = ""


class OomLines:
    """Parses the lines of OOM kills in one kernel log, in chronological order."""

    def __init__(self) -> None:
        self._oom_kills: list[OomKill] = []
        self._announced: OomKill | None = None
        self._is_overdue = False
        self._oom_memcg: str | None = None
        self._group: _Group | None = None
        self._killed: deque[tuple[int, float]] = deque(maxlen=_MOST_REMEMBERED)
        self._limit = (0, -math.inf)

    def take(self, time: float, line: str) -> bool:
        """Parse a line, and return whether the line announces or reports a kill.

        Args:
            time: The time at which the line was written, in seconds since 1970.
            line: The line without control characters.
        """
        if ("kill" in line or "Kill" in line or "reaped" in line) and self._take_kill(time, line):
            return True
        if match := _USAGE.match(line):
            self._limit = int(match[1]) * _BYTES_PER_KB, time
        return False

    def collect(self, *, ends: bool) -> tuple[OomKill, ...]:
        """Return the kills that were found since the last call; see `KernelLines.collect`."""
        if ends or self._is_overdue:
            self._settle()
        self._is_overdue = self._announced is not None
        kills = tuple(self._oom_kills)
        self._oom_kills = []
        return kills

    def _take_kill(self, time: float, line: str) -> bool:
        if match := _OOM_KILL.fullmatch(line):
            self._announce(time, match)
        elif match := _KILLED.match(line):
            return self._kill(time, match)
        elif match := _REAPED.match(line):
            self._take_reaped(time, match)
        elif match := _TASKS_IN.match(line):
            until = time + _GROUP_SECONDS
            self._group = _Group(
                until=until,
                is_for_one=False,
                constraint=_LIMIT,
                oom_memcg=self._oom_memcg,
                task_memcg=match["task_memcg"],
            )
        elif match := _TASK_IN.match(line):
            until = time + _OLD_SECONDS
            self._group = _Group(
                until=until,
                constraint=_LIMIT,
                oom_memcg=match["oom_memcg"],
                task_memcg=match["task_memcg"],
            )
        elif match := _CHOSEN.match(line):
            if match["scope"] == "Out of memory":
                self._group = _Group(until=time + _OLD_SECONDS, constraint=_HOST)
            elif self._group is None or time > self._group.until:
                self._group = _Group(until=time + _OLD_SECONDS, constraint=_LIMIT)
        else:
            return False
        return True

    def _take_reaped(self, time: float, match: re.Match[str]) -> None:
        """Add an OOM kill of unknown cause from an `oom_reaper` line, unless the kill is known."""
        pid = int(match["pid"])
        is_announced = self._announced is not None and self._announced.pid == pid
        if not is_announced and all(pid != other for other, _ in self._killed):
            self._add_kill(OomKill(time, "", None, "", match["task"], pid))

    def _announce(self, time: float, match: re.Match[str]) -> None:
        self._settle()
        self._group = None
        self._oom_memcg = match["oom_memcg"]
        self._announced = OomKill(
            time=time,
            constraint=match["constraint"],
            oom_memcg=match["oom_memcg"],
            task_memcg=match["task_memcg"],
            task=match["task"],
            pid=int(match["pid"]),
            limit_bytes=self._find_limit(time, match["constraint"]),
        )

    def _find_limit(self, time: float, constraint: str) -> int | None:
        limit, then = self._limit
        is_of_kill = constraint == _LIMIT and time - then <= _REPORT_SECONDS
        return limit if is_of_kill and limit < _NO_LIMIT_BYTES else None

    def _kill(self, time: float, match: re.Match[str]) -> bool:
        pid = int(match["pid"])
        anon, shmem = _find_kb(_ANON_RSS, match["rest"]), _find_kb(_SHMEM_RSS, match["rest"])
        if self._announced is not None and self._announced.pid == pid:
            self._announced = replace(self._announced, anon_rss_bytes=anon, shmem_rss_bytes=shmem)
            self._settle()
            return True
        if any(pid == other and abs(time - then) < _OLD_SECONDS for other, then in self._killed):
            return True  # the kernel reports the first process of a group twice
        group = self._find_group(time, match["scope"])
        if group is None:
            return False
        self._settle()
        self._add_kill(
            OomKill(
                time=time,
                constraint=group.constraint,
                oom_memcg=group.oom_memcg,
                task_memcg=group.task_memcg,
                task=match["task"] or "",
                pid=pid,
                anon_rss_bytes=anon,
                shmem_rss_bytes=shmem,
                limit_bytes=self._find_limit(time, group.constraint),
            )
        )
        return True

    def _find_group(self, time: float, scope: str) -> _Group | None:
        group = self._group
        if group is not None and group.is_for_one:
            self._group = None
        if group is not None and time <= group.until:
            return group
        if not scope:  # from an old kernel, and the preceding lines are missing
            return None
        return _Group(until=time, constraint=_HOST if scope.startswith("Out") else _LIMIT)

    def _settle(self) -> None:
        if self._announced is not None:
            self._add_kill(self._announced)
        self._announced = None

    def _add_kill(self, kill: OomKill) -> None:
        self._oom_kills.append(kill)
        self._killed.append((kill.pid, kill.time))


def _find_kb(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) * _BYTES_PER_KB if match else None
