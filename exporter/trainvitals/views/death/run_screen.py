"""Formats the postmortem of a run as plain text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo

from trainvitals.foreign_text import name_rest
from trainvitals.sources.runs.endings import describe_ending
from trainvitals.sources.runs.history import RunHistory
from trainvitals.sources.runs.past_runs import WELL, Run, Start
from trainvitals.units import count_noun, format_duration, format_time
from trainvitals.verdicts.causes.diagnosis import Postmortem
from trainvitals.views.death.report import write_reasons, write_verdict
from trainvitals.views.death.run_details import list_details, list_events
from trainvitals.views.death.run_table import write_table
from trainvitals.views.death.text import NARROWEST, WIDEST, list_rows

_MOST_RUNS = 4


def format_screen(
    postmortem: Postmortem,
    *,
    width: int,
    zone: tzinfo | None = None,
    names_others: bool = True,
) -> str:
    """Return the postmortem of a run as plain text.

    Args:
        postmortem: The postmortem to format.
        width: The width of the text, in columns.
        zone: The time zone of the text; None means the machine's time zone.
        names_others: Whether the text lists the other runs.
    """
    width = min(max(width, NARROWEST), WIDEST)
    history, run = postmortem.history, postmortem.run
    diagnosis, start = postmortem.diagnose(), run.telling
    near = start.ending.time if start.ending is not None else history.time
    parts = [
        [*_write_head(history, run, width, zone), *write_verdict(diagnosis, width)],
        *write_reasons(diagnosis, width),
        write_table(run, near, width, zone),
        [_name_details(run, start), *list_rows(list_details(run, start, near, zone), width)],
        ["Last events", *list_rows(list_events(start, near, zone), width)],
    ]
    shown = ["\n".join(part) for part in parts if len(part) > 1]
    others = [each for each in history.runs if each is not run]
    if others and names_others:
        shown.append("\n".join(_write_others(others, width, zone)))
    shown += _write_notes(history, width)
    return "\n\n".join(shown)


def describe_run(run: Run, zone: tzinfo | None = None) -> str:
    """Return a line of text about the state or the end of a run."""
    start, reason, alive = run.telling, run.reason, run.ranks_alive
    if reason == "running":
        return (
            f"is running, {count_noun(alive, 'rank')} here"
            + _describe_stall(run)
            + _describe_past(run)
        )
    when = format_time(run.ended_time if reason == "finished" else _end_of(start), zone)
    if reason == "finished":
        return f"finished at {when}"
    ending = "" if start.ending is None else describe_ending(start.ending)
    who = f"rank {start.rank} " if len({each.rank for each in run.starts}) > 1 else ""
    at = f"at {when}" if start.is_end_seen else f"; last record at {when}"
    living = f"; {count_noun(alive, 'rank')} still running here" if alive else ""
    return f"{who}{ending}{'' if at[0] == ';' else ' '}{at}{living}"


def _write_head(history: RunHistory, run: Run, width: int, zone: tzinfo | None) -> list[str]:
    end = _end_of(run.telling) if run.reason != "finished" else run.ended_time
    ago = ""
    if run.reason != "running" and end is not None and history.time >= end:
        ago = f", {format_duration(history.time - end)} ago"
    words = describe_run(run, zone)
    colon = ":" if words.startswith("rank") else ""
    return textwrap.wrap(f"Run {run.name}{colon} {words}{ago}", width)


def _name_details(run: Run, start: Start) -> str:
    words = f"Rank {start.rank}"
    if run.has_attempts:
        words += f" of attempt {start.attempt}"
    others = [each for each in run.starts if each.attempt == start.attempt]
    is_first = start.reason not in WELL and len(others) > 1
    return words + (", the first to fail" if is_first else "")


def _write_others(others: Sequence[Run], width: int, zone: tzinfo | None) -> list[str]:
    lines = ["Other runs here"]
    for run in others[:_MOST_RUNS]:
        text = f"{run.name}: {describe_run(run, zone)}"
        lines.append("  " + textwrap.shorten(text, width - 2, placeholder="..."))
    if len(others) > _MOST_RUNS:
        lines.append(f"  {name_rest(len(others) - _MOST_RUNS, '; --json lists all')}")
    return lines


def _write_notes(history: RunHistory, width: int) -> list[str]:
    notes = []
    if history.incompatible:
        notes.append(
            f"Ignored: {count_noun(history.incompatible, 'file')} in {history.directory}, unreadable, "
            "damaged, or not a run file of a known version."
        )
    if history.omitted:
        notes.append(f"Not read: {count_noun(history.omitted, 'run file')} beyond the limit.")
    if history.disbelieved:
        notes.append(
            f"Ignored: {count_noun(history.disbelieved, 'note')} of another user on how a rank ended; "
            "run this command as root or as the exporter's user."
        )
    return [textwrap.fill(note, width, break_on_hyphens=False) for note in notes]


def _describe_stall(run: Run) -> str:
    stalls = Counter(start.stall for start in run.current if start.stall is not None)
    words = {"stopped": "stopped", "no_progress": "without progress"}
    return "".join(f"; {number} {words[cause]}" for cause, number in stalls.items())


def _describe_past(run: Run) -> str:
    bad = sorted({start.attempt for start in run.starts if start.reason not in WELL})
    return f"; attempt {', '.join(map(str, bad))} failed before" if bad else ""


def _end_of(start: Start) -> float | None:
    return None if start.ending is None else start.ending.time
