"""A report as text: for a terminal, a mail or `grep`."""

from __future__ import annotations

from collections.abc import Iterable

from trainvitals.report.blocks import Point, Section, Table
from trainvitals.report.composing import compose, compose_head, compose_template, write_title
from trainvitals.report.figures import Report

_WIDEST, _NAMING = 110, 3


def format_text(report: Report) -> str:
    """Write a report as text."""
    return f"=== {write_title(report)} ===\n{_write_all(report, compose(report))}"


def format_summary(report: Report) -> str:
    """Write the most important parts, without tables and without the title."""
    return _write_all(report, compose_template(report))


def _write_all(report: Report, sections: Iterable[Section]) -> str:
    lines = [f"{point.label}: {point.value}" for point in compose_head(report)]
    for section in sections:
        lines += ["", f"{section.title}:", *_write(section)]
    return "\n".join(lines) + "\n"


def _write(section: Section) -> Iterable[str]:
    for piece in section.pieces:
        if isinstance(piece, Table):
            yield from _draw(piece)
        else:
            yield from _list(piece)


def _list(point: Point) -> Iterable[str]:
    yield f"- {point.label}: {point.value}" if point.label else f"- {point.value}"
    yield from (f"    {line}" for line in point.more)


def _draw(table: Table) -> Iterable[str]:
    """Draw a table in columns, or where that is too wide, row by row."""
    columns = range(len(table.head))
    rows = (table.head, *table.rows)
    widths = [max(len(row[column]) for row in rows) for column in columns]
    if sum(widths) + 2 * len(widths) > _WIDEST:
        yield from _list_rows(table)
        return
    for row in rows:
        cells = (
            row[column].rjust(widths[column])
            if column in table.numbers
            else row[column].ljust(widths[column])
            for column in columns
        )
        yield "  " + "  ".join(cells).rstrip()


def _list_rows(table: Table) -> Iterable[str]:
    """Write each row as a line of what it is, and a line of what is said of it."""
    for row in table.rows:
        yield f"- {' '.join(cell for cell in row[:_NAMING] if cell)}"
        yield f"    {'; '.join(cell for cell in row[_NAMING:] if cell)}"
