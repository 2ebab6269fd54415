"""The traces of the kernel's OOM killer in a case, and the sentences that tell of them."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.causes.case import Case
from trainvitals.causes.evidence import OomKill
from trainvitals.causes.figures import write_count, write_share, write_size, write_span

# The end follows the OOM kill of the main process within half a second.
_PROMPT_SECONDS = 5.0
# Below that share of the limit the last look says little about the end.
_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class Traces:
    """What there is of the OOM killer in a case.

    Attributes:
        kills: The kernel's lines about processes in its control group.
        events: When the engine told of an OOM kill.
        is_flagged: Whether the engine's state says so and means this start.
        counted: How many kills its control group counted until the last look, before the end.
        is_noted: Whether that look was at the end, as at a run's, and no earlier one.
        is_spared: Whether the kernel log shows that it was another one that was killed, for a limit
            above both.
    """

    kills: tuple[OomKill, ...]
    events: tuple[float, ...]
    is_flagged: bool
    counted: int
    is_noted: bool
    is_spared: bool

    @property
    def are_there(self) -> bool:
        """Whether anything in it was killed for memory."""
        is_told = bool(self.kills or self.events or self.is_flagged or self.is_noted)
        return is_told and not self.is_spared

    @property
    def are_of_worker(self) -> bool:
        """Whether anything is known of a kill that need not have been that of the main process."""
        return self.are_there or (self.counted > 0 and not self.is_spared)

    @property
    def last(self) -> float | None:
        """When the last kill was; None unknown."""
        return max([kill.time for kill in self.kills] or self.events, default=None)


def trace(case: Case) -> Traces:
    """Look for the OOM killer since the last start."""
    evidence = case.evidence
    kills = case.list_own_kills()
    events = tuple(event.time for event in case.list_events("oom"))
    flagged = evidence.state is not None and evidence.state.is_oom_killed
    is_witnessed = case.was_end_watched or evidence.oom_kills is not None
    if flagged and not events and not kills and evidence.restarts and is_witnessed:
        flagged = False  # some engines keep the flag of an earlier start
    counted = evidence.sample.oom_kills or 0 if evidence.sample is not None else 0
    is_spared = not kills and bool(case.list_kills_beside())
    is_noted = evidence.subject == "run" and counted > 0
    return Traces(kills, events, flagged, counted, is_noted, is_spared)


def tell_traces(case: Case) -> tuple[str, ...]:
    """Give a sentence for each trace of the OOM killer."""
    traces = trace(case)
    told = [_tell_kill(case, kill) for kill in traces.kills[-1:]]
    if len(traces.kills) > 1:
        told.append(f"The kernel log has {len(traces.kills)} such kills since its start.")
    if traces.events:
        when, more = _tell_when(case, traces.events[-1]), len(traces.events) - 1
        before = f", and {write_count(more, 'time')} before that" if more else ""
        told.append(f"The engine reported `oom` {when}{before}.")
    if traces.is_flagged:
        told.append("The engine's state says `OOMKilled` true.")
    if traces.counted > 0:
        counted = write_count(traces.counted, "kill")
        told.append(
            f"Its control group had counted {counted} for memory when it was last looked at."
        )
    return tuple(told)


def _tell_kill(case: Case, kill: OomKill) -> str:
    held = "" if kill.anon_rss_bytes is None else f", anon-rss {write_size(kill.anon_rss_bytes)}"
    return (
        f"Kernel log: the OOM killer ended `{kill.task}` (PID {kill.pid}{held})"
        f" {_tell_when(case, kill.time)}, {_tell_limit(case, kill)}."
    )


def _tell_when(case: Case, time: float) -> str:
    before = case.measure_before_end(time)
    return "while it ran" if before is None else f"{write_span(before)} before the end"


def _tell_limit(case: Case, kill: OomKill) -> str:
    if kill.oom_memcg is None:
        return f"because the host had no memory left ({kill.constraint})"
    if case.is_by_own_limit(kill):
        return f"at the limit of its own control group ({kill.constraint})"
    return f"at the limit of `{kill.oom_memcg}` above it ({kill.constraint})"


def tell_level(case: Case) -> tuple[str, ...]:
    """Give the sentences about its limit, what it was seen with, and how it waited for memory."""
    limit, most, sample = case.memory_limit_bytes, case.most_memory_bytes, case.evidence.sample
    told = []
    if limit and most is not None:
        told.append(
            f"Its limit was {write_size(limit)}; the most that was seen is {write_size(most)}"
            f" ({write_share(most, limit)})."
        )
    elif limit:
        told.append(f"Its limit was {write_size(limit)}.")
    held = sample.memory_unreclaimable_bytes if sample is not None else None
    if limit and held is not None:
        told.append(
            f"{write_size(held)} of that could not be dropped, which leaves out file cache."
        )
    waited = sample.memory_pressure_ratio if sample is not None else None
    if waited:
        told.append(f"It waited for memory in {write_share(waited, 1)} of the 10 s before.")
    return tuple(told)


def tell_lateness(case: Case) -> tuple[str, ...]:
    """Give a sentence where the last kill was so early that it need not have been the end."""
    last = trace(case).last
    before = None if last is None else case.measure_before_end(last)
    if before is None or before <= _PROMPT_SECONDS:
        return ()
    return (f"The last OOM kill was {write_span(before)} before the end, not right before it.",)


def tell_silence(case: Case) -> tuple[str, ...]:
    """Give a sentence where the kernel log could be read and does not know of the kill."""
    if case.evidence.oom_kills is None or case.list_own_kills():
        return ()
    return ("The kernel log could be read and has no line about it.",)
