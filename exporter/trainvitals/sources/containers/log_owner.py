"""The owner of a log: the program that wrote the log, as far as the log identifies the program.

The owner determines which lines of the kernel log concern the log. A log that is supplied together
with a kernel log names neither a container nor a control group. Kernel log lines can then be
related to the log only by the timestamps, PIDs, GPUs and program names in the log.
"""

from __future__ import annotations

import re
import time as clocks
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainvitals.sources.containers.cgrouppaths import identify
from trainvitals.sources.host.kernel_lines import DatedLine, XidError
from trainvitals.sources.host.oom_lines import OomKill
from trainvitals.sources.timestamps import parse_time

# Names of processes that may have written a log supplied together with a kernel log.
_TRAINER = re.compile(
    r"python|pt_|torch|ray\b|ray::|deepspeed|accelerate|train|ipython|jupyter",
    re.IGNORECASE,
)
# Names of interpreters, each with a pattern for text in the logs of its programs.
_OF_INTERPRETERS = {
    "R": r"\b(?:rscript|r version)\b|\w\.r\b",
    "java": r"\b(?:java|jvm|scala|spark|hadoop)\w{0,40}\b",
    "julia": r"\bjulia\b|\w\.jl\b",
    "node": r"\b(?:nodejs|npm)\b|\w\.m?js\b",
}
# Process names that occur as ordinary words in the logs of other programs.
_WORDS = frozenset(
    ("agent", "client", "data", "loss", "main", "master", "model", "server", "step", "task", "test")
)
_LEAST_NAME = 4
# Kernel lines that a monitoring program copied into the log, which name other programs' processes.
_OF_KERNEL = re.compile(
    r"oom-kill:|invoked oom-killer|: Killed process [0-9]|oom_reaper: |NVRM: Xid"
    r"|^\[ {0,8}[0-9]{1,9}\.[0-9]{6}\] | kernel: "
)
_STAMP = re.compile(
    r"(?:\([^()\n]{1,80}\)|\[[^\[\]\n]{1,40}\]:)?[^0-9]{0,40}([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:[.,][0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
# The format of timestamps that `journalctl -o short-iso` and rsyslog write.
_DATED = re.compile(
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2}) ",
    re.MULTILINE,
)
_LATER_STAMP = re.compile(
    r"(?<![0-9])([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,][0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})"
)
# The message of a shell, a sandbox or an engine about a killed program.
_KILL_REPORT = re.compile(
    r"\bKilled\b|\bOOMKilled\b|\bSIGKILL\b|[Ee]xit(?:ed)?(?: with)?(?: code)?[ :=]{1,3}(?:137|-9)\b|Getötet|Processus arrêté|已杀死|Убито"
)
_PID = re.compile(r"\bpid\W{1,3}([0-9]{2,10})\b", re.IGNORECASE)
_BUS = re.compile(r"\b0([0-9a-f]{3,7}):([0-9a-f]{2}):([0-9a-f]{2})\b", re.IGNORECASE)
_ABOUT_GPU = re.compile(r"gpu|cuda|nvidia|nvrm", re.IGNORECASE)
_SEVERAL = re.compile(
    r"\b(?:rank\W{0,2}|worker-|task:)[1-9]|\bworld.?size\W{1,3}(?:[2-9]|[1-9][0-9])", re.IGNORECASE
)
# Xid codes of errors that are caused by the program named in the error, not by the GPU.
_OF_PROGRAMS = frozenset({13, 31, 32, 43, 45, 69, 94})
_NAME = re.compile(r"\bname=([^,<]{1,40})")
_CRASHED = re.compile(
    r"(?:traps: )?([^\[\]]{1,15})\[[0-9]{1,10}\]:? (?:segfault|trap|general prot)"
)
_GUARD = re.compile(r"systemd-oomd|earlyoom|nohang")
_VICTIM = re.compile(
    r"(?:SIG[A-Z]{3,5} to|[Kk]ill(?:ing|ed)) process [0-9]{1,10} (?:uid [0-9]{1,10} )?[\"(]([^\")]{1,64})"
    r"|: Killed (/\S{1,400})"
)
_KILLED_UNIT = ": systemd-oomd killed"
# systemd units that run one desktop program or one service, and words in the names of units that
# run users' jobs.
_UNIT = re.compile(r"(?:^|/)(?:app-[^\s/]{1,200}\.(?:scope|service)|[\w.\\-]{1,100}\.service)$")
_HOLDS_JOBS = re.compile(
    r"term|vte-spawn|konsole|tilix|kitty|alacritty|tmux|screen|code|pycharm|jupyter|python|torch|train|run-|docker"
    r"|containerd|slurm|ssh|cron",
    re.IGNORECASE,
)
_BEFORE_SECONDS, _AFTER_SECONDS, _DAY_SECONDS = 60.0, 3600.0, 86_400.0
_LEAST_AFTER_SECONDS, _MOST_GAPS, _FEW_GAPS, _RECENT_LINES = 300.0, 3.0, 10, 200
# The possible time differences in hours, if the container uses UTC and the host uses a local time
# zone, or the reverse.
_ZONES = (*range(1, 15), 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75)
# The maximum time between an event and the last log line of the program that the event ended.
_EARLIER_SECONDS, _LATER_SECONDS = 30.0, 60.0
# The time for which the other ranks may continue to log after a rank was killed. They wait for the
# killed rank until a collective operation times out.
_LAST_WORDS_SECONDS = 1000.0
# PIDs in a container's PID namespace are small, and a child's PID is close to the parent's PID.
LEAST_HOST_PID, _MOST_CHILDREN = 5000, 4096
# Workers that are restarted repeatedly have larger PIDs, up to the kernel's default limit.
_MOST_LATER = 65_536
# If a log continues at its usual pace for this time after a kill, the log is not from the killed
# program. The other ranks of the killed program would log nothing while they wait for the rank.
_PACE_SECONDS, _PACE_LINES, _MOST_PACES, _LEAST_PACE_SECONDS = 300.0, 10, 2.0, 30.0
# If a log continues for this number of lines after a report of a kill, the log is not from the
# killed program.
_MANY_LINES = 40
_LONGEST_LINE = 16_384  # a PID, a bus or a kill report is near the beginning of its line


def find_times(lines: Iterable[DatedLine | str], *, zone: str = "") -> tuple[float, float] | None:
    """Return a log's first and last time in Unix seconds; None if it contains no timestamps.

    Args:
        lines: The lines of the log.
        zone: The time zone of timestamps that do not contain a time zone, such as `+0100`; an empty
            string means this machine's time zone.
    """
    lines = list(lines)
    return _find_span(lines, [_read_time(line, zone) for line in lines])


def _find_span(
    lines: Sequence[DatedLine | str], stamps: Sequence[float | None]
) -> tuple[float, float] | None:
    """Return the first and the last time of lines, given the timestamp near the start of each."""
    times = _drop_missing(stamps) or _drop_missing(map(_read_later, lines))
    return (min(times[0], times[-1]), max(times[0], times[-1])) if times else None


def _drop_missing(times: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(time for time in times if time is not None)


def find_zone(text: str) -> str:
    """Return a kernel log's time zone, such as `+0100`; empty if it contains no time zone."""
    found = _DATED.search(text)
    return found[1] if found is not None else ""


def _read_time(line: DatedLine | str, zone: str) -> float | None:
    """Return the time that the engine recorded for a line, or else the timestamp in the line."""
    if not isinstance(line, str) and line.time is not None:
        return line.time
    return read_stamp(line if isinstance(line, str) else line.text, zone=zone)


def _read_later(line: DatedLine | str) -> float | None:
    """Return the first timestamp with a time zone in a line, at any position."""
    found = _LATER_STAMP.search(line if isinstance(line, str) else line.text)
    return None if found is None else _parse(found)


def read_stamp(text: str, *, zone: str = "") -> float | None:
    """Return the timestamp near the start of a text, in Unix seconds; None without a timestamp.

    Args:
        text: The text to search.
        zone: The time zone of a timestamp that does not contain a time zone; an empty string means
            this machine's time zone.
    """
    found = _STAMP.match(text)
    return None if found is None else _parse(found, zone)


def _parse(found: re.Match[str], other_zone: str = "") -> float | None:
    year, month, day, clock, own_zone = found.groups()
    if zone := own_zone or other_zone:
        return parse_time(f"{year}-{month}-{day}T{clock}{zone}")
    try:
        parsed = clocks.strptime(f"{year}-{month}-{day} {clock}", "%Y-%m-%d %H:%M:%S")
        return clocks.mktime(parsed)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class LogOwner:
    """The owner of a log.

    Attributes:
        text: The log without kernel lines; None if no log exists. Without a log, every kernel line
            may concern the owner.
        times: The first and the last time in the log; None if the log or the kernel log contains no
            dates.
        pids: The PIDs in the log.
        buses: The PCI addresses of the GPUs named in the log. The set is empty if the log is from
            one of several ranks, because each rank uses a different GPU.
        survived_kill: Whether the log reports that a program was killed, and contains at least 40
            lines after this report.
        ends_with_kill: Whether one of the last lines reports that a program was killed.
        is_end_dated: Whether one of the last lines has a timestamp. If so, the log ends at about
            the last time in `times`.
        longest_gap_seconds: The longest time between two successive timestamps near the end of the
            log. If this time is short, the program ended soon after the last line.
        stamps: The timestamps in the log, in Unix seconds and in the order of the log.
    """

    text: str | None
    times: tuple[float, float] | None = None
    pids: frozenset[int] = frozenset()
    buses: frozenset[str] = frozenset()
    survived_kill: bool = False
    ends_with_kill: bool = False
    is_end_dated: bool = True
    longest_gap_seconds: float = _AFTER_SECONDS
    stamps: tuple[float, ...] = ()

    @property
    def has_log(self) -> bool:
        """Whether the owner's log exists."""
        return self.text is not None

    def may_own_kill(self, kill: OomKill) -> bool:
        """Return whether the log may be from a killed process.

        The result is True if the log contains the process's PID or its container's ID. Otherwise,
        the time of the kill, the process name and the PID must be consistent with the log, and the
        log must not continue for long after the kill.
        """
        if self.text is None:
            return True
        if kill.pid in self.pids:
            return True
        if self.survived_kill and self.times is None:
            return False
        id_ = identify(kill.task_memcg)
        if id_ is not None and id_[:12] in self.text:
            return True
        return (
            self.may_be_at(kill.time)
            and not self._goes_on_after(kill.time)
            and self._may_name(kill.task)
            and (
                # In a container, the PIDs in the log may be from a separate PID namespace.
                (self.ends_with_kill and id_ is not None)
                or not self._is_foreign_pid(kill.pid, _MOST_LATER)
            )
        )

    def may_own_process(self, task: str, pid: int) -> bool:
        """Return whether the log contains a process's PID or may be from a program of that name."""
        return self.text is None or pid in self.pids or self._may_name(task)

    def select_xids(self, xids: Sequence[XidError]) -> tuple[XidError, ...]:
        """Return the GPU errors whose GPU, process and time are consistent with the log."""
        if self.text is None:
            return tuple(xids)
        near = [xid for xid in xids if xid.pid in self.pids or self._may_be_on(xid)]
        own = [xid for xid in near if self._may_own_xid(xid)]
        # An error without a process name is attributed to the process in the GPU's other errors.
        others = {xid.bus_id for xid in near} - {
            xid.bus_id for xid in own if _NAME.search(xid.text)
        }
        others &= {xid.bus_id for xid in near if xid not in own}
        return tuple(xid for xid in own if xid.bus_id not in others)

    def _may_be_on(self, xid: XidError) -> bool:
        is_named = not self.buses or _shorten_bus(xid.bus_id) in self.buses
        return is_named and self.may_be_at(xid.time) and not self._goes_on_after(xid.time)

    def _may_own_xid(self, xid: XidError) -> bool:
        if xid.code not in _OF_PROGRAMS or xid.pid in self.pids:
            return True
        name = _NAME.search(xid.text)
        is_named = name is None or self._may_name(name[1].strip("'"))
        return is_named and not self._is_foreign_pid(xid.pid, _MOST_CHILDREN)

    def select(self, lines: Sequence[DatedLine]) -> tuple[DatedLine, ...]:
        """Return the lines of the host's log that may concern the program that wrote the log."""
        if self.text is None:
            return tuple(lines)
        near = [line for line in lines if line.time is None or self.may_be_at(line.time)]
        own = [line for line in near if self._may_own_line(line.text)]
        was_other = len(own) < len(near) and not any(_names_victim(line.text) for line in own)
        # The other lines of an out-of-memory daemon concern the process that the daemon killed.
        return tuple(line for line in own if not (was_other and _GUARD.search(line.text)))

    def _may_own_line(self, text: str) -> bool:
        crashed = _CRASHED.match(text)
        if crashed is not None:
            return self._may_name(crashed[1])
        victim = _VICTIM.search(text)
        if victim is not None and victim[1] is not None:
            return self._may_name(victim[1])
        unit = text.partition(_KILLED_UNIT)[0].rpartition(" ")[2] if victim is None else victim[2]
        unit = unit.replace("\\x2d", "-")
        is_other = _UNIT.search(unit) is not None and not _HOLDS_JOBS.search(
            unit.rpartition("/")[2]
        )
        return not (_names_victim(text) and is_other)

    def _goes_on_after(self, time: float) -> bool:
        """Return whether the log spans a time and continues long or at its usual pace after it."""
        if self.times is None:
            return False
        first, last = self.times
        if not first <= time < last or _is_shifted(time - last):
            return False
        return time < last - _LAST_WORDS_SECONDS or self._keeps_pace_after(time)

    def _keeps_pace_after(self, time: float) -> bool:
        """Return whether the log continues for 5 minutes after a time at its usual pace."""
        before = [stamp for stamp in self.stamps if stamp <= time]
        after = [stamp for stamp in self.stamps if stamp > time]
        if len(before) <= _PACE_LINES or len(after) < _PACE_LINES:
            return False
        if after[-1] - time < _PACE_SECONDS:
            return False
        usual = max(_LEAST_PACE_SECONDS, _MOST_PACES * _find_gap(before))
        return _find_gap((time, *after)) <= usual

    def may_be_at(self, time: float) -> bool:
        """Return whether a time is within or near the log's times.

        A time that is near the log's end in another time zone is also accepted.
        """
        if self.times is None:
            return True
        first, last = self.times
        after = min(
            _AFTER_SECONDS, max(_LEAST_AFTER_SECONDS, _MOST_GAPS * self.longest_gap_seconds)
        )
        after = after if self.is_end_dated else _DAY_SECONDS
        if first - _BEFORE_SECONDS <= time <= last + after:
            return True
        return _is_shifted(time - last)

    def _may_name(self, task: str) -> bool:
        if _TRAINER.match(task):
            return True
        if task in _WORDS or (len(task) < _LEAST_NAME and task not in _OF_INTERPRETERS):
            return False
        name = _OF_INTERPRETERS.get(task, rf"\b{re.escape(task)}\b")
        return re.search(name, self.text or "", re.IGNORECASE) is not None

    def _is_foreign_pid(self, pid: int | None, most: int) -> bool:
        if pid is None or not self.pids or min(self.pids) < LEAST_HOST_PID:
            return False
        return not any(0 <= pid - own <= most for own in self.pids)


def _is_shifted(seconds: float) -> bool:
    """Return whether an event may be at the end of a log with times in another time zone.

    Args:
        seconds: The time from the last line of the log to the event if both used the same time
            zone, in seconds.
    """
    shifts = (sign * hours * 3600 for hours in _ZONES for sign in (1, -1))
    return any(-_EARLIER_SECONDS <= seconds - shift <= _LATER_SECONDS for shift in shifts)


def _names_victim(text: str) -> bool:
    return _KILLED_UNIT in text or _VICTIM.search(text) is not None


def read_owner(
    log: Sequence[DatedLine | str] | None, *, is_dated: bool = True, zone: str = ""
) -> LogOwner:
    """Return the owner of a log.

    Args:
        log: The log's lines; None if no log exists.
        is_dated: Whether the kernel log has dates that can be compared with the log's dates.
        zone: The time zone of the kernel log; an empty string means this machine's time zone.
    """
    if log is None:
        return LogOwner(None)
    stamps = [_read_time(line, zone) for line in (log if is_dated else log[-_RECENT_LINES:])]
    recent = _drop_missing(stamps[-_RECENT_LINES:])
    texts = [(line if isinstance(line, str) else line.text)[:_LONGEST_LINE] for line in log]
    texts = [text for text in texts if not _OF_KERNEL.search(text)]
    text = "\n".join(texts)
    buses = {
        _shorten_bus(found[0])
        for line in texts
        if _ABOUT_GPU.search(line)
        for found in _BUS.finditer(line)
    }
    return LogOwner(
        text=text,
        times=_find_span(log, stamps) if is_dated else None,
        pids=frozenset(int(found[1]) for found in _PID.finditer(text)),
        buses=frozenset() if _SEVERAL.search(text) else frozenset(buses),
        survived_kill=any(map(_KILL_REPORT.search, texts[:-_MANY_LINES])),
        ends_with_kill=any(map(_KILL_REPORT.search, texts[-_MANY_LINES:])),
        is_end_dated=_find_span(log[-_MANY_LINES:], stamps[-_MANY_LINES:]) is not None,
        longest_gap_seconds=_find_gap(recent) if len(recent) > _FEW_GAPS else _AFTER_SECONDS,
        stamps=_drop_missing(stamps) if is_dated else (),
    )


def _find_gap(times: Sequence[float]) -> float:
    return max(abs(after - before) for before, after in pairwise(times))


def _shorten_bus(bus: str) -> str:
    """Return a PCI address in lower case without the function and the domain's leading zeros."""
    return bus.lower().partition(".")[0].lstrip("0")
