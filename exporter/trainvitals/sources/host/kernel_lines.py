"""Parse kernel log lines about OOM kills, NVIDIA GPU errors (Xids) and other problems."""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass

from trainvitals.foreign_text import clean_text
from trainvitals.sources.host.oom_lines import OomKill, OomLines

MOST_LINES = 256
_LONGEST_LINE = 300
_LONGEST_RECORD = 2048
_FALLEN_OFF = 79
# If a GPU falls off the bus, the driver writes two lines, one of them without an Xid code.
_SAME_FALL_SECONDS = 60.0
_NAMED_SECONDS = 5.0
_MOST_GPUS = 64

_CODE = r"(?P<code>[0-9]{1,6})"
_BUS = r"(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rf"^NVRM: Xid \((?:PCI:)?{_BUS}[^)]{{0,60}}\): {_CODE}(?:, (?P<text>.*))?")
_XID_PID = re.compile(r"pid=(?:'?)([0-9]{1,10})\b")
_GPU_NAMED = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_BUS}")
_FELL_OFF = re.compile(r"^NVRM: .{0,200}fallen off the bus")
_NVIDIA = "NVRM:"


# Lines about other problems that explain why a process ended or a run stalled.
_TELLING = re.compile(
    r"EXT4-fs (?:error|warning)|XFS \([^)\s]{1,60}\): .{0,100}(?:[Cc]orruption|[Ss]hutdown|[Ss]hutting down)|BTRFS (?:error|critical)"
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
class XidError:
    """An error that NVIDIA's driver wrote to the kernel log.

    Attributes:
        time: The time of the error, in seconds since 1970.
        bus_id: The PCI address as the kernel writes it, such as `0000:3b:00.0` or `0000:3b:00`.
        code: The Xid code. If the line reports without an Xid code that the GPU has fallen off the
            bus, the code is 79.
        text: The text after the Xid code, with secrets masked, truncated to 300 characters.
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
        lines: The last lines about other problems, at most 256, the oldest first. The lines are
            truncated to 300 characters and contain no control characters.
        lost: The number of records that were overwritten before they were read.
    """

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[XidError, ...] = ()
    lines: tuple[DatedLine, ...] = ()
    lost: int = 0


class KernelLines:
    """Parses the lines of one kernel log, the oldest first.

    Args:
        most_lines: The maximum number of lines about other problems to keep. If the number is 0, no
            line is kept, which saves the time to mask the lines.
    """

    def __init__(self, most_lines: int = MOST_LINES) -> None:
        self._oom = OomLines()
        self._xids: list[XidError] = []
        self._lines: deque[DatedLine] = deque(maxlen=most_lines)
        self._gpu = ("", -math.inf)
        self._falls: dict[str, tuple[float, bool]] = {}

    def take(self, time: float, text: str) -> None:
        """Parse one line of the kernel log.

        Args:
            time: The time at which the line was written, in seconds since 1970.
            text: The text of the line, after the kernel's timestamp.
        """
        text = text[:_LONGEST_RECORD]
        # The driver may write several lines in one record, all but the first of which are indented.
        is_nvidia = text.lstrip().startswith(_NVIDIA)
        lines = (line.lstrip() for line in text.split("\\x0a")) if is_nvidia else (text,)
        for line in lines:
            self._take_line(time, clean_text(line))

    def collect(self, *, lost: int = 0, ends: bool = True) -> KernelNews:
        """Return the events that were recognized since the last call.

        Args:
            lost: The number of records that were overwritten before they were read.
            ends: Whether the log is complete. If lines can still follow, an OOM kill whose second
                line is missing is returned by the next call at the latest.
        """
        kills = self._oom.collect(ends=ends)
        news = KernelNews(kills, tuple(self._xids), tuple(self._lines), lost)
        self._xids = []
        self._lines.clear()
        return news

    def _take_line(self, time: float, line: str) -> None:
        if line.startswith(_NVIDIA) and self._take_nvidia(time, line):
            return
        if self._oom.take(time, line):
            return
        if self._lines.maxlen and _TELLING.search(line) and not _GREETING.search(line):
            self._lines.append(DatedLine(time, clean(line)))

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
        if not _FELL_OFF.match(line) or abs(time - named) > _NAMED_SECONDS:
            return False
        if self._falls_anew(time, bus, has_number=False):
            text = clean(line.removeprefix("NVRM: "))
            self._xids.append(XidError(time, bus, _FALLEN_OFF, text))
        return True

    def _falls_anew(self, time: float, bus: str, *, has_number: bool) -> bool:
        slot = bus.partition(".")[0].lower()
        then, had_number = self._falls.get(slot, (-math.inf, has_number))
        if len(self._falls) < _MOST_GPUS or slot in self._falls:
            self._falls[slot] = time, has_number
        return had_number == has_number or abs(time - then) > _SAME_FALL_SECONDS


def clean(line: str) -> str:
    """Return a log line for display, with secrets masked.

    The result contains no control characters and is truncated to 300 characters.
    """
    from trainvitals.masking import mask_text  # noqa: PLC0415 - few machines have such lines

    return mask_text(clean_text(line))[:_LONGEST_LINE]
