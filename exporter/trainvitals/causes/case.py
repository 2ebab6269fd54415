"""The evidence of one death, put in order for those who look at it."""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass

from trainvitals.causes.evidence import EngineEvent, Evidence, OomKill
from trainvitals.causes.lines import clean

_SIGNALS_FROM = 128
_MOST_SIGNALS = 64
# The kernel counts from the boot, the engine by the wall clock; a clock that was set lets them drift.
_CLOCKS_APART_SECONDS = 2.0
# `oom` comes up to 1 s after `die`, and `stop` after it as well.
_LATE_SECONDS = 2.0
_FULL_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Case:
    """The evidence of one death with what follows from it at once.

    Attributes:
        evidence: All that is known.
        lines: The log's lines without colours and progress bars, the oldest first; of a run, the
            exception that it ended with as the last.
    """

    evidence: Evidence
    lines: tuple[str, ...]

    @property
    def signal(self) -> int | None:
        """The signal that ended it, by itself or by an exit code of 128 and more; None for none."""
        evidence = self.evidence
        if evidence.signal is not None:
            return evidence.signal
        code = self.exit_code
        if code is None:
            return None
        number = code - _SIGNALS_FROM
        return number if 0 < number <= _MOST_SIGNALS else None

    @property
    def exit_code(self) -> int | None:
        """The exit code, by the event or else by the state; None where it runs or nobody knows."""
        evidence = self.evidence
        if evidence.exit_code is not None or evidence.state is None:
            return evidence.exit_code
        return evidence.state.exit_code if self.has_ended else None

    @property
    def is_container(self) -> bool:
        """Whether it is a container, of which engines and control groups tell."""
        return self.evidence.subject == "container"

    @property
    def program(self) -> str:
        """The engine's command: `docker` or `podman`."""
        return "podman" if self.evidence.engine.startswith("podman") else "docker"

    @property
    def thing(self) -> str:
        """What it is called in a sentence: `the container`, `the run`, `the process`."""
        return f"the {self.evidence.subject}"

    @property
    def has_ended(self) -> bool:
        """Whether it is over; False too for what never started."""
        evidence = self.evidence
        if self.was_never_started:
            return False
        if evidence.ended is not None or evidence.signal is not None or evidence.exception:
            return True
        if evidence.exit_code is not None:
            return True
        return evidence.state is not None and evidence.state.status in {"exited", "dead", "stopped"}

    @property
    def was_never_started(self) -> bool:
        """Whether the engine made it and could not, or was not asked to, start it."""
        state = self.evidence.state
        return (
            state is not None
            and state.status in {"created", "initialized", "configured"}
            and not any(event.action in {"start", "die"} for event in self.evidence.events or ())
        )

    @property
    def was_end_watched(self) -> bool:
        """Whether somebody listened to the engine when it died, so that what is missing is news."""
        return any(event.action == "die" for event in self.evidence.events or ())

    @property
    def lasted_seconds(self) -> float | None:
        """How long it ran; None where one of the two times is not known."""
        started, ended = self.evidence.started, self.evidence.ended
        return None if started is None or ended is None else max(0.0, ended - started)

    @property
    def memory_limit_bytes(self) -> int | None:
        """The limit that it had, by the control group or else by its settings; None for none."""
        sample, settings = self.evidence.sample, self.evidence.settings
        if sample is not None and sample.memory_limit_bytes is not None:
            return sample.memory_limit_bytes
        return settings.memory_limit_bytes if settings is not None else None

    @property
    def is_without_limit(self) -> bool:
        """Whether it is known that it had no limit of its own."""
        evidence = self.evidence
        if evidence.settings is None and evidence.sample is None:
            return False
        return self.memory_limit_bytes is None

    @property
    def most_memory_bytes(self) -> int | None:
        """The most memory that it is known to have had, file cache included; None unknown."""
        sample = self.evidence.sample
        if sample is None:
            return None
        return sample.memory_peak_bytes or sample.memory_usage_bytes

    @property
    def was_near_limit(self) -> bool:
        """Whether it was seen with 95 % of its limit or more."""
        limit, most = self.memory_limit_bytes, self.most_memory_bytes
        return bool(limit) and most is not None and most >= _FULL_RATIO * (limit or 0)

    def list_events(self, *actions: str) -> tuple[EngineEvent, ...]:
        """Give the events of some names since its last start, the oldest first."""
        events = self.evidence.events or ()
        starts = [index for index, event in enumerate(events) if event.action == "start"]
        since = events[starts[-1] :] if starts else events
        return tuple(event for event in since if event.action in actions)

    def list_own_kills(self) -> tuple[OomKill, ...]:
        """Give the kernel's OOM kills in its control group since its last start, oldest first."""
        kills = self.evidence.oom_kills or ()
        own = [kill for kill in kills if self._is_own(kill.task_memcg) and self._is_of_now(kill)]
        return tuple(sorted(own, key=lambda kill: kill.time))

    def list_unnamed_kills(self) -> tuple[OomKill, ...]:
        """Give the kills around its end of which the kernel did not write whose they were.

        Of more than ten kills in five seconds it leaves that out.
        """
        ended = self.evidence.ended
        if ended is None:
            return ()
        return tuple(
            kill
            for kill in self.evidence.oom_kills or ()
            if not kill.task_memcg
            and abs(kill.time - ended) <= _CLOCKS_APART_SECONDS
            and self._is_of_now(kill)
        )

    def list_kills_beside(self) -> tuple[OomKill, ...]:
        """Give the kills of others because of a limit that it was under as well."""
        kills = self.evidence.oom_kills or ()
        return tuple(
            kill
            for kill in kills
            if kill.oom_memcg is not None
            and not self._is_own(kill.task_memcg)
            and kill.oom_memcg != kill.task_memcg
            and self._is_of_now(kill)
        )

    def is_by_own_limit(self, kill: OomKill) -> bool:
        """Tell whether a kill was for the limit of its own control group, not of one above it."""
        return kill.oom_memcg is not None and (
            kill.oom_memcg == kill.task_memcg or self._is_own(kill.oom_memcg)
        )

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Find the last line of the log in which a pattern is; None where it is in none."""
        for line in reversed(self.lines):
            if match := pattern.search(line):
                return match
        return None

    def measure_before_end(self, time: float) -> float | None:
        """Give how long before the end something was; None where the end is not known."""
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
        """Tell from when on a kill belongs to this start, and to none that ended just before it."""
        earliest = started - _CLOCKS_APART_SECONDS
        state = self.evidence.state
        finished = None if state is None or self.has_ended else state.finished
        if finished is None or finished >= started:
            return earliest
        return max(earliest, (finished + started) / 2)

    def _is_of_now(self, kill: OomKill) -> bool:
        started, ended = self.evidence.started, self.evidence.ended
        if started is not None and kill.time < self._earliest(started):
            return False
        return ended is None or kill.time <= ended + _LATE_SECONDS


def open_case(evidence: Evidence) -> Case:
    """Put the evidence of a death in order."""
    lines = clean(evidence.log or ())
    if evidence.exception:
        lines += clean((evidence.exception,))
    return Case(evidence, lines)


def name_signal(number: int) -> str:
    """Name a signal: `SIGKILL`; `signal 40` where it has no name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
