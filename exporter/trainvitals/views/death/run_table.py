"""A table of a run's ranks, with one row for each start of a rank and at most twelve rows."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import tzinfo

from trainvitals.foreign_text import name_rest
from trainvitals.sources.runs.past_runs import Run, Start
from trainvitals.sources.signals import name_signal
from trainvitals.units import format_clock, format_duration, format_value

_MOST_ROWS = 12
_NARROWEST_ENDING = 10
_SAME_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table of ranks.

    Attributes:
        title: The heading of the column.
        write: A function that returns the text of the cell for a start.
        is_shown: A function that returns whether the table of a run needs the column.
        is_text: Whether the cells are text, which is aligned to the left.
    """

    title: str
    write: Callable[[Start], str]
    is_shown: Callable[[Run], bool] = lambda _: True
    is_text: bool = False


def write_table(run: Run, near: float, width: int, zone: tzinfo | None = None) -> list[str]:
    """Return the table of a run's starts, with a mark at the start that the verdict refers to.

    Args:
        run: The run whose starts the table lists.
        near: A time in Unix seconds; times on the same day are written without a date.
        width: The width of the table, in columns.
        zone: The time zone of the table; None means the machine's time zone.
    """
    columns = [
        _Column("RANK", lambda start: str(start.rank)),
        _Column("TRY", lambda start: str(start.attempt), lambda run: run.has_attempts),
        _Column("ENDED BY", _name_end, is_text=True),
        _Column("AT", lambda start: _write_end(start, near, zone)),
        _Column("STEP", _write_step),
        _Column("LOSS", lambda start: format_value(start.value("loss"))),
        _Column("PHASE", lambda start: _unless_finished(start, start.phase or "?"), is_text=True),
        _Column("FOR", lambda start: _write_age(start, start.phase_seconds)),
        _Column(
            "QUIET", lambda start: _write_age(start, start.progress_age_seconds), _is_quiet_news
        ),
    ]
    columns = [column for column in columns if column.is_shown(run)]
    shown, left = _choose_rows(run)
    rows = [[column.title for column in columns]]
    rows += [[column.write(start) for column in columns] for start in shown]
    lines = _align(rows, [column.is_text for column in columns], width, run, shown)
    return [*lines, *textwrap.wrap(_count_left(left), width)]


def _align(
    rows: list[list[str]], are_text: list[bool], width: int, run: Run, shown: list[Start]
) -> list[str]:
    ending = rows[0].index("ENDED BY")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + 2 * len(widths) - width
    if over > 0:
        widths[ending] = max(_NARROWEST_ENDING, widths[ending] - over)
    lines = []
    for number, row in enumerate(rows):
        is_telling = number > 0 and shown[number - 1] is run.telling and len(shown) > 1
        cells = [
            cell[:size].ljust(size) if is_text else cell.rjust(size)
            for cell, size, is_text in zip(row, widths, are_text, strict=True)
        ]
        lines.append((("> " if is_telling else "  ") + "  ".join(cells))[:width].rstrip())
    return lines


def _choose_rows(run: Run) -> tuple[list[Start], list[Start]]:
    """Return the starts of a run that the table shows, and the starts that the table omits."""

    def rank_for_display(start: Start) -> tuple[bool, bool, bool, int, int]:
        return (
            start is not run.telling,
            start not in run.current,
            start.reason == "finished",
            -start.attempt,
            start.rank,
        )

    ordered = sorted(run.starts, key=rank_for_display)
    shown = [start for start in run.starts if start in ordered[:_MOST_ROWS]]
    return shown, ordered[_MOST_ROWS:]


def _count_left(starts: Iterable[Start]) -> str:
    counts = Counter(start.reason for start in starts)
    if not counts:
        return ""
    named = ", ".join(f"{number} {reason}" for reason, number in counts.most_common())
    return f"  {name_rest(counts.total(), f': {named}')}"


def _name_end(start: Start) -> str:
    ending = start.ending
    if ending is None:
        return {"stopped": "(stopped)", "no_progress": "(no progress)"}.get(
            start.stall or "", "(running)"
        )
    match ending.reason:
        case "signal" if ending.signal is not None:
            return name_signal(ending.signal)
        case "exception" if ending.exception is not None:
            return ending.exception.rpartition(".")[2]
        case "exception" if ending.exit_code:
            return f"exit code {ending.exit_code}"
        case "oom":
            return "out of memory"
        case reason:
            return reason


def _write_end(start: Start, near: float, zone: tzinfo | None) -> str:
    if start.ending is None:
        return "-"
    return format_clock(start.ending.time, near, zone) + ("" if start.is_end_seen else "?")


def _write_step(start: Start) -> str:
    step = start.count("global_step")
    return "-" if step is None else str(step)


def _write_age(start: Start, seconds: float | None) -> str:
    return _unless_finished(start, format_duration(seconds))


def _unless_finished(start: Start, cell: str) -> str:
    """Return the text of a cell, or `-` for a start that finished."""
    return "-" if start.reason == "finished" else cell


def _is_quiet_news(run: Run) -> bool:
    """Return whether, for any start, the last progress and the last phase change differ in time."""
    return any(
        start.progress_age_seconds is not None
        and abs(start.progress_age_seconds - (start.phase_seconds or 0.0)) > _SAME_SECONDS
        for start in run.starts
    )
