"""The evidence of a death, with the values from which the cause is detected."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from trainvitals.sources.containers.evidence import EngineEvent, Evidence, OomKill
from trainvitals.verdicts.causes.fields import drop_empty_fields
from trainvitals.verdicts.causes.handled import drop_handled
from trainvitals.verdicts.causes.lines import clean, join_reports
from trainvitals.verdicts.causes.log_ends import drop_after_success, find_success, goes_on
from trainvitals.verdicts.causes.quoted import drop_quoted
from trainvitals.verdicts.causes.signs import Sign
from trainvitals.verdicts.thresholds import Thresholds, ThresholdsFile, find_thresholds

# The kernel log counts seconds since boot, but the engine uses the wall clock. If the wall clock is
# set, the converted times differ.
_CLOCKS_APART_SECONDS = 2.0
# Docker may report `oom` up to 1 s after `die`, and may also report `stop` after `die`.
_LATE_SECONDS = 2.0
_ENGINE_NEAR_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """The evidence of a death, and the values derived from the evidence.

    Attributes:
        evidence: All evidence that was collected about the death.
        lines: The cleaned lines of the log, the oldest first. If a run ended with an exception, the
            last line is that exception.
        success: The line at the end of the log that reports success. It is an empty string if no
            line does, or if other evidence shows how the subject ended.
    """

    evidence: Evidence
    lines: tuple[str, ...]
    success: str = ""

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of the alerts; each access reads the thresholds file if it has changed."""
        return _open_thresholds(find_thresholds()).latest()[0]

    @property
    def signal(self) -> int | None:
        """The signal that ended the subject, as recorded or as implied by the exit code.

        An exit code above 128 implies a signal. The value is None if no signal ended the subject.
        """
        return self.evidence.last_signal

    @property
    def exit_code(self) -> int | None:
        """The subject's exit code, from the engine's event or else from the state.

        The value is None while the subject is running, or if the exit code is unknown.
        """
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
        """The words that name the subject: `the container`, `the run` or `the process`."""
        return f"the {self.evidence.subject}"

    @property
    def has_ended(self) -> bool:
        """Whether the subject has ended or is unobserved; False if the subject was never started.

        The subject is unobserved if no source shows that the subject is running or has ended.
        """
        return self.evidence.has_ended or self.evidence.is_unobserved

    @property
    def was_never_started(self) -> bool:
        """Whether the engine created the container but never started it, or could not start it."""
        return self.evidence.was_never_started

    @property
    def has_die_event(self) -> bool:
        """Whether the engine's `die` event was received.

        If it was received, the engine's events were observed when the container ended. An event
        that is missing was therefore not sent.
        """
        return any(event.action == "die" for event in self.evidence.events or ())

    @property
    def duration_seconds(self) -> float | None:
        """The duration of the subject in seconds; None if its start or its end is unknown."""
        started, ended = self.evidence.started, self.evidence.ended
        return None if started is None or ended is None else max(0.0, ended - started)

    @property
    def memory_limit_bytes(self) -> int | None:
        """The subject's memory limit in bytes; None if no memory limit is known.

        The limit is taken from the control group, or else from the container's settings, or else
        from an OOM kill.
        """
        sample, settings = self.evidence.sample, self.evidence.settings
        if sample is not None and sample.memory_limit_bytes is not None:
            return sample.memory_limit_bytes
        if settings is not None and settings.memory_limit_bytes is not None:
            return settings.memory_limit_bytes
        own = (kill for kill in reversed(self.list_own_kills()) if self.is_by_own_limit(kill))
        return next((kill.limit_bytes for kill in own), None)

    @property
    def is_unlimited(self) -> bool:
        """Whether the subject is known to have had no memory limit.

        The value is False if it is unknown whether the subject had a memory limit.
        """
        evidence = self.evidence
        if evidence.settings is None and evidence.sample is None:
            return False
        return self.memory_limit_bytes is None

    @property
    def peak_memory_bytes(self) -> int | None:
        """The highest known memory usage in bytes, including the page cache.

        The value is None if no memory usage is known.
        """
        sample = self.evidence.sample
        if sample is None:
            return None
        return sample.memory_peak_bytes or sample.memory_usage_bytes

    @property
    def was_near_limit(self) -> bool:
        """Whether memory usage reached the threshold of the alert `ContainerMemoryNearLimit`."""
        ratio = self.thresholds["container_memory_near_limit:ratio"]
        limit, peak = self.memory_limit_bytes, self.peak_memory_bytes
        return bool(limit) and peak is not None and peak >= ratio * (limit or 0)

    @property
    def engine_start_delay_seconds(self) -> float | None:
        """The seconds from the subject's end to the engine's start; None if either is unknown.

        The value is negative if the engine started before the subject ended.
        """
        ended, started = self.evidence.ended, self.evidence.engine_started
        return None if ended is None or started is None else started - ended

    @property
    def is_near_engine_start(self) -> bool:
        """Whether the subject is known to have ended within 2 minutes of an engine start."""
        delay = self.engine_start_delay_seconds
        return delay is not None and abs(delay) <= _ENGINE_NEAR_SECONDS

    @property
    def is_end_unexplained(self) -> bool:
        """Whether the subject's end is unexplained.

        This is the case if no source shows how the subject ended. In addition, the user must have
        reported the end, or the subject must be unobserved.
        """
        evidence = self.evidence
        if self.exit_code is not None or self.signal is not None or evidence.exception:
            return False
        return evidence.is_unobserved or (evidence.is_ended is True and evidence.ended is None)

    def without_survived(self) -> Case:
        """Return the case without errors that were handled or after which the program continued."""
        lines = drop_handled(self.lines)
        if self.evidence.is_unobserved and goes_on(lines):
            return replace(self, lines=())
        if self.success:
            return replace(self, lines=())
        if self.exit_code == 0:
            lines = drop_after_success(lines)
        return self if lines == self.lines else replace(self, lines=lines)

    def list_events(self, *actions: str) -> tuple[EngineEvent, ...]:
        """Return the engine's events with these names since the last start, the oldest first."""
        events = self.evidence.events or ()
        starts = [index for index, event in enumerate(events) if event.action == "start"]
        since = events[starts[-1] :] if starts else events
        return tuple(event for event in since if event.action in actions)

    def list_own_kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills in the subject's control group since the start, the oldest first."""
        kills = self.evidence.oom_kills or ()
        own = [
            kill for kill in kills if self._is_own(kill.task_memcg) and self._is_since_start(kill)
        ]
        return tuple(sorted(own, key=lambda kill: kill.time))

    def list_unnamed_kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills near the subject's end for which the log names no control group.

        The kernel logs at most ten `oom-kill:` lines in five seconds. For further kills, it logs
        only `Killed process`, which names the process but not the control group.
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
        """Return the OOM kills in other control groups that share a limit with the subject."""
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
        """Return whether the limit of the control group itself, not of a parent, caused a kill."""
        if kill.oom_memcg is None:  # The log contains the constraint, but not the control group.
            return kill.constraint == "CONSTRAINT_MEMCG"
        is_known = bool(self.evidence.id or self.evidence.cgroup)
        return kill.oom_memcg == kill.task_memcg or (is_known and self._is_own(kill.oom_memcg))

    def search(self, sign: Sign) -> re.Match[str] | None:
        """Return the match of a sign in the last log line with the sign; None without such a line."""
        found = (sign.search(self.lines[at]) for at in sign.list_candidates(self.lines))
        return next(filter(None, found), None)

    def seconds_before_end(self, time: float) -> float | None:
        """Return the seconds from a time to the subject's end, at least 0.

        The result is None if the time of the end is unknown.
        """
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
        """Return the time from which OOM kills belong to the current start of the subject."""
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
    """Return the case for the collected evidence, with the log cleaned."""
    lines = clean_log(evidence.log or (), evidence.exception)
    case = Case(evidence, lines)
    if not case.is_end_unexplained or not goes_on(lines):
        return case
    return replace(case, success=find_success(lines))


@lru_cache(maxsize=1)  # The cause `unknown` quotes these lines too.
def clean_log(log: tuple[str, ...], exception: str) -> tuple[str, ...]:
    """Return the cleaned lines of a log, followed by the exception that ended the run."""
    lines = drop_quoted(drop_empty_fields(join_reports(clean(log))))
    return lines + clean((exception,)) if exception else lines


@lru_cache(maxsize=1)  # All deaths in a list use the same file.
def _open_thresholds(path: Path) -> ThresholdsFile:
    return ThresholdsFile(path)
