"""A diagnosis on a screen of text, without colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from trainvitals.causes.evidence import Host
from trainvitals.causes.verdict import Finding
from trainvitals.diagnosis.diagnosis import Death, Diagnosis
from trainvitals.diagnosis.rows import Row, list_host, list_memory, list_setup, list_timeline
from trainvitals.diagnosis.text import (
    NARROWEST,
    WIDEST,
    begin,
    list_log,
    list_points,
    list_quotes,
    list_rows,
    list_steps,
    make_harmless,
    wrap,
)
from trainvitals.postmortem.quantities import write_clock, write_duration, write_time

DEFAULT_LINES = 50
_MOST_OTHERS = 10
_MOST_KERNEL_LINES = 10
_SAME_LOOK_SECONDS = 60.0


def format_report(
    diagnosis: Diagnosis,
    *,
    width: int,
    zone: tzinfo | None = None,
    lines: int = DEFAULT_LINES,
) -> str:
    """Write a diagnosis for a person.

    Args:
        diagnosis: What is told.
        width: How many columns there are.
        zone: The time zone of what is shown; that of the machine when None.
        lines: How many of the log's last lines are shown.
    """
    width = min(max(width, NARROWEST), WIDEST)
    finding = diagnosis.verdict.finding
    parts = [
        write_headline(diagnosis, width, zone),
        _head("Why", list_points(finding.speaks_for, width)),
        _head("What speaks against it", list_points(finding.speaks_against, width)),
        _head("What to do", list_steps(finding.steps, width)),
        _head("What could not be read", list_points(list_gaps(diagnosis), width)),
        _head("What else contributed", list_points(list_contributing(diagnosis), width)),
        *_write_evidence(diagnosis, width, zone),
        _write_log(diagnosis, width, lines),
        _head("What else ended", write_deaths(diagnosis.others, width, diagnosis.asked, zone)),
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
    """Write a list of all that ended, the last first, a line each."""
    span = write_duration(since_seconds)
    if not deaths:
        return f"No container ended in the last {span}."
    width = min(max(width, NARROWEST), WIDEST)
    head = f"{len(deaths)} containers ended" if len(deaths) > 1 else "One container ended"
    lines = write_deaths(deaths, width, asked, zone, most=len(deaths))
    return "\n".join(
        [f"{head} in the last {span}; `trainvitals diagnose NAME` tells more.", *lines]
    )


def write_headline(diagnosis: Diagnosis, width: int, zone: tzinfo | None) -> list[str]:
    """Write what died, when, and of what."""
    finding = diagnosis.verdict.finding
    return [
        *wrap(tell_end(diagnosis, zone), width),
        *wrap(finding.summary, width),
        *wrap(tell_verdict(finding), width),
    ]


def tell_end(diagnosis: Diagnosis, zone: tzinfo | None) -> str:
    """Say in a sentence what ended and when, or that it runs."""
    evidence = diagnosis.evidence
    what = f"{evidence.subject.capitalize()} {make_harmless(evidence.name)}"
    state = evidence.state
    if diagnosis.is_running:
        since = "" if evidence.started is None else f" since {write_time(evidence.started, zone)}"
        words = "is paused" if state is not None and state.status == "paused" else "runs"
        ails = "" if diagnosis.is_well else ", and is in trouble"
        return f"{what} {words}{since}{ails}."
    if state is not None and state.status == "created":
        words = "could not be started" if state.error else "was never started"
    else:
        words = "ended" if diagnosis.is_well else "died"
    again = diagnosis.runs_since
    after = "" if again is None else f" It runs again since {write_time(again, zone)}."
    if evidence.ended is None:
        return f"{what} {words}; nobody knows when.{after}"
    ago = ""
    if diagnosis.asked >= evidence.ended:
        ago = f", {write_duration(diagnosis.asked - evidence.ended)} ago"
    code = "" if evidence.exit_code is None else f" with exit code {evidence.exit_code}"
    return f"{what} {words}{code} at {write_time(evidence.ended, zone)}{ago}.{after}"


def tell_verdict(finding: Finding) -> str:
    """Say the cause's ID and how sure it is."""
    return f"Verdict: {finding.reason}, confidence {finding.confidence}."


def list_gaps(diagnosis: Diagnosis) -> list[str]:
    """Say what could not be read and what makes it readable, and the step of the ladder.

    Of what ended as it should nobody needs to know more.
    """
    if diagnosis.is_well and not diagnosis.is_running:
        return []
    told = [f"{gap.what}: {gap.why}. {begin(gap.remedy)}" for gap in diagnosis.gaps]
    if diagnosis.reach is not None and diagnosis.reach.next_step:
        told.append(f"This is {diagnosis.reach.words}.")
    return told


def list_contributing(diagnosis: Diagnosis) -> list[str]:
    """Name the other causes that the evidence speaks for."""
    told = []
    for finding in diagnosis.verdict.contributing:
        step = f" {finding.steps[0]}" if finding.steps else ""
        told.append(f"{finding.reason} ({finding.confidence}): {finding.summary}{step}")
    return told


def write_deaths(
    deaths: Sequence[Death],
    width: int,
    asked: float,
    zone: tzinfo | None,
    *,
    most: int = _MOST_OTHERS,
) -> list[str]:
    """Write a line for each death."""
    rows = [
        (
            write_clock(death.time, asked, zone),
            make_harmless(death.name),
            "" if death.exit_code is None else str(death.exit_code),
            death.verdict.reason,
            death.verdict.finding.confidence,
        )
        for death in deaths[:most]
    ]
    columns = [max((len(row[at]) for row in rows), default=0) for at in range(4)]
    columns[1] = min(columns[1], max(12, width - sum(columns) + columns[1] - 18))
    shown = [
        f"  {when:<{columns[0]}}  {_cut(name, columns[1]):<{columns[1]}}  {code:>{columns[2]}}"
        f"  {reason:<{columns[3]}}  {confidence}"
        for when, name, code, reason, confidence in rows
    ]
    if len(deaths) > most:
        shown.append(f"  and {len(deaths) - most} more: trainvitals diagnose --since 24h")
    return shown


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _write_evidence(diagnosis: Diagnosis, width: int, zone: tzinfo | None) -> Iterable[list[str]]:
    evidence = diagnosis.evidence
    origin = f" (from {diagnosis.origin})" if diagnosis.origin else ""
    yield _head(f"What happened{origin}", list_rows(list_timeline(evidence, zone), width))
    yield _head("What it was", list_rows(list_setup(evidence, zone), width))
    yield _head(
        "Limits and last use", list_rows(list_memory(evidence.sample, evidence.settings), width)
    )
    yield _head("The kernel log", list_quotes(evidence.kernel_lines[-_MOST_KERNEL_LINES:], width))
    yield _head("The engine's log", list_quotes(evidence.engine_errors, width))
    at_death = evidence.host
    if at_death is not None and not is_same_look(at_death, diagnosis.present):
        when = write_time(at_death.time, zone)
        yield _head(f"The machine at {when}", list_rows(list_host(at_death), width))
    if diagnosis.present is not None:
        yield _head("The machine now", list_rows(_list_present(diagnosis), width))


def is_same_look(host: Host, other: Host | None) -> bool:
    """Tell whether a machine was looked at twice at about the same time."""
    return other is not None and abs(host.time - other.time) < _SAME_LOOK_SECONDS


def _list_present(diagnosis: Diagnosis) -> Iterable[Row]:
    return () if diagnosis.present is None else list_host(diagnosis.present)


def _write_log(diagnosis: Diagnosis, width: int, lines: int) -> list[str]:
    log = diagnosis.evidence.log
    if log is None or lines <= 0:
        return []
    if not log:
        return [] if diagnosis.evidence.started is None else ["Its log is empty"]
    shown = log[-lines:]
    title = (
        f"The last {len(shown)} lines of its log" if len(shown) > 1 else "The only line of its log"
    )
    if len(shown) == len(log) and len(log) > 1:
        title = f"Its log, {len(log)} lines"
    return [title, *list_log(shown, width)]


def _head(title: str, lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return [title, *lines] if lines else []
