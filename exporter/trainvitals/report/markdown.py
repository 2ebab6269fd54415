"""A report as Markdown: for an issue, a wiki or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.report.blocks import Point, Section, Table
from trainvitals.report.composing import compose, compose_head, write_title
from trainvitals.report.figures import Report

# Whatever a name may hold stays a name: no link, no picture, no HTML, no heading, no mention.
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~!@&$])")


def format_markdown(report: Report) -> str:
    """Write a report as Markdown."""
    lines = [f"# {write_title(report)}", ""]
    lines += [f"- {point.label}: {escape(point.value)}" for point in compose_head(report)]
    for section in compose(report):
        lines += ["", f"## {section.title}", "", *_write(section)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Keep a text from being read as Markdown; what stands in code stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") and part.endswith("`") and len(part) > 1 else _escape(part)
        for part in parts
    )


def _escape(text: str) -> str:
    # An address would become a link by itself.
    return _SIGNS.sub(r"\\\1", text).replace("://", ":\\//").replace("www.", "www\\.")


def _write(section: Section) -> Iterable[str]:
    for piece in section.pieces:
        if isinstance(piece, Table):
            yield from ("", *_draw(piece), "")
        else:
            yield from _list(piece)


def _list(point: Point) -> Iterable[str]:
    value = escape(point.value)
    yield f"- **{escape(point.label)}**: {value}" if point.label else f"- {value}"
    yield from (f"  - {escape(line)}" for line in point.more)


def _draw(table: Table) -> Iterable[str]:
    yield _row(table.head)
    rules = ("---:" if place in table.numbers else "---" for place in range(len(table.head)))
    yield f"| {' | '.join(rules)} |"
    yield from (_row(row) for row in table.rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(escape(cell) or ' ' for cell in cells)} |"
