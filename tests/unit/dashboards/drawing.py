"""Checks of the display of panels: types, units, thresholds, colours and states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from promql_parser import AggregateExpr, BinaryExpr, VectorSelector

from grafana.build import palette
from tests.support.promql import Node, children
from tests.unit.dashboards.boards import Json, Panel, Question
from tests.unit.dashboards.dimensions import find_dimension, read_unit, write_dimension
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import parse, parse_all
from tests.unit.dashboards.units import is_unit

Faults = Iterator[Fault]

KINDS = ("stat", "timeseries", "state-timeline", "table", "heatmap")
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_STATES = re.compile(r"_(state|phase|health|up|active|responding|readonly|straggler|stalled)$")
_COLOURS = frozenset(
    {
        *(palette.CALM, palette.CALM_BAND),
        *(palette.OK, palette.WARNING, palette.CRITICAL, palette.INFORMATION, palette.UNKNOWN),
        *palette.SERIES,
    }
)


def check_kinds(view: View) -> Faults:
    """Check that the type of each panel is one of those in `KINDS`."""
    for _, panel in view.panels:
        if panel.kind not in KINDS:
            yield Fault(panel.place, f"is a {panel.kind or 'panel of no kind'}")


def check_repeats(view: View) -> Faults:
    """Check that no panel or row is repeated for each value of a variable."""
    for board in view.boards:
        for heading, panels in board.rows:
            if heading.get("repeat"):
                yield Fault(board.place, f"row {heading.get('title')} repeats")
            yield from (Fault(p.place, "repeats") for p in panels if p.json.get("repeat"))


def check_sources(view: View) -> Faults:
    """Check that all panels and queries use the selected data source."""
    for board in view.boards:
        for panel in board.panels:
            if panel.json.get("datasource") != _SOURCE:
                yield Fault(panel.place, f"asks {panel.json.get('datasource')}")
        for question in board.questions:
            if question.json.get("datasource") != _SOURCE:
                yield Fault(question.place, f"asks {question.json.get('datasource')}")


def check_targets(view: View) -> Faults:
    """Check that each panel has queries with unique letters."""
    for _, panel in view.panels:
        letters = [target.get("refId") for target in panel.targets]
        if not letters:
            yield Fault(panel.place, "asks nothing")
        if len(set(letters)) != len(letters):
            yield Fault(panel.place, f"two queries have one letter: {letters}")


def check_units(view: View) -> Faults:
    """Check that each panel has units of Grafana, or texts for its values."""
    for _, panel in view.panels:
        units = [value for _, value in panel.find_properties("unit")]
        units += [panel.defaults["unit"]] if panel.defaults.get("unit") else []
        units += [panel.options.get("yAxis", {}).get("unit")] if panel.kind == "heatmap" else []
        if not units and not panel.defaults.get("mappings"):
            yield Fault(panel.place, "has no unit")
        for unit in units:
            if not is_unit(str(unit), view.units):
                yield Fault(panel.place, f"unit {unit} is none of Grafana's")


def check_dimensions(view: View) -> Faults:
    """Check that the unit of a panel matches the dimension of its query, if it is known."""
    for _, question, node in parse_all(view, "target"):
        panel = question.panel
        if panel is None or panel.kind == "heatmap":
            continue
        found = find_dimension(node)
        for unit in _find_units(panel, question):
            wanted = read_unit(unit)
            if found is not None and wanted is not None and dict(found) != dict(wanted):
                says = f"shows {write_dimension(found)} as {unit}"
                yield Fault(question.place, says)


def _find_units(panel: Panel, question: Question) -> list[str]:
    """Return the units that may apply to a query's values; unclear overrides yield none."""
    title = panel.renamed.get(f"Value #{question.place.query}") or panel.renamed.get("Value")
    own, others = [], []
    for matcher, value in panel.find_properties("unit"):
        if matcher in (
            {"id": "byName", "options": title},
            {"id": "byFrameRefID", "options": question.place.query},
        ):
            own.append(str(value))
        elif panel.kind != "table" and matcher["id"] != "byFrameRefID":
            others.append(str(value))
    if own or others:
        return own
    return [str(panel.defaults.get("unit", ""))]


def check_thresholds(view: View) -> Faults:
    """Check that threshold steps start without a value and then increase."""
    for _, panel in view.panels:
        for steps in list_steps(panel):
            values = [step.get("value") for step in steps]
            if not values or values[0] is not None:
                yield Fault(
                    panel.place, "the first step has a value: nothing colours what is below"
                )
            rest = [float("nan") if value is None else float(value) for value in values[1:]]
            if not all(below < above for below, above in pairwise(rest)):
                yield Fault(panel.place, f"steps do not rise: {values[1:]}")


def list_steps(panel: Panel) -> list[list[Json]]:
    """Return the threshold steps of the defaults and of each override."""
    found = [panel.defaults["thresholds"]] if panel.defaults.get("thresholds") else []
    found += [value for _, value in panel.find_properties("thresholds")]
    return [list(one.get("steps") or ()) for one in found]


def check_colours(view: View) -> Faults:
    """Check that every colour belongs to the palette."""
    for board in view.boards:
        for annotation in board.annotations:
            if annotation.get("iconColor") not in _COLOURS:
                yield Fault(board.place, f"annotation {annotation['name']}: no colour of ours")
        for panel in board.panels:
            for colour in sorted(set(_list_colours(panel)) - _COLOURS):
                yield Fault(panel.place, f"{colour} is no colour of the palette")


def _list_colours(panel: Panel) -> Iterator[str]:
    for steps in list_steps(panel):
        yield from (str(step.get("color")) for step in steps)
    mappings = [panel.defaults.get("mappings") or []]
    mappings += [value for _, value in panel.find_properties("mappings")]
    for mapping in (one for several in mappings for one in several):
        for option in mapping.get("options", {}).values():
            if isinstance(option, dict) and "color" in option:
                yield str(option["color"])
    chosen = [panel.defaults.get("color") or {}]
    chosen += [value for _, value in panel.find_properties("color")]
    yield from (str(value["fixedColor"]) for value in chosen if "fixedColor" in value)


def check_empties(view: View) -> Faults:
    """Check that each panel has a text for missing data."""
    for _, panel in view.panels:
        said = str(panel.defaults.get("noValue", ""))
        if len(said.split()) < (2 if panel.is_closed else 1):
            yield Fault(panel.place, f"noValue is {said!r}")


def check_states(view: View) -> Faults:
    """Check that states are shown as a state timeline with texts, not as a graph of 0 and 1."""
    for board, panel in view.panels:
        if panel.kind == "state-timeline" and not panel.defaults.get("mappings"):
            yield Fault(panel.place, "its states have no texts")
        if panel.kind != "timeseries":
            continue
        if panel.defaults.get("mappings"):
            yield Fault(panel.place, "draws states as a graph")
        for question in (one for one in board.questions if one.panel is panel):
            node = parse(question, board)
            if node is not None and _is_state(node):
                yield Fault(question.place, "draws a graph of 0 and 1")


def _is_state(node: Node) -> bool:
    """Return whether an expression's values are single states, 0 or 1."""
    match node:
        case VectorSelector():
            return bool(_STATES.search(node.name or ""))
        case AggregateExpr():
            is_one = str(node.op) in ("max", "min", "group")
            return is_one and _is_state(children(node)[-1])
        case BinaryExpr():
            is_bool = node.modifier is not None and node.modifier.return_bool
            return is_bool or (str(node.op) in ("and", "unless") and _is_state(children(node)[0]))
    return False
