"""The evidence of OOM kills in a case, and the sentences that describe this evidence."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.sources.containers.evidence import OomKill
from trainvitals.units import count_noun, format_bytes, format_duration, format_percent
from trainvitals.verdicts.causes.case import Case

# The main process ends within half a second of the OOM kill.
_PROMPT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class OomEvidence:
    """The evidence of OOM kills in a case.

    Attributes:
        kills: The OOM kills in the subject's control group, from the kernel log.
        events: The times at which the engine reported an OOM kill, in Unix seconds.
        is_flagged: Whether the engine has set `OOMKilled` in the container's state since the last
            start.
        counted: The number of OOM kills that the control group had counted at the last sample
            before the end.
        is_counted_at_end: Whether the sample at the end of a run counted OOM kills; False for other
            subjects, which have no such sample.
        is_sibling_killed: Whether the kernel log shows that the memory limit of a common parent led
            to the kill of a process in another control group instead.
    """

    kills: tuple[OomKill, ...]
    events: tuple[float, ...]
    is_flagged: bool
    counted: int
    is_counted_at_end: bool
    is_sibling_killed: bool

    @property
    def is_found(self) -> bool:
        """Whether the OOM killer killed a process of the subject."""
        is_found = bool(self.kills or self.events or self.is_flagged or self.is_counted_at_end)
        return is_found and not self.is_sibling_killed

    @property
    def may_be_child(self) -> bool:
        """Whether the OOM killer killed the main process or possibly only a child process."""
        return self.is_found or (self.counted > 0 and not self.is_sibling_killed)

    @property
    def last_kill_time(self) -> float | None:
        """The time of the last OOM kill in Unix seconds; None if the time is unknown."""
        return max([kill.time for kill in self.kills] or self.events, default=None)


def collect_oom_evidence(case: Case) -> OomEvidence:
    """Return the evidence of OOM kills since the last start."""
    evidence = case.evidence
    kills = case.list_own_kills()
    events = tuple(event.time for event in case.list_events("oom"))
    # The engine sets `OOMKilled` if any process of the container was killed, even a child process.
    flagged = evidence.state is not None and evidence.state.is_oom_killed
    is_witnessed = case.has_die_event or evidence.oom_kills is not None
    if flagged and not events and not kills and evidence.restarts and is_witnessed:
        flagged = False  # Some engines keep the flag from the previous start.
    counted = evidence.sample.oom_kills or 0 if evidence.sample is not None else 0
    is_sibling_killed = not kills and bool(case.list_sibling_kills())
    is_counted_at_end = evidence.subject == "run" and counted > 0
    return OomEvidence(kills, events, flagged, counted, is_counted_at_end, is_sibling_killed)


def describe_oom_kills(case: Case) -> tuple[str, ...]:
    """Return a sentence for each source that has evidence of OOM kills."""
    oom = collect_oom_evidence(case)
    sentences = [_describe_kill(case, kill) for kill in oom.kills[-1:]]
    if len(oom.kills) > 1:
        sentences.append(f"The kernel log has {len(oom.kills)} such kills since the last start.")
    if oom.events:
        when, more = _describe_when(case, oom.events[-1]), len(oom.events) - 1
        before = f", and {count_noun(more, 'time')} before that" if more else ""
        sentences.append(f"The engine reported the event `oom`{when}{before}.")
    if oom.is_flagged:
        sentences.append("The engine's state has `OOMKilled` true.")
    if oom.counted > 0:
        counted = count_noun(oom.counted, "OOM kill")
        sentences.append(f"Its control group had counted {counted} at the last sample.")
    return tuple(sentences)


def _describe_kill(case: Case, kill: OomKill) -> str:
    held = "" if kill.anon_rss_bytes is None else f", anon-rss {format_bytes(kill.anon_rss_bytes)}"
    return (
        f"Kernel log: the OOM killer killed `{kill.task}` (PID {kill.pid}{held})"
        f"{_describe_when(case, kill.time)}, {_describe_limit(case, kill)}."
    )


def _describe_when(case: Case, time: float) -> str:
    if case.evidence.is_unobserved:  # A kernel log alone does not show when the process ended.
        return ""
    before = case.seconds_before_end(time)
    return " while it ran" if before is None else f" {format_duration(before)} before the end"


def _describe_limit(case: Case, kill: OomKill) -> str:
    if kill.oom_memcg is None:
        return f"because the host had no memory left ({kill.constraint})"
    if case.is_by_own_limit(kill):
        return f"at the limit of its own control group ({kill.constraint})"
    return f"at the limit of its parent group `{kill.oom_memcg}` ({kill.constraint})"


def describe_memory_use(case: Case) -> tuple[str, ...]:
    """Return sentences about the subject's memory limit, memory usage and memory pressure."""
    limit, most, sample = case.memory_limit_bytes, case.peak_memory_bytes, case.evidence.sample
    sentences = []
    if limit and most is not None:
        sentences.append(
            f"Its memory limit was {format_bytes(limit)}; the highest recorded usage was"
            f" {format_bytes(most)} ({format_percent(most / limit)})."
        )
    elif limit:
        sentences.append(f"Its memory limit was {format_bytes(limit)}.")
    held = sample.memory_unreclaimable_bytes if sample is not None else None
    if limit and held is not None:
        sentences.append(f"{format_bytes(held)} of its memory could not be reclaimed.")
    waited = sample.memory_pressure_ratio if sample is not None else None
    if waited:
        sentences.append(
            f"All its tasks waited for memory in {format_percent(waited)} of the last 10 s (PSI)."
        )
    return tuple(sentences)


def describe_late_kill(case: Case) -> tuple[str, ...]:
    """Return a sentence if the last OOM kill occurred more than 5 seconds before the end."""
    last = collect_oom_evidence(case).last_kill_time
    before = None if last is None else case.seconds_before_end(last)
    if before is None or before <= _PROMPT_SECONDS:
        return ()
    return (
        f"The last OOM kill was {format_duration(before)} before the end, not immediately before it.",
    )


def describe_missing_kernel_line(case: Case) -> tuple[str, ...]:
    """Return a sentence if the kernel log could be read but contains no line about the OOM kill."""
    if case.evidence.oom_kills is None or case.list_own_kills():
        return ()
    return ("The kernel log could be read and has no line about this OOM kill.",)
