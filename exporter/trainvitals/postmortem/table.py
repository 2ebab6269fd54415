"""The table of a run's ranks: a row for each start, as many as a screen has room for."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import tzinfo

from trainvitals.postmortem.advice import name_signal
from trainvitals.postmortem.cases import Run, Start
from trainvitals.postmortem.quantities import write_clock, write_duration, write_number

_MOST_ROWS = 12
_NARROWEST_ENDING = 10
_SAME_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table of ranks.

    Attributes:
        title: Its head.
        write: Writes a cell.
        is_shown: Whether it tells anything of these starts.
        is_text: Whether it is flush left.
    """

    title: str
    write: Callable[[Start], str]
    is_shown: Callable[[Run], bool] = lambda _: True
    is_text: bool = False


def write_table(run: Run, near: float, width: int, zone: tzinfo | None = None) -> list[str]:
    """Write the table of a run's starts; the one that tells the most has a mark.

    Args:
        run: The run.
        near: Times of this day, Unix seconds, are written without their date.
        width: How many columns there are.
        zone: The time zone of what is shown; that of the machine when None.
    """
    columns = [
        _Column("RANK", lambda start: str(start.rank)),
        _Column("TRY", lambda start: str(start.attempt), lambda run: run.has_attempts),
        _Column("ENDED BY", _name_end, is_text=True),
        _Column("AT", lambda start: _write_end(start, near, zone)),
        _Column("STEP", _write_step),
        _Column("LOSS", lambda start: write_number(start.value("loss"))),
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
    """Give the starts that the table shows, and those for which it has no room."""

    def standing(start: Start) -> tuple[bool, bool, bool, int, int]:
        return (
            start is not run.telling,
            start not in run.current,
            start.reason == "finished",
            -start.attempt,
            start.rank,
        )

    ordered = sorted(run.starts, key=standing)
    shown = [start for start in run.starts if start in ordered[:_MOST_ROWS]]
    return shown, ordered[_MOST_ROWS:]


def _count_left(starts: Iterable[Start]) -> str:
    counts = Counter(start.reason for start in starts)
    if not counts:
        return ""
    named = ", ".join(f"{number} {reason}" for reason, number in counts.most_common())
    return f"  and {counts.total()} more: {named}"


def _name_end(start: Start) -> str:
    ending = start.ending
    if ending is None:
        return {"stopped": "(stopped)", "no_progress": "(stands still)"}.get(
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
    return write_clock(start.ending.time, near, zone) + ("" if start.is_end_seen else "?")


def _write_step(start: Start) -> str:
    step = start.count("global_step")
    return "-" if step is None else str(step)


def _write_age(start: Start, seconds: float | None) -> str:
    return _unless_finished(start, write_duration(seconds))


def _unless_finished(start: Start, cell: str) -> str:
    """Give a cell that means nothing for a run that went well."""
    return "-" if start.reason == "finished" else cell


def _is_quiet_news(run: Run) -> bool:
    """Tell whether the last progress was at another time than the last change of phase."""
    return any(
        start.progress_age_seconds is not None
        and abs(start.progress_age_seconds - (start.phase_seconds or 0.0)) > _SAME_SECONDS
        for start in run.starts
    )
