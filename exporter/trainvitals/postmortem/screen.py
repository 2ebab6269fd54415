"""A run after its end on one screen of text, without colours."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo

from trainvitals.postmortem.advice import advise, name_signal
from trainvitals.postmortem.cases import WELL, Reason, Run, Start
from trainvitals.postmortem.details import list_details, list_events
from trainvitals.postmortem.findings import Findings
from trainvitals.postmortem.quantities import write_duration, write_time
from trainvitals.postmortem.table import write_table

_NARROWEST, _WIDEST = 60, 120
_MOST_RUNS = 4
_LABEL = 12
# What stands in code is copied to a shell, so it is not broken over two lines.
_CODE = re.compile("`[^`]*`")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_ENDS: Mapping[Reason, str] = {
    "finished": "finished",
    "exception": "failed",
    "signal": "was killed",
    "oom": "was killed because memory ran out",
    "unknown": "died, and nobody saw how",
    "running": "is running",
}


def format_screen(
    findings: Findings,
    run: Run,
    *,
    width: int,
    zone: tzinfo | None = None,
    names_others: bool = True,
) -> str:
    """Write a run for a person.

    Args:
        findings: Everything that was found.
        run: The run to tell of.
        width: How many columns there are.
        zone: The time zone of what is shown; that of the machine when None.
        names_others: Whether the other runs are told of, too.
    """
    width = min(max(width, _NARROWEST), _WIDEST)
    start = run.telling
    advice = advise(run)
    near = start.ending.time if start.ending is not None else findings.time
    parts = [
        _write_head(findings, run, width, zone),
        write_table(run, near, width, zone),
        [_name_details(run, start), *_write_rows(list_details(run, start, near, zone), width)],
        ["Last events", *_write_rows(list_events(start, near, zone), width)],
        ["What this usually means", *_write_list(advice.meaning, width)],
        ["What to do next", *_write_list(advice.steps, width)],
    ]
    shown = ["\n".join(part) for part in parts if len(part) > 1 or part is parts[0]]
    others = [each for each in findings.runs if each is not run]
    if others and names_others:
        shown.append("\n".join(_write_others(others, width, zone)))
    shown += _write_notes(findings, width)
    return "\n\n".join(shown)


def describe_run(run: Run, zone: tzinfo | None = None) -> str:
    """Say in a line how a run stands."""
    start, reason, alive = run.telling, run.reason, run.ranks_alive
    if reason == "running":
        return (
            f"is running, {_count(alive, 'rank')} here" + _describe_stall(run) + _describe_past(run)
        )
    when = write_time(run.ended_time if reason == "finished" else _end_of(start), zone)
    if reason == "finished":
        return f"finished at {when}"
    who = f"rank {start.rank} " if len({each.rank for each in run.starts}) > 1 else ""
    at = f"at {when}" if start.is_end_seen else f"; last heard of at {when}"
    living = f"; {_count(alive, 'rank')} still here" if alive else ""
    return f"{who}{describe_end(start)}{'' if at[0] == ';' else ' '}{at}{living}"


def describe_end(start: Start) -> str:
    """Say in a few words how a process ended."""
    ending = start.ending
    words = _ENDS[start.reason]
    if ending is None:
        return words
    if ending.reason == "signal" and ending.signal is not None:
        return f"{words} by signal {ending.signal} ({name_signal(ending.signal)})"
    if ending.reason == "exception" and ending.exception is not None:
        return f"{words} with {ending.exception}"
    return f"{words} with exit code {ending.exit_code}" if ending.exit_code else words


def _write_head(findings: Findings, run: Run, width: int, zone: tzinfo | None) -> list[str]:
    end = _end_of(run.telling) if run.reason != "finished" else run.ended_time
    ago = ""
    if run.reason != "running" and end is not None and findings.time >= end:
        ago = f", {write_duration(findings.time - end)} ago"
    words = describe_run(run, zone)
    colon = ":" if words.startswith("rank") else ""
    return textwrap.wrap(f"Run {run.name}{colon} {words}{ago}", width)


def _name_details(run: Run, start: Start) -> str:
    words = f"Rank {start.rank}"
    if run.has_attempts:
        words += f" of attempt {start.attempt}"
    others = [each for each in run.starts if each.attempt == start.attempt]
    is_first = start.reason not in WELL and len(others) > 1
    return words + (", the first to end badly" if is_first else "")


def _write_rows(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    lines = []
    for label, text in rows:
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=f"  {label:<{_LABEL}}",
            subsequent_indent=" " * (_LABEL + 2),
        )
    return lines


def _write_list(texts: Iterable[str], width: int) -> list[str]:
    lines = []
    for text in texts:
        whole = _CODE.sub(lambda match: match[0].replace(" ", _NO_BREAK), text)
        lines += textwrap.wrap(
            whole, width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _write_others(others: Sequence[Run], width: int, zone: tzinfo | None) -> list[str]:
    lines = ["Other runs here"]
    for run in others[:_MOST_RUNS]:
        text = f"{run.name}: {describe_run(run, zone)}"
        lines.append("  " + textwrap.shorten(text, width - 2, placeholder="..."))
    if len(others) > _MOST_RUNS:
        lines.append(f"  and {len(others) - _MOST_RUNS} more; --json has them all")
    return lines


def _write_notes(findings: Findings, width: int) -> list[str]:
    notes = []
    if findings.incompatible:
        notes.append(
            f"Left aside: {_count(findings.incompatible, 'file')} in {findings.directory} that "
            "cannot be read, or damaged, or no run file of a known version."
        )
    if findings.omitted:
        notes.append(f"Not looked at: {_count(findings.omitted, 'run file')} beyond the limit.")
    if findings.disbelieved:
        notes.append(
            f"Not believed: {_count(findings.disbelieved, 'note')} on how a rank ended, by another "
            "user; ask again as root or as the exporter's user."
        )
    return [textwrap.fill(note, width, break_on_hyphens=False) for note in notes]


def _describe_stall(run: Run) -> str:
    stalls = Counter(start.stall for start in run.current if start.stall is not None)
    words = {"stopped": "stopped", "no_progress": "without progress"}
    return "".join(f"; {number} {words[cause]}" for cause, number in stalls.items())


def _describe_past(run: Run) -> str:
    bad = sorted({start.attempt for start in run.starts if start.reason not in WELL})
    return f"; attempt {', '.join(map(str, bad))} ended badly before" if bad else ""


def _end_of(start: Start) -> float | None:
    return None if start.ending is None else start.ending.time


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
