"""A report as one HTML file that needs nothing else: no script, no font, no address."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from trainvitals.report.amounts import read_clock
from trainvitals.report.blocks import Point, Section, Table
from trainvitals.report.charts import draw
from trainvitals.report.composing import compose, compose_head, write_title
from trainvitals.report.figures import Report
from trainvitals.report.waste import CAUSES

_CODE = re.compile("`([^`]*)`")
# Of those of the causes, the ones that are easiest to tell apart.
_RUN_COLOURS = (1, 3, 6, 5, 7, 9)
_SEVERITIES = frozenset({"critical", "warning", "info"})
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --dim: #5b6470; --line: #d8dde4; --page: #fff;
  --card: #f5f7fa; --bad: #b42318; --warn: #8a5300; --note: #175cd3;
  --c1: #2f6fdb; --c2: #8fb4ef; --c3: #e08700; --c4: #c4320a; --c5: #d6479b; --c6: #12908e;
  --c7: #7a5af8; --c8: #9aa3af; --c9: #a67c45; --c10: #c9cfd8; --c11: #6b1d1d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #9aa4b2; --line: #343b46;
  --page: #14171c; --card: #1d2229; --bad: #ff8a7a; --warn: #f5b544; --note: #84b2ff;
  --c1: #5b93f0; --c2: #34568f; --c3: #f0a030; --c4: #f0684a; --c5: #e878b8; --c6: #3dbdba;
  --c7: #a48afb; --c8: #7d8796; --c9: #b8925e; --c10: #4a5260; --c11: #d36a6a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; }
ul { margin: 0; padding-left: 1.1rem; } li { margin: .2rem 0; } dd ul { color: var(--dim); }
code { font: .92em ui-monospace, monospace; background: var(--card); padding: .05em .3em; border-radius: 3px; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; min-width: min(100%, 40rem); font-size: 14px; overflow-wrap: normal; }
th { text-align: left; color: var(--dim); font-weight: 600; white-space: nowrap; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.critical { color: var(--bad); font-weight: 600; } .warning { color: var(--warn); font-weight: 600; }
.info { color: var(--note); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; margin: 1rem 0; }
figure { margin: 0; background: var(--card); border-radius: 6px; padding: .75rem; max-width: 40rem; }
figcaption { font-weight: 600; font-size: 14px; margin-bottom: .25rem; }
svg { display: block; width: 100%; height: auto; }
.grid { stroke: var(--line); stroke-width: 1; }
.axis { fill: var(--dim); font: 11px system-ui, sans-serif; }
.line { fill: none; stroke: var(--c1); stroke-width: 2; } .dot { fill: var(--c1); }
.names { font-size: 13px; color: var(--dim); } .name { margin-right: 1em; white-space: nowrap; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
footer { margin-top: 2.5rem; color: var(--dim); font-size: 13px; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""


def format_html(report: Report) -> str:
    """Write a report as a page."""
    title = write_title(report)
    day = f"{read_clock(report, report.begin):%Y-%m-%d}"
    body = "".join(_write(section, report) for section in compose(report))
    asked = f"{read_clock(report, report.asked):%Y-%m-%d %H:%M}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Whatever a name may hold: nothing is loaded and nothing runs.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}, {day}</title><style>{_STYLE}{_colour_causes()}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>{_list(compose_head(report))}{body}"
        f"<footer>Made {asked} from {escape(report.source)}.</footer></body></html>\n"
    )


def _colour_causes() -> str:
    """Give each cause its colour, in pictures and beside its row."""
    rules = [
        f".c-{cause} {{ fill: var(--c{number}); background: var(--c{number}); }}"
        for number, cause in enumerate(CAUSES, 1)
    ]
    runs = [
        f".run-{number} .line {{ stroke: var(--c{colour}); }}"
        f" .run-{number} .dot {{ fill: var(--c{colour}); }}"
        f" .key.run-{number} {{ background: var(--c{colour}); }}"
        for number, colour in enumerate(_RUN_COLOURS, 1)
    ]
    return "\n".join([*rules, *runs, ".c-energy { fill: var(--c1); }", ""])


def _write(section: Section, report: Report) -> str:
    pictures = "".join(draw(chart, report) for chart in section.charts)
    parts = []
    points: list[Point] = []
    for piece in section.pieces:
        if isinstance(piece, Table):
            parts += [_list(points), _draw_table(piece)]
            points = []
        else:
            points.append(piece)
    parts.append(_list(points))
    shown = f'<div class="charts">{pictures}</div>' if pictures else ""
    return f"<h2>{escape(section.title)}</h2>{''.join(parts)}{shown}\n"


def _list(points: Iterable[Point]) -> str:
    """Write points with labels as definitions, those without as a list."""
    every = list(points)
    labelled = "".join(
        f"<dt>{escape(point.label)}</dt><dd>{_mark(point.value)}{_list_more(point)}</dd>"
        for point in every
        if point.label
    )
    others = "".join(f"<li>{_mark(point.value)}</li>" for point in every if not point.label)
    shown = f"<dl>{labelled}</dl>" if labelled else ""
    return f"{shown}<ul>{others}</ul>" if others else shown


def _list_more(point: Point) -> str:
    lines = "".join(f"<li>{_mark(line)}</li>" for line in point.more)
    return f"<ul>{lines}</ul>" if lines else ""


def _mark(text: str) -> str:
    """Write a text: what stands in code as code, a severity at its beginning in its colour."""
    first, blank, rest = text.partition(" ")
    if first in _SEVERITIES:
        return f'<span class="{first}">{first}</span>{blank}{_mark_code(rest)}'
    return _mark_code(text)


def _mark_code(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _draw_table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_class(place in table.numbers)}>{escape(name)}</th>'
        for place, name in enumerate(table.head)
    )
    rows = "".join(f"<tr>{_draw_row(row, table)}</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _draw_row(row: tuple[str, ...], table: Table) -> str:
    causes = {words: cause for cause, words in CAUSES.items()}
    return "".join(
        f"<td{_class(place in table.numbers)}>"
        + (f'<span class="key c-{causes[cell]}"></span>' if cell in causes else "")
        + f"{_mark(cell)}</td>"
        for place, cell in enumerate(row)
    )


def _class(is_number: bool) -> str:  # noqa: FBT001 - the one thing that it asks
    return ' class="number"' if is_number else ""
