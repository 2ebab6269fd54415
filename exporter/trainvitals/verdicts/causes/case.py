"""The evidence of one death, with the values that the causes derive from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from trainvitals.sources.containers.evidence import EngineEvent, Evidence, OomKill
from trainvitals.verdicts.causes.fields import drop_empty_fields
from trainvitals.verdicts.causes.handled import (
    drop_after_success,
    drop_handled,
    find_success,
    goes_on,
)
from trainvitals.verdicts.causes.lines import clean, join_reports
from trainvitals.verdicts.causes.quoted import drop_quoted
from trainvitals.verdicts.causes.signs import Sign
from trainvitals.verdicts.thresholds import Thresholds, ThresholdsFile, find_thresholds

# The kernel log has seconds since boot and the engine wall-clock time; setting the clock makes the
# converted times differ.
_CLOCKS_APART_SECONDS = 2.0
# Docker may report `oom` up to 1 s after `die`, and `stop` after it too.
_LATE_SECONDS = 2.0
_ENGINE_NEAR_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """The evidence of one death, and values derived from it.

    Attributes:
        evidence: All collected evidence.
        lines: The log's lines without colours and progress bars, the oldest first. For a run that
            ended with an exception, the last line is that exception.
        success: The line by which the log ends with the report of a success, where nothing else shows
            how it ended; empty for none.
    """

    evidence: Evidence
    lines: tuple[str, ...]
    success: str = ""

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of the alerts, read from their file on access."""
        return _open_thresholds(find_thresholds()).latest()[0]

    @property
    def signal(self) -> int | None:
        """The signal that ended it, directly or from an exit code above 128; None for none."""
        return self.evidence.last_signal

    @property
    def exit_code(self) -> int | None:
        """The exit code, from the event or else the state; None while it runs or where unknown."""
        return self.evidence.last_exit_code

    @property
    def is_container(self) -> bool:
        """Whether the subject is a container, not a run or a process."""
        return self.evidence.subject == "container"

    @property
    def program(self) -> str:
        """The engine's command: `docker` or `podman`."""
        return "podman" if self.evidence.engine.startswith("podman") else "docker"

    @property
    def subject(self) -> str:
        """The subject of a sentence: `the container`, `the run` or `the process`."""
        return f"the {self.evidence.subject}"

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, or nothing shows that it runs; False for one that never started."""
        return self.evidence.has_ended or self.evidence.is_unobserved

    @property
    def was_never_started(self) -> bool:
        """Whether the engine created it, and never started it or failed to."""
        return self.evidence.was_never_started

    @property
    def has_die_event(self) -> bool:
        """Whether the engine's events were followed at its end: an event that is missing was not sent."""
        return any(event.action == "die" for event in self.evidence.events or ())

    @property
    def duration_seconds(self) -> float | None:
        """How long it ran in seconds; None where its start or end is unknown."""
        started, ended = self.evidence.started, self.evidence.ended
        return None if started is None or ended is None else max(0.0, ended - started)

    @property
    def memory_limit_bytes(self) -> int | None:
        """Its memory limit, from the control group, its settings or a kill; None for none or unknown."""
        sample, settings = self.evidence.sample, self.evidence.settings
        if sample is not None and sample.memory_limit_bytes is not None:
            return sample.memory_limit_bytes
        if settings is not None and settings.memory_limit_bytes is not None:
            return settings.memory_limit_bytes
        own = (kill for kill in reversed(self.list_own_kills()) if self.is_by_own_limit(kill))
        return next((kill.limit_bytes for kill in own), None)

    @property
    def is_unlimited(self) -> bool:
        """Whether it is known to have had no memory limit; False also where that is unknown."""
        evidence = self.evidence
        if evidence.settings is None and evidence.sample is None:
            return False
        return self.memory_limit_bytes is None

    @property
    def peak_memory_bytes(self) -> int | None:
        """Its highest known memory usage, page cache included; None unknown."""
        sample = self.evidence.sample
        if sample is None:
            return None
        return sample.memory_peak_bytes or sample.memory_usage_bytes

    @property
    def was_near_limit(self) -> bool:
        """Whether its memory usage reached the threshold of the alert `ContainerMemoryNearLimit`."""
        ratio = self.thresholds["container_memory_near_limit:ratio"]
        limit, peak = self.memory_limit_bytes, self.peak_memory_bytes
        return bool(limit) and peak is not None and peak >= ratio * (limit or 0)

    @property
    def engine_start_delay_seconds(self) -> float | None:
        """How long after the end the engine was started; negative before it, None unknown."""
        ended, started = self.evidence.ended, self.evidence.engine_started
        return None if ended is None or started is None else started - ended

    @property
    def is_near_engine_start(self) -> bool:
        """Whether it ended within 2 minutes of a start of the engine; False also where unknown."""
        delay = self.engine_start_delay_seconds
        return delay is not None and abs(delay) <= _ENGINE_NEAR_SECONDS

    @property
    def is_end_unexplained(self) -> bool:
        """Whether it has ended by the user's report, or may have, and nothing shows how."""
        evidence = self.evidence
        if self.exit_code is not None or self.signal is not None or evidence.exception:
            return False
        return evidence.is_unobserved or (evidence.is_ended is True and evidence.ended is None)

    def without_survived(self) -> Case:
        """Return the case without the errors that the program handled, or that its log goes on after."""
        lines = drop_handled(self.lines)
        if self.evidence.is_unobserved and goes_on(lines):
            return replace(self, lines=())
        if self.success:
            return replace(self, lines=())
        if self.exit_code == 0:
            lines = drop_after_success(lines)
        return self if lines == self.lines else replace(self, lines=lines)

    def list_events(self, *actions: str) -> tuple[EngineEvent, ...]:
        """Return the events with these names since its last start, the oldest first."""
        events = self.evidence.events or ()
        starts = [index for index, event in enumerate(events) if event.action == "start"]
        since = events[starts[-1] :] if starts else events
        return tuple(event for event in since if event.action in actions)

    def list_own_kills(self) -> tuple[OomKill, ...]:
        """Return the kernel's OOM kills in its control group since its last start, the oldest first."""
        kills = self.evidence.oom_kills or ()
        own = [
            kill for kill in kills if self._is_own(kill.task_memcg) and self._is_since_start(kill)
        ]
        return tuple(sorted(own, key=lambda kill: kill.time))

    def list_unnamed_kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills around its end for which the kernel log names no control group.

        The kernel limits `oom-kill:` lines to ten in five seconds; of further kills only the line
        `Killed process` remains, which has the process but not its control group.
        """
        ended = self.evidence.ended
        if ended is None:
            return ()
        return tuple(
            kill
            for kill in self.evidence.oom_kills or ()
            if not kill.task_memcg
            and abs(kill.time - ended) <= _CLOCKS_APART_SECONDS
            and self._is_since_start(kill)
        )

    def list_sibling_kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills of other control groups at a limit that it shares with them."""
        kills = self.evidence.oom_kills or ()
        return tuple(
            kill
            for kill in kills
            if kill.oom_memcg is not None
            and not self._is_own(kill.task_memcg)
            and kill.oom_memcg != kill.task_memcg
            and self._is_since_start(kill)
        )

    def is_by_own_limit(self, kill: OomKill) -> bool:
        """Return whether a kill was at the limit of its own control group, not of a parent."""
        if kill.oom_memcg is None:  # its control group is not logged, only that it had a limit
            return kill.constraint == "CONSTRAINT_MEMCG"
        return kill.oom_memcg == kill.task_memcg or self._is_own(kill.oom_memcg)

    def search(self, sign: Sign) -> re.Match[str] | None:
        """Return the match in the last log line that has the sign; None where none does."""
        if not sign.may_be_in(self.lines):
            return None
        for line in reversed(self.lines):
            if match := sign.search(line):
                return match
        return None

    def seconds_before_end(self, time: float) -> float | None:
        """Return the seconds between a time and the end; None where the end is unknown."""
        ended = self.evidence.ended
        return None if ended is None else max(0.0, ended - time)

    def _is_own(self, group: str) -> bool:
        evidence = self.evidence
        if evidence.id:
            return evidence.id in group
        if evidence.cgroup:
            return group == evidence.cgroup or group.startswith(f"{evidence.cgroup.rstrip('/')}/")
        return True

    def _earliest(self, started: float) -> float:
        """Return the earliest time of an OOM kill that belongs to this start, not the one before."""
        earliest = started - _CLOCKS_APART_SECONDS
        state = self.evidence.state
        finished = None if state is None or self.has_ended else state.finished
        if finished is None or finished >= started:
            return earliest
        return max(earliest, (finished + started) / 2)

    def _is_since_start(self, kill: OomKill) -> bool:
        started, ended = self.evidence.started, self.evidence.ended
        if started is not None and kill.time < self._earliest(started):
            return False
        return ended is None or kill.time <= ended + _LATE_SECONDS


def open_case(evidence: Evidence) -> Case:
    """Return the case of some evidence, with its log cleaned."""
    lines = drop_quoted(drop_empty_fields(join_reports(clean(evidence.log or ()))))
    if evidence.exception:
        lines += clean((evidence.exception,))
    case = Case(evidence, lines)
    if not case.is_end_unexplained or not goes_on(lines):
        return case
    return replace(case, success=find_success(lines))


@lru_cache(maxsize=1)  # listing deaths needs the same file for each of them
def _open_thresholds(path: Path) -> ThresholdsFile:
    return ThresholdsFile(path)
