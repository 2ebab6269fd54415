"""Parse kernel log lines about OOM kills, NVIDIA GPU errors (Xids) and other problems.

The OOM killer writes about 50 lines for each kill. Since Linux 5.0, one of these lines begins with
`oom-kill:` and names the control groups, and the next line contains `Killed process`. After ten
kills in five seconds, the kernel writes only the `Killed process` line of each further kill. Before
Linux 5.0, the kernel wrote `Task in GROUP killed as a result of limit of GROUP` instead of the
`oom-kill:` line, and only if a limit was hit. With `memory.oom.group`, one `oom-kill:` line is
followed by `Tasks in GROUP are going to be killed` and by one line for each killed process.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, replace

from trainvitals.foreign_text import clean_text

MOST_LINES = 256
_LONGEST_LINE = 300
_LONGEST_RECORD = 2048
_FALLEN_OFF = 79
# A GPU that falls off the bus is reported twice, with and without the Xid number.
_SAME_FALL_SECONDS = 60.0
# All processes of a group are killed at once; the lines that old kernels write in between take
# seconds on a slow console.
_GROUP_SECONDS = 1.0
_OLD_SECONDS = 5.0
# The maximum duration of an OOM report: about 50 lines, which a slow console delays.
_REPORT_SECONDS = 30.0
_MOST_REMEMBERED = 64
_LIMIT, _HOST = "CONSTRAINT_MEMCG", "CONSTRAINT_NONE"
_BYTES_PER_KB = 1024
_NO_LIMIT_BYTES = 1 << 60

_CODE = r"(?P<code>[0-9]{1,6})"
_BUS = r"(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rf"^NVRM: Xid \((?:PCI:)?{_BUS}[^)]{{0,60}}\): {_CODE}(?:, (?P<text>.*))?")
_XID_PID = re.compile(r"pid=(?:'?)([0-9]{1,10})\b")
_GPU_NAMED = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_BUS}")
_FELL_OFF = re.compile(r"^NVRM: .{0,200}fallen off the bus")
_NVIDIA = "NVRM:"

# A process name is cut to 15 arbitrary characters. The kernel escapes some, such as `\x0a`.
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

# Other lines that explain why a process ended or a run stalled.
_TELLING = re.compile(
    r"EXT4-fs (?:error|warning)|XFS .{0,100}(?:[Cc]orruption|[Ss]hutdown|[Ss]hutting down)|BTRFS (?:error|critical)"
    r"|[Rr]emounting filesystem read-only|I/O error|critical (?:medium|target) error"
    r"|segfault at |traps: |invalid opcode|general protection"
    r"|NVRM:|nvidia-modeset: ERROR|nvidia-nvlink|habanalabs .{0,200}(?:[Ee]rror|[Ff]ail|[Rr]eset)"
    r"|mce: |\[Hardware Error\]|EDAC .{0,100}[CU]E |PCIe Bus Error"
    r"|Memory failure: |hardware memory corruption|nvidia: probe of "
    r"|soft lockup|hard LOCKUP|blocked for more than|rcu.{0,100} stall"
    r"|thermal.{0,100}(?:throttl|shutdown|critical)|temperature above threshold"
    r"|nfs: server .{1,200} not responding|Killed process|page allocation failure"
    r"|No space left|fork rejected by pids controller"
    r"|(?:systemd-oomd|earlyoom|nohang)(?:\[|: )|systemd-oomd killed|Power key pressed|Powering Off"
    r"|amdgpu.{0,200}(?:GPU reset|timeout|unrecoverable|VRAM is lost|page fault|GPU recovery)|GPU HANG|VRAM is lost"
    r"|nvme .{0,100}(?:timeout|controller is down|I/O .{0,60} QID|Removing after probe|latency_us=)|LustreError|ceph: .{0,100}(?:hung|denied|lost)"
    r"|System is (?:powering|rebooting)|systemd-shutdown\[|reboot: (?:Restarting|Power down)"
)
_GREETING = re.compile(
    r"NVRM: (?:loading|GPU at )|Machine check events logged|mce: CPU.{0,60} supports"
)


@dataclass(frozen=True, slots=True)
class OomKill:
    """A kill by the kernel's OOM killer, according to the kernel log.

    Attributes:
        time: The time of the kill, in seconds since 1970.
        constraint: The cause of the kill: `CONSTRAINT_MEMCG` if a control group's limit was hit,
            `CONSTRAINT_NONE` if the host had no memory left, `CONSTRAINT_CPUSET` or
            `CONSTRAINT_MEMORY_POLICY` for NUMA nodes; empty if the log does not contain the
            constraint.
        oom_memcg: The control group whose limit was hit; None if the log does not name the control
            group.
        task_memcg: The control group of the killed process; empty if the log does not name the
            control group.
        task: The name of the killed process, cut to 15 characters.
        pid: The PID of the killed process on the host.
        anon_rss_bytes: The killed process's anonymous memory, in bytes; None if the kernel did not
            log the size.
        shmem_rss_bytes: The killed process's shared memory, in bytes; None if the kernel did not
            log the size.
        limit_bytes: The memory limit that was hit, in bytes; None if the kernel did not log the
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


@dataclass(frozen=True, slots=True)
class XidError:
    """An error that NVIDIA's driver wrote to the kernel log.

    Attributes:
        time: The time of the error, in seconds since 1970.
        bus_id: The PCI address as the kernel writes it, such as `0000:3b:00.0` or `0000:3b:00`.
        code: The Xid code; 79 also if the line contains no Xid code but reports that the GPU has
            fallen off the bus.
        text: The text after the Xid code, with secrets masked, cut to 300 characters.
        pid: The PID of the process that the line names; None if the line names no process.
    """

    time: float
    bus_id: str
    code: int
    text: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class DatedLine:
    """A log line and the time when the line was written.

    Attributes:
        time: The time at which the line was written, in seconds since 1970; None if the log does
            not contain the time.
        text: The log line, with secrets masked.
    """

    time: float | None
    text: str


@dataclass(frozen=True, slots=True)
class KernelNews:
    """The events in a part of the kernel log.

    Attributes:
        oom_kills: The OOM kills, the oldest first.
        xids: The NVIDIA GPU errors, the oldest first.
        lines: The last lines about other problems, at most 256, the oldest first; the lines are cut
            to 300 characters and contain no control characters.
        lost: The number of records that were overwritten before they were read.
    """

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[XidError, ...] = ()
    lines: tuple[DatedLine, ...] = ()
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The control group of the following kills whose own log lines do not name the group.

    Attributes:
        until: The last time at which a kill is attributed to the group.
        constraint: The `constraint` of each kill; see `OomKill`.
        is_for_one: Whether only one kill follows, instead of one for each process of the group.
        oom_memcg: The `oom_memcg` of each kill; see `OomKill`.
        task_memcg: The `task_memcg` of each kill; see `OomKill`.
    """

    until: float
    constraint: str
    is_for_one: bool = True
    oom_memcg: str | None = None
    task_memcg: str = ""


class KernelLines:
    """Parses the lines of one kernel log, the oldest first.

    Args:
        most_lines: The maximum number of lines about other problems to keep. If 0, no such lines
            are kept, and no line has to be masked.
    """

    def __init__(self, most_lines: int = MOST_LINES) -> None:
        self._oom_kills: list[OomKill] = []
        self._xids: list[XidError] = []
        self._lines: deque[DatedLine] = deque(maxlen=most_lines)
        self._announced: OomKill | None = None
        self._is_overdue = False
        self._oom_memcg: str | None = None
        self._group: _Group | None = None
        self._killed: deque[tuple[int, float]] = deque(maxlen=_MOST_REMEMBERED)
        self._gpu = ("", -math.inf)
        self._limit = (0, -math.inf)
        self._falls: dict[str, tuple[float, bool]] = {}

    def take(self, time: float, text: str) -> None:
        """Parse one line of the kernel log.

        Args:
            time: The time at which the line was written, in seconds since 1970.
            text: The line after the kernel's own timestamp.
        """
        text = text[:_LONGEST_RECORD]
        # The driver writes several lines at once, and indents all but the first.
        is_nvidia = text.lstrip().startswith(_NVIDIA)
        lines = (line.lstrip() for line in text.split("\\x0a")) if is_nvidia else (text,)
        for line in lines:
            self._take_line(time, clean_text(line))

    def collect(self, *, lost: int = 0, ends: bool = True) -> KernelNews:
        """Return the events that were recognized since the last call.

        Args:
            lost: The number of records that were overwritten before they were read.
            ends: Whether the log ends here. If further lines can follow, a kill whose second line
                is still missing is held back until the next call at the latest.
        """
        if ends or self._is_overdue:
            self._settle()
        self._is_overdue = self._announced is not None
        news = KernelNews(tuple(self._oom_kills), tuple(self._xids), tuple(self._lines), lost)
        self._oom_kills, self._xids = [], []
        self._lines.clear()
        return news

    def _take_line(self, time: float, line: str) -> None:
        if line.startswith(_NVIDIA) and self._take_nvidia(time, line):
            return
        if ("kill" in line or "Kill" in line or "reaped" in line) and self._take_oom(time, line):
            return
        if match := _USAGE.match(line):
            self._limit = int(match[1]) * _BYTES_PER_KB, time
        if self._lines.maxlen and _TELLING.search(line) and not _GREETING.search(line):
            self._lines.append(DatedLine(time, clean(line)))

    def _take_oom(self, time: float, line: str) -> bool:
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
        """Add an OOM kill if the log contains only the `oom_reaper` line, without the cause."""
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
            return True  # every process of a group is reported, the first process twice
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
        if not scope:  # a line from an old kernel, without the lines before it
            return None
        return _Group(until=time, constraint=_HOST if scope.startswith("Out") else _LIMIT)

    def _settle(self) -> None:
        if self._announced is not None:
            self._add_kill(self._announced)
        self._announced = None

    def _add_kill(self, kill: OomKill) -> None:
        self._oom_kills.append(kill)
        self._killed.append((kill.pid, kill.time))

    def _take_nvidia(self, time: float, line: str) -> bool:
        if match := _XID.match(line):
            text = match["text"] or ""
            code = int(match["code"])
            if code != _FALLEN_OFF or self._falls_anew(time, match["bus"], has_number=True):
                pid = _XID_PID.search(text)
                number = int(pid[1]) if pid else None
                self._xids.append(XidError(time, match["bus"], code, clean(text), number))
            return True
        if match := _GPU_NAMED.match(line):
            self._gpu = match["bus"], time
        bus, named = self._gpu
        if not _FELL_OFF.match(line) or abs(time - named) > _OLD_SECONDS:
            return False
        if self._falls_anew(time, bus, has_number=False):
            text = clean(line.removeprefix("NVRM: "))
            self._xids.append(XidError(time, bus, _FALLEN_OFF, text))
        return True

    def _falls_anew(self, time: float, bus: str, *, has_number: bool) -> bool:
        slot = bus.partition(".")[0].lower()
        then, had_number = self._falls.get(slot, (-math.inf, has_number))
        if len(self._falls) < _MOST_REMEMBERED or slot in self._falls:
            self._falls[slot] = time, has_number
        return had_number == has_number or abs(time - then) > _SAME_FALL_SECONDS


def clean(line: str) -> str:
    """Prepare a log line for display.

    Secrets are masked, and the result contains no control characters and at most 300 characters.
    """
    from trainvitals.masking import mask_text  # noqa: PLC0415 - few machines have such lines

    return mask_text(clean_text(line))[:_LONGEST_LINE]


def _find_kb(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) * _BYTES_PER_KB if match else None
