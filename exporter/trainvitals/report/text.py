"""A report as text, as Markdown, and as a message to the recipients of alerts."""

from __future__ import annotations

from collections.abc import Iterable

from trainvitals.alerting.message import Message, Severity
from trainvitals.foreign_text import escape_markdown
from trainvitals.report.figures import Report
from trainvitals.report.html import format_html
from trainvitals.report.sections import compose, compose_head, compose_template, write_title
from trainvitals.report.wording import Point, Section, Table, read_clock
from trainvitals.units import format_date

_WIDEST, _NAMING = 110, 3


def format_text(report: Report) -> str:
    """Return a report as plain text."""
    return f"=== {write_title(report)} ===\n{_write_text(report, compose(report))}"


def format_markdown(report: Report) -> str:
    """Return a report as Markdown."""
    lines = [f"# {write_title(report)}", ""]
    lines += [f"- {point.label}: {escape_markdown(point.value)}" for point in compose_head(report)]
    for section in compose(report):
        lines += ["", f"## {section.title}", ""]
        for piece in section.pieces:
            # Markdown treats a table without empty lines around it as part of a list.
            if lines[-1] and (isinstance(piece, Table) or lines[-1].startswith("|")):
                lines.append("")
            lines += _tabulate_markdown(piece) if isinstance(piece, Table) else _mark(piece)
    return "\n".join(lines) + "\n"


def make_message(report: Report) -> Message:
    """Return a report as a message: the template's sections for chats, all sections for mail."""
    date = format_date(read_clock(report, report.begin))
    firing = {each.severity for each in report.incidents if each.is_firing}
    severities: tuple[Severity, ...] = ("critical", "warning")
    return Message(
        title=f"{write_title(report)}, {date}",
        text=_write_text(report, compose_template(report)),
        severity=next((each for each in severities if each in firing), "info"),
        key=f"report {report.kind} {date}",
        html=format_html(report),
    )


def _mark(point: Point) -> Iterable[str]:
    value = escape_markdown(point.value)
    yield f"- **{escape_markdown(point.label)}**: {value}" if point.label else f"- {value}"
    yield from (f"  - {escape_markdown(line)}" for line in point.more)


def _tabulate_markdown(table: Table) -> Iterable[str]:
    rules = tuple("---:" if place in table.numbers else "---" for place in range(len(table.head)))
    yield _join_cells(table.head)
    yield f"| {' | '.join(rules)} |"
    yield from (_join_cells(row) for row in table.rows)


def _join_cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(escape_markdown(cell) or ' ' for cell in cells)} |"


def _write_text(report: Report, sections: Iterable[Section]) -> str:
    lines = [f"{point.label}: {point.value}" for point in compose_head(report)]
    for section in sections:
        lines += ["", f"{section.title}:"]
        for piece in section.pieces:
            lines += _tabulate(piece) if isinstance(piece, Table) else _list(piece)
    return "\n".join(lines) + "\n"


def _list(point: Point) -> Iterable[str]:
    yield f"- {point.label}: {point.value}" if point.label else f"- {point.value}"
    yield from (f"    {line}" for line in point.more)


def _tabulate(table: Table) -> Iterable[str]:
    """Yield a table in columns, or with two lines for each row if the columns are too wide."""
    rows = (table.head, *table.rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 2 * len(widths) > _WIDEST:
        for row in table.rows:
            yield f"- {' '.join(cell for cell in row[:_NAMING] if cell)}"
            yield f"    {'; '.join(cell for cell in row[_NAMING:] if cell)}"
        return
    for row in rows:
        cells = (
            cell.rjust(width) if place in table.numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join(cells).rstrip()
