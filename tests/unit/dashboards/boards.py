"""Dashboards as data: their panels and queries, each with its place for messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.rulebook import ROOT

DASHBOARDS = ROOT / "grafana/dashboards"

Json = dict[str, Any]

_LABEL_VALUES = re.compile(r"label_values\((?:(?P<expr>.*),\s*)?(?P<label>\w+)\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((?P<expr>.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a panel, query, variable or annotation.

    Attributes:
        board: The title of the dashboard.
        row: The title of the row of a panel, or "variable" or "annotation".
        panel: The title of the panel, or the name of the variable or annotation.
        query: The letter of the query.
    """

    board: str
    row: str = ""
    panel: str = ""
    query: str = ""

    def __str__(self) -> str:
        """Return the place as text, as in `Vitals / Host > Disk > Fill by mount, query A`."""
        path = " > ".join(part for part in (self.board, self.row, self.panel) if part)
        return f"{path}, query {self.query}" if self.query else path


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard.

    Attributes:
        place: The place of the panel.
        json: The JSON of the panel.
        is_closed: Whether the row is collapsed, so that the panel sends no query until a user
            opens the row.
    """

    place: Place
    json: Json
    is_closed: bool = False

    @property
    def kind(self) -> str:
        """The type of the panel in Grafana."""
        return str(self.json.get("type", ""))

    @property
    def defaults(self) -> Json:
        """The settings for all fields of the panel."""
        return _get(self.json, "fieldConfig", "defaults")

    @property
    def options(self) -> Json:
        """The options of the panel."""
        return _get(self.json, "options")

    @property
    def overrides(self) -> list[Json]:
        """The settings for single fields of the panel."""
        return list(self.json.get("fieldConfig", {}).get("overrides") or ())

    @property
    def targets(self) -> list[Json]:
        """The JSON of the queries of the panel."""
        return list(self.json.get("targets") or ())

    @property
    def title(self) -> str:
        """The title of the panel."""
        return self.place.panel

    @cached_property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of the description of the panel."""
        return tuple(part for part in str(self.json.get("description", "")).split("\n\n") if part)

    def read_paragraph(self, head: str) -> str | None:
        """Return the text of the paragraph after a head such as `Normal: `, or None."""
        found = [part for part in self.paragraphs if part.startswith(head)]
        return found[0].removeprefix(head).strip() if found else None

    @property
    def alerts(self) -> tuple[str, ...]:
        """The alerts that the description names after `Alerts: `."""
        named = self.read_paragraph("Alerts: ")
        return tuple(name.strip() for name in named.split(",")) if named else ()

    @property
    def renamed(self) -> Mapping[str, str]:
        """The titles of the columns of a table, by the name of the result's field."""
        return {
            field: title
            for step in self.json.get("transformations") or ()
            for field, title in step.get("options", {}).get("renameByName", {}).items()
        }

    @property
    def hidden(self) -> set[str]:
        """The fields of the result that the table hides."""
        steps = [step.get("options", {}) for step in self.json.get("transformations") or ()]
        listed = [step.get("excludeByName", {}) for step in steps]
        return {field for one in listed for field, is_hidden in one.items() if is_hidden}

    def find_properties(self, name: str) -> list[tuple[Json, Any]]:
        """Return the matcher and the value of each override of a property."""
        return [
            (override["matcher"], property_["value"])
            for override in self.overrides
            for property_ in override["properties"]
            if property_["id"] == name
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query to Prometheus: of a panel, of an annotation, or for the values of a variable.

    Attributes:
        place: The place of the query.
        expr: The PromQL with Grafana's variables; empty if the query has no PromQL.
        kind: "target", "annotation" or "variable".
        json: The JSON that contains the query.
        panel: The panel of the query; None for a variable or an annotation.
        label: The label whose values a variable takes, or an empty text.
    """

    place: Place
    expr: str
    kind: str
    json: Json
    panel: Panel | None = None
    label: str = ""


@dataclass(frozen=True)
class Board:
    """A dashboard.

    Attributes:
        json: The JSON of the dashboard.
    """

    json: Json

    @property
    def uid(self) -> str:
        """The uid of the dashboard, which is its name in URLs."""
        return str(self.json.get("uid", ""))

    @property
    def title(self) -> str:
        """The title of the dashboard, or its uid if the title is missing."""
        return str(self.json.get("title") or self.uid)

    @property
    def place(self) -> Place:
        """The place that denotes the whole dashboard."""
        return Place(self.title)

    @property
    def variables(self) -> list[Json]:
        """The variables of the dashboard, including the data source."""
        return list(_get(self.json, "templating").get("list") or ())

    @property
    def annotations(self) -> list[Json]:
        """The annotations of the dashboard, without Grafana's built-in annotation."""
        listed = _get(self.json, "annotations").get("list") or ()
        return [annotation for annotation in listed if not annotation.get("builtIn")]

    @property
    def rows(self) -> list[tuple[Json, list[Panel]]]:
        """The rows with their panels, from top to bottom; panels above all rows have heading {}."""
        return self._rows

    @cached_property
    def _rows(self) -> list[tuple[Json, list[Panel]]]:
        rows: list[tuple[Json, list[Panel]]] = []
        for entry in self.json.get("panels") or ():
            if entry.get("type") == "row":
                closed = bool(entry.get("collapsed"))
                inside = [self._place(one, entry, closed) for one in entry.get("panels") or ()]
                rows.append((entry, inside))
            else:
                if not rows:
                    rows.append(({}, []))
                heading, panels = rows[-1]
                panels.append(self._place(entry, heading, closed=False))
        return rows

    def _place(self, json_: Json, heading: Json, closed: bool) -> Panel:  # noqa: FBT001 - private
        row, title = str(heading.get("title", "")), str(json_.get("title", ""))
        return Panel(Place(self.title, row, title or f"panel {json_.get('id')}"), json_, closed)

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """The panels from top to bottom, including those of collapsed rows."""
        return tuple(panel for _, panels in self._rows for panel in panels)

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """All queries of the dashboard to Prometheus."""
        return (
            *(self._ask_variable(one) for one in self.variables if one.get("type") == "query"),
            *(self._ask_annotation(one) for one in self.annotations),
            *(question for panel in self.panels for question in _ask_panel(panel)),
        )

    @property
    def multiple(self) -> frozenset[str]:
        """The names of the variables for which several values can be chosen."""
        return frozenset(one["name"] for one in self.variables if is_multiple(one))

    def _ask_variable(self, variable: Json) -> Question:
        place = Place(self.title, "variable", str(variable.get("name")))
        query = variable.get("query")
        text = str(query.get("query", "") if isinstance(query, dict) else query)
        for pattern in (_LABEL_VALUES, _QUERY_RESULT):
            if found := pattern.fullmatch(text.strip()):
                parts = found.groupdict()
                expr, label = parts["expr"] or "", parts.get("label", "")
                return Question(place, expr, "variable", variable, label=label)
        return Question(place, "", "variable", variable)

    def _ask_annotation(self, annotation: Json) -> Question:
        place = Place(self.title, "annotation", str(annotation.get("name")))
        return Question(place, str(annotation.get("expr", "")), "annotation", annotation)


def _ask_panel(panel: Panel) -> Iterator[Question]:
    for target in panel.targets:
        place = replace(panel.place, query=str(target.get("refId", "?")))
        yield Question(place, str(target.get("expr", "")), "target", target, panel)


def is_multiple(variable: Mapping[str, Any]) -> bool:
    """Return whether several values of a variable can be chosen, or all."""
    return bool(variable.get("multi") or variable.get("includeAll"))


def read_boards(directory: Path = DASHBOARDS) -> tuple[Board, ...]:
    """Read all dashboards of a directory."""
    paths = sorted(directory.glob("*.json"))
    return tuple(Board(json.loads(path.read_text(encoding="utf-8"))) for path in paths)


def walk_json(value: object, path: Sequence[str | int] = ()) -> Iterator[tuple[str, object]]:
    """Yield the path and the value of every scalar in a JSON document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk_json(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from walk_json(inner, (*path, at))
    else:
        yield "/".join(map(str, path)), value


def _get(document: Mapping[str, Any], *keys: str) -> Json:
    for key in keys:
        document = document.get(key) or {}
    return dict(document)
