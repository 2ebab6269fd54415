"""A report as one self-contained HTML file, rendered by the template `report.html`."""

from __future__ import annotations

import re
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainvitals.report.charts import draw, list_pictures
from trainvitals.report.figures import CAUSES, Report
from trainvitals.report.sections import compose, compose_head, write_title
from trainvitals.report.wording import Point, Section, Table, read_clock
from trainvitals.units import format_date, format_minute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

_CODE = re.compile("`([^`]*)`")
_SEVERITIES = frozenset({"critical", "warning", "info"})
_MOST_NAME = 40


class _Picture(NamedTuple):
    title: str
    svg: Markup
    names: list[tuple[str, int]]


class _Section(NamedTuple):
    title: str
    pieces: list[Table | list[Point]]
    pictures: list[_Picture]


def format_html(report: Report) -> str:
    """Return a report as one self-contained HTML page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only for HTML

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["mark"] = _mark
    numbers = count()
    return environment.get_template("report.html").render(
        title=write_title(report),
        date=format_date(read_clock(report, report.begin)),
        head=compose_head(report),
        sections=[_prepare(section, report, numbers) for section in compose(report)],
        colors={words: number for number, words in enumerate(CAUSES.values(), 1)},
        asked=format_minute(read_clock(report, report.asked)),
        source=report.source,
    )


def _prepare(section: Section, report: Report, numbers: Iterator[int]) -> _Section:
    """Return a section with its charts drawn and consecutive text lines combined in a block."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2

    pieces: list[Table | list[Point]] = []
    for _, group in groupby(section.pieces, key=type):
        every = list(group)
        points = [piece for piece in every if isinstance(piece, Point)]
        pieces += [points] if points else [piece for piece in every if isinstance(piece, Table)]
    pictures = [
        _Picture(
            picture.title,
            Markup(draw(picture, f"p{next(numbers)}")),  # noqa: S704 - charts escapes its titles
            []
            if picture.is_stacked
            else [
                (course.name[:_MOST_NAME], course.color)
                for course in picture.courses
                if course.name
            ],
        )
        for picture in list_pictures(section.charts, report)
    ]
    return _Section(section.title, pieces, pictures)


def _mark(text: str) -> Markup:
    """Return a text as HTML, with text in backticks as code and a leading severity coloured."""
    from markupsafe import Markup, escape  # noqa: PLC0415

    first, blank, rest = text.partition(" ")
    colored = f'<span class="{first}">{first}</span>{blank}' if first in _SEVERITIES else ""
    # As `str`: a substitution in `Markup` escapes its own replacement before Python 3.12.
    marked = _CODE.sub(r"<code>\1</code>", str(escape(rest if colored else text)))
    return Markup(colored + marked)  # noqa: S704 - escaped above
