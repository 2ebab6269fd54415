"""Formats a diagnosis as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from trainvitals.foreign_text import clean_text, name_rest
from trainvitals.sources.containers.evidence import Host
from trainvitals.sources.containers.pod import is_pending
from trainvitals.sources.host.oom_lines import OomKill
from trainvitals.units import count_noun, format_clock, format_duration, format_time
from trainvitals.verdicts.causes.diagnosis import Death, Diagnosis
from trainvitals.verdicts.causes.verdict import Finding
from trainvitals.views.death.rows import list_host, list_memory, list_setup, list_timeline
from trainvitals.views.death.text import (
    NARROWEST,
    WIDEST,
    begin,
    list_log,
    list_points,
    list_quotes,
    list_rows,
    list_steps,
    wrap,
)

DEFAULT_LINES = 50
_MOST_OTHERS = 10
_MOST_KILLS = 50
_MOST_KERNEL_LINES = 10
_SAME_SAMPLE_SECONDS = 60.0
# The sources that each access level reads, and the sources that the previous level does not read.
_LEVELS = (
    ("control groups and /proc only", ""),
    ("the engine too", "the engine's states, settings, events and logs of containers"),
    ("the kernel log too", "OOM kills and GPU errors of the kernel log"),
)


def format_report(
    diagnosis: Diagnosis,
    *,
    width: int,
    zone: tzinfo | None = None,
    lines: int = DEFAULT_LINES,
) -> str:
    """Return a diagnosis as plain text.

    Args:
        diagnosis: The diagnosis to format.
        width: The width of the text, in columns.
        zone: The time zone of the text; None means the machine's time zone.
        lines: The maximum number of log lines.
    """
    width = min(max(width, NARROWEST), WIDEST)
    parts = [
        [*wrap(describe_outcome(diagnosis, zone), width), *write_verdict(diagnosis, width)],
        *write_reasons(diagnosis, width),
        *_write_evidence(diagnosis, width, zone),
        _write_log(diagnosis, width, lines),
        _head("Other deaths", write_deaths(diagnosis.others, width, diagnosis.asked, zone)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def format_deaths(
    deaths: Sequence[Death],
    *,
    width: int,
    asked: float,
    since_seconds: float,
    zone: tzinfo | None = None,
) -> str:
    """Return a text with one line for each death, the latest first."""
    span = format_duration(since_seconds)
    if not deaths:
        return f"No container and no run ended in the last {span}."
    width = min(max(width, NARROWEST), WIDEST)
    head = (
        f"{len(deaths)} containers or runs ended"
        if len(deaths) > 1
        else f"One {deaths[0].subject} ended"
    )
    lines = write_deaths(deaths, width, asked, zone, most=len(deaths))
    return "\n".join([f"{head} in the last {span}; details: trainvitals diagnose NAME", *lines])


def format_kills(
    kills: Sequence[OomKill], *, asked: float, since_seconds: float, zone: tzinfo | None = None
) -> str:
    """Return a text with one line for each OOM kill outside containers, the latest first."""
    rows = [
        (format_clock(kill.time, asked, zone), clean_text(kill.task), str(kill.pid))
        for kill in kills[:_MOST_KILLS]
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(2)]
    lines = [f"  {when:<{widths[0]}}  {name:<{widths[1]}}  PID {pid}" for when, name, pid in rows]
    if len(kills) > len(rows):
        lines.append(f"  and {len(kills) - len(rows)} more")
    span = format_duration(since_seconds)
    head = f"OOM kills outside containers in the last {span}; details: trainvitals diagnose --pid N"
    return "\n".join([head, *lines])


def write_verdict(diagnosis: Diagnosis, width: int) -> list[str]:
    """Return the lines with the diagnosed cause and the confidence in the cause."""
    finding = diagnosis.verdict.finding
    return [*wrap(finding.summary, width), *wrap(describe_verdict(finding), width)]


def write_reasons(diagnosis: Diagnosis, width: int) -> list[list[str]]:
    """Return the sections about evidence, next steps, missing sources and contributing causes."""
    finding = diagnosis.verdict.finding
    return [
        _head("Evidence", list_points(finding.speaks_for, width)),
        _head("Evidence against it", list_points(finding.speaks_against, width)),
        _head("What to do", list_steps(finding.steps, width)),
        _head("What could not be read", list_points(list_gaps(diagnosis), width)),
        _head("Contributing causes", list_points(list_contributing(diagnosis), width)),
    ]


def describe_outcome(diagnosis: Diagnosis, zone: tzinfo | None) -> str:
    """Return a sentence that states when the subject ended, or how long it has been running."""
    evidence = diagnosis.evidence
    what = f"{evidence.subject.capitalize()} {clean_text(evidence.name)}"
    state = evidence.state
    if diagnosis.is_running:
        since = "" if evidence.started is None else f" since {format_time(evidence.started, zone)}"
        words = "is paused" if state is not None and state.status == "paused" else "runs"
        fault = "" if diagnosis.is_well else ", with a fault"
        return f"{what} {words}{since}{fault}."
    if state is not None and state.status == "created":
        words = "could not be started" if state.error else "was never started"
    elif is_pending(evidence):
        return f"Pod {clean_text(evidence.name)} does not start."
    elif diagnosis.is_inconclusive:
        return f"{what}: nothing shows whether it has ended."
    else:
        words = "ended" if diagnosis.is_well else "died"
    again = diagnosis.runs_since
    after = "" if again is None else f" It was started again at {format_time(again, zone)}."
    if evidence.ended is None:
        return f"{what} {words}.{after}"
    ago = ""
    if diagnosis.asked >= evidence.ended:
        ago = f", {format_duration(diagnosis.asked - evidence.ended)} ago"
    code = "" if evidence.exit_code is None else f" with exit code {evidence.exit_code}"
    return f"{what} {words}{code} at {format_time(evidence.ended, zone)}{ago}.{after}"


def describe_verdict(finding: Finding) -> str:
    """Return a sentence with the ID of the cause and the confidence in the cause."""
    return f"Verdict: {finding.reason}, confidence {finding.confidence}."


def list_gaps(diagnosis: Diagnosis) -> list[str]:
    """Return a sentence for each source that could not be read, and one about the access level.

    At the highest access level, the sentence about the level is omitted. The list is empty for a
    subject that ended regularly.
    """
    if diagnosis.is_well and not diagnosis.is_running:
        return []
    sentences = [f"{gap.what}: {gap.why}. {begin(gap.remedy)}" for gap in diagnosis.gaps]
    if diagnosis.step is not None and describe_next_step(diagnosis.step):
        sentences.append(begin(describe_step(diagnosis.step)))
    return sentences


def describe_step(step: int) -> str:
    """Return a text that names the sources of an access level, and what the next level adds."""
    words = f"access level {step} of {len(_LEVELS) - 1} reads {_LEVELS[step][0]}"
    return "; ".join(filter(None, (words, describe_next_step(step))))


def describe_next_step(step: int) -> str:
    """Return a text that names the sources that the next access level adds.

    At the highest level, the text is an empty string.
    """
    if step == len(_LEVELS) - 1:
        return ""
    return f"level {step + 1} adds {_LEVELS[step + 1][1]}"


def list_contributing(diagnosis: Diagnosis) -> list[str]:
    """Return a sentence about each contributing cause of a death."""
    sentences = []
    for finding in diagnosis.verdict.contributing:
        step = f" {finding.steps[0]}" if finding.steps else ""
        sentences.append(f"{finding.reason} ({finding.confidence}): {finding.summary}{step}")
    return sentences


def write_deaths(
    deaths: Sequence[Death],
    width: int,
    asked: float,
    zone: tzinfo | None,
    *,
    most: int = _MOST_OTHERS,
) -> list[str]:
    """Return a line for each death, and a line with the number of omitted deaths."""
    rows = [
        (
            format_clock(death.time, asked, zone),
            clean_text(death.name),
            "" if death.exit_code is None else str(death.exit_code),
            death.verdict.reason,
            death.verdict.finding.confidence,
        )
        for death in deaths[:most]
    ]
    columns = [max((len(row[at]) for row in rows), default=0) for at in range(4)]
    columns[1] = min(columns[1], max(12, width - sum(columns) + columns[1] - 18))
    shown = [
        f"  {when:<{columns[0]}}  {clean_text(name, most=columns[1]):<{columns[1]}}  {code:>{columns[2]}}"
        f"  {reason:<{columns[3]}}  {confidence}"
        for when, name, code, reason, confidence in rows
    ]
    if len(deaths) > most:
        shown.append(f"  {name_rest(len(deaths) - most, ': trainvitals diagnose --since 24h')}")
    return shown


def _write_evidence(diagnosis: Diagnosis, width: int, zone: tzinfo | None) -> Iterable[list[str]]:
    evidence = diagnosis.evidence
    origin = f" (from {diagnosis.origin})" if diagnosis.origin else ""
    yield _head(f"Timeline{origin}", list_rows(list_timeline(evidence, zone), width))
    yield _head("Configuration", list_rows(list_setup(evidence, zone), width))
    yield _head(
        "Limits and last usage", list_rows(list_memory(evidence.sample, evidence.settings), width)
    )
    yield _head("The kernel log", list_quotes(evidence.kernel_lines[-_MOST_KERNEL_LINES:], width))
    yield _head("The engine's log", list_quotes(evidence.engine_errors, width))
    at_death = evidence.host
    if at_death is not None and not _is_same_sample(at_death, diagnosis.present):
        when = format_time(at_death.time, zone)
        yield _head(f"The machine at {when}", list_rows(list_host(at_death), width))
    if diagnosis.present is not None:
        yield _head("The machine now", list_rows(list_host(diagnosis.present), width))


def _is_same_sample(host: Host, other: Host | None) -> bool:
    """Return whether two samples of the machine state are less than a minute apart."""
    return other is not None and abs(host.time - other.time) < _SAME_SAMPLE_SECONDS


def _write_log(diagnosis: Diagnosis, width: int, lines: int) -> list[str]:
    log = diagnosis.evidence.log
    if log is None or lines <= 0:
        return []
    if not log:
        return [] if diagnosis.evidence.started is None else ["The log is empty"]
    shown = log[-lines:]
    title = f"The last {len(shown)} of {len(log)} log lines"
    if len(shown) == len(log):
        title = f"The log, {count_noun(len(log), 'line')}"
    return [title, *list_log(shown, width)]


def _head(title: str, lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return [title, *lines] if lines else []
