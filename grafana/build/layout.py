"""Dashboards as Grafana's classic JSON: panels in rows, with variables, annotations and links.

The schema version is 42, the last classic version: Grafana reads later versions only through its
API, not from files. Panels are numbered from top to bottom, so a panel's number has no meaning;
users and tests refer to a panel by its row and title.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from grafana.build.fields import Json
from grafana.build.panels import DATASOURCE, Panel
from grafana.build.queries import Query, fill

COLUMNS: Final = 24
SCHEMA_VERSION: Final = 42
FAMILY: Final = "trainvitals"  # the tag of all dashboards

# Grafana's page of the rule for the alert in a table row; the rule comes from Prometheus, so it has
# no uid.
RULE: Final = "/alerting/${datasource:text}/${__data.fields.Alert:percentencode}/find"

_FILLED: Final = re.compile(r"\$\{([^:}]+)\}")
_ALL: Final[Json] = {"text": ["All"], "value": ["$__all"]}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels under one heading.

    Attributes:
        title: The heading.
        panels: The panels, from left to right and then on the next line.
        is_collapsed: Whether the row is collapsed and runs no queries until it is expanded.
    """

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, which is selected at the top of a dashboard.

    Attributes:
        name: The name in queries, without the dollar sign.
        label: The name displayed to users.
        query: The query for the values: `label_values(METRIC{MATCHERS}, LABEL)` or
            `query_result(…)`; empty for a text box.
        is_multiple: Whether several values, or all, can be selected.
        regex: The regular expression that extracts the values from a `query_result`.
        sort: Grafana's sort number: 7 for natural order, 0 for the order of the query.
        about: A description of the variable.
    """

    name: str
    label: str
    query: str
    about: str
    is_multiple: bool = False
    regex: str = ""
    sort: int = 7


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation drawn over every graph: regions in which `expr` is above 0, or points in time.

    Attributes:
        name: The name of the switch that enables the annotation.
        expr: The PromQL query.
        colour: The colour.
        title: The title, in which `{{label}}` is replaced by the label's value.
        text: The text, in which `{{label}}` is replaced by the label's value.
        is_moment: Whether the query's value is a time, in milliseconds since 1970.
        is_enabled: Whether the annotation is enabled by default, which is reserved for annotations
            that never cover the curves.
    """

    name: str
    expr: str
    colour: str
    title: str
    text: str
    is_moment: bool = False
    is_enabled: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard.

    Attributes:
        uid: The dashboard's ID in URLs, which never changes because other files refer to it.
        title: The title.
        question: The question that the dashboard answers.
        variables: The variables from left to right; the data source is added before them.
        annotations: The annotations drawn over graphs.
        rows: The rows.
        since: The beginning of the time range.
        refresh: The refresh interval.
    """

    uid: str
    title: str
    question: str
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    rows: tuple[Row, ...]
    since: str = "now-1h"
    refresh: str = "30s"
    tags: tuple[str, ...] = field(default=(FAMILY,))

    @property
    def name(self) -> str:
        """The title without the common prefix of the dashboards."""
        return self.title.rpartition(" / ")[2]


def write_board(board: Board, family: Sequence[Board] = ()) -> str:
    """Return the content of a dashboard's JSON file, with sorted keys and one value per line.

    Args:
        board: The dashboard.
        family: The dashboards to which the dashboard links at the top; the dashboard itself is
            omitted.
    """
    described = describe_board(board, family)
    return json.dumps(described, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def describe_board(board: Board, family: Sequence[Board] = ()) -> Json:
    """Return a dashboard as Grafana's JSON."""
    others = [other for other in family if other.uid != board.uid]
    return {
        "annotations": {"list": [_BUILT_IN, *(_write_annotation(a) for a in board.annotations)]},
        "description": board.question,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [_write_link(board, other) for other in others],
        "panels": list(_place_rows(board.rows)),
        "refresh": board.refresh,
        "schemaVersion": SCHEMA_VERSION,
        "tags": list(board.tags),
        "templating": {"list": [_SOURCE, *(_write_variable(v) for v in board.variables)]},
        "time": {"from": board.since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
        "weekStart": "",
    }


def link_to(uid: str, title: str, **variables: str) -> Json:
    """Return a link to another dashboard that keeps the time range and the data source.

    Args:
        uid: The dashboard's uid.
        title: A description of the link.
        variables: The values of the dashboard's variables, in which Grafana replaces `${…}`.
    """
    return {"targetBlank": False, "title": title, "url": write_address(uid, **variables)}


def write_address(uid: str, **variables: str) -> str:
    """Return the URL of a dashboard, relative to Grafana's URL, for a link in a panel or cell.

    By default, Grafana escapes only characters that are invalid in a URL, but not characters with a
    special meaning; without further escaping, a run name such as `a&b` or `c#1` would be cut.
    """
    written = {
        name: _FILLED.sub(r"${\1:percentencode}", value) for name, value in variables.items()
    }
    chosen = [f"var-{name}={quote(value, safe='${}:._')}" for name, value in written.items()]
    return f"/d/{uid}?" + "&".join(["${datasource:queryparam}", *chosen, "${__url_time_range}"])


_BUILT_IN: Final[Json] = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
_SOURCE: Final[Json] = {
    "current": {},
    "hide": 0,
    "includeAll": False,
    "label": "Data source",
    "multi": False,
    "name": "datasource",
    "options": [],
    "query": "prometheus",
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
    "type": "datasource",
}


def _write_link(board: Board, other: Board) -> Json:
    """Return a link from a dashboard to another, with the selected values that both support.

    Grafana's built-in link menu would pass all selected values: for example, it would pass `All` to
    a dashboard of a single host, which would then show that the host `$__all` does not respond.
    """
    chosen = {variable.name: variable for variable in board.variables}
    taken = [
        f"${{{variable.name}:queryparam}}"
        for variable in other.variables
        if variable.name in chosen
        and (variable.is_multiple or not chosen[variable.name].is_multiple)
    ]
    query = "&".join(["${datasource:queryparam}", *taken, "${__url_time_range}"])
    return {
        "asDropdown": False,
        "icon": "dashboard",
        "includeVars": False,
        "keepTime": False,
        "tags": [],
        "targetBlank": False,
        "title": other.name,
        "tooltip": other.question,
        "type": "link",
        "url": f"/d/{other.uid}?{query}",
    }


def _write_variable(variable: Variable) -> Json:
    if not variable.query:
        return _write_text(variable)
    query = fill(variable.query)
    written: Json = {
        "current": _ALL if variable.is_multiple else {},
        "datasource": dict(DATASOURCE),
        "definition": query,
        "description": variable.about,
        "hide": 0,
        "includeAll": variable.is_multiple,
        "label": variable.label,
        "multi": variable.is_multiple,
        "name": variable.name,
        "options": [],
        "query": {
            "qryType": 3 if query.startswith("query_result") else 1,
            "query": query,
            "refId": f"{variable.name}-values",
        },
        "refresh": 2,
        "regex": variable.regex,
        "skipUrlSync": False,
        "sort": variable.sort,
        "type": "query",
    }
    return {**written, "allValue": ".+"} if variable.is_multiple else written


def _write_text(variable: Variable) -> Json:
    return {
        "current": {"text": "", "value": ""},
        "description": variable.about,
        "hide": 0,
        "label": variable.label,
        "name": variable.name,
        "options": [],
        "query": "",
        "skipUrlSync": False,
        "type": "textbox",
    }


def _write_annotation(annotation: Annotation) -> Json:
    return {
        "datasource": dict(DATASOURCE),
        "enable": annotation.is_enabled,
        "expr": fill(annotation.expr),
        "hide": False,
        "iconColor": annotation.colour,
        "name": annotation.name,
        "step": "30s",
        "textFormat": annotation.text,
        "titleFormat": annotation.title,
        "useValueForTime": annotation.is_moment,
    }


def _place_rows(rows: Sequence[Row]) -> Iterable[Json]:
    """Return the rows and panels with their numbers and positions, from top to bottom."""
    number, top = 0, 0
    for row in rows:
        number += 1
        heading: Json = {
            "collapsed": row.is_collapsed,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
            "id": number,
            "panels": [],
            "title": row.title,
            "type": "row",
        }
        top += 1
        placed, bottom = _place_panels(row.panels, number + 1, top)
        number += len(placed)
        if row.is_collapsed:  # a collapsed row takes no space
            yield {**heading, "panels": placed}
        else:
            yield heading
            yield from placed
            top = bottom


def _place_panels(panels: Iterable[Panel], number: int, top: int) -> tuple[list[Json], int]:
    placed, left, bottom = [], 0, top
    for panel in panels:
        if left + panel.width > COLUMNS:
            left, top = 0, bottom
        place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
        placed.append(_write_panel(panel, number, place))
        left, bottom, number = left + panel.width, max(bottom, top + panel.height), number + 1
    return placed, bottom


def _write_panel(panel: Panel, number: int, place: Json) -> Json:
    targets = [_write_target(query, chr(ord("A") + at)) for at, query in enumerate(panel.queries)]
    return {
        **panel.extra,
        "datasource": dict(DATASOURCE),
        "description": panel.about.write(panel.metrics),
        "fieldConfig": {"defaults": panel.defaults, "overrides": list(panel.overrides)},
        "gridPos": place,
        "id": number,
        "options": panel.options,
        "targets": targets,
        "title": panel.title,
        "transformations": list(panel.transformations),
        "type": panel.kind,
    }


def _write_target(query: Query, letter: str) -> dict[str, Any]:
    return {
        "datasource": dict(DATASOURCE),
        "editorMode": "code",
        "expr": query.expr,
        "format": query.format,
        "instant": query.is_instant,
        "legendFormat": query.legend or "__auto",
        "range": not query.is_instant,
        "refId": letter,
    }
