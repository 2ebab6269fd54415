"""Checks of the names of series and columns, of legends, and of the forms of queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from promql_parser import AggModifierType, AggregateExpr

from grafana.build.queries import Query, count_series
from grafana.build.sizes import count_legend_rows
from tests.support.promql import Node, children
from tests.support.rulelint.produced import find_labels
from tests.unit.dashboards.boards import Board, Json, Panel
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import list_questions, parse, parse_all

Faults = Iterator[Fault]

_NAMES_SERIES = ("timeseries", "state-timeline")
_OVER_TIME = ("timeseries", "state-timeline", "heatmap")
# A legend needs one calculation of each group, because not every calculation suits every metric.
_CALCS_OF_LINES = (("lastNotNull",), ("mean", "max", "min"))
_CALCS_OF_BARS = (("sum", "mean", "max"),)
_TOOLTIP = {"mode": "multi", "sort": "desc"}
# Narrower graphs have no room for a legend beside them, or for several values in the legend.
_BESIDE, _ALL_VALUES = 8, 12
_MOST_SHOWN = 9
# Labels that a user adds to a target, which need no column.
_GIVEN = frozenset({"cluster", "team"})


def check_legends(view: View) -> Faults:
    """Check that a graph has a legend, as a table sorted by value if the panel has room."""
    for _, panel in view.panels:
        if panel.kind != "timeseries":
            continue
        legend = panel.options.get("legend") or {}
        if not legend.get("showLegend"):
            yield Fault(panel.place, "has no legend")
        elif legend.get("displayMode") == "table":
            yield from _check_table(panel, legend)
        elif _has_room(panel, "bottom") or _get_width(panel) >= _BESIDE:
            yield Fault(panel.place, "its legend is no table, for which there is room")


def _check_table(panel: Panel, legend: Json) -> Faults:
    calcs = set(legend.get("calcs") or ())
    are_bars = (panel.defaults.get("custom") or {}).get("drawStyle") == "bars"
    wanted = _CALCS_OF_BARS if are_bars else _CALCS_OF_LINES
    if legend.get("placement") == "right" and _get_width(panel) < _ALL_VALUES:
        wanted = wanted[:1]
    for several in wanted:
        if not calcs & set(several):
            yield Fault(panel.place, f"its legend lacks {' or '.join(several)}")
    if not legend.get("sortBy") or not legend.get("sortDesc"):
        yield Fault(panel.place, "its legend is not sorted from the greatest down")
    if not _has_room(panel, str(legend.get("placement"))):
        yield Fault(panel.place, f"its legend has no room for {count_lines(panel)} series")


def count_lines(panel: Panel) -> int:
    """Return the number of series that a panel may draw on a machine with eight devices."""
    return count_series([Query("", str(one.get("legendFormat", ""))) for one in panel.targets])


def _has_room(panel: Panel, placement: str) -> bool:
    height = int(panel.json.get("gridPos", {}).get("h", 0))
    room = count_legend_rows(height, is_beside=placement == "right")
    # A legend beside the graph can be scrolled; below the graph, most of it would be hidden.
    return count_lines(panel) <= room or (placement == "right" and room >= _MOST_SHOWN)


def _get_width(panel: Panel) -> int:
    return int(panel.json.get("gridPos", {}).get("w", 0))


def check_series_names(view: View) -> Faults:
    """Check that legends name existing labels and distinguish all series of a query."""
    for board, question, node in parse_all(view, "target"):
        panel, legend = question.panel, str(question.json.get("legendFormat", ""))
        if panel is None or panel.kind == "table":
            continue
        named = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        for label in sorted(named - find_labels(node, view.house)):
            yield Fault(question.place, f"the legend names {label}, which no series has")
        if panel.kind in _NAMES_SERIES:
            if legend in ("", "__auto"):
                yield Fault(question.place, "its series have no names")
            elif lost := _find_told_apart(node, board) - named:
                says = (
                    f"the legend {legend!r} does not tell series of other {', '.join(lost)} apart"
                )
                yield Fault(question.place, says)


def _find_told_apart(node: Node, board: Board) -> set[str]:
    """Return the labels that an aggregation keeps and that can differ on this dashboard."""
    while isinstance(node, AggregateExpr) and str(node.op) in ("topk", "bottomk"):
        node = children(node)[-1]
    modifier = node.modifier if isinstance(node, AggregateExpr) else None
    if modifier is None or modifier.type != AggModifierType.By:
        return set()
    single = {str(one.get("name")) for one in board.variables} - board.multiple
    kept = set(modifier.labels) - single - {"job", "le"}
    return kept - ({"uuid", "gpu_uuid"} if "device" in kept else set())


def check_columns(view: View) -> Faults:
    """Check that a table's columns match the labels of its queries, with titles and instance."""
    for board, panel in view.panels:
        if panel.kind != "table":
            continue
        asked = [one for one in board.questions if one.panel is panel]
        nodes = {one: node for one in asked if (node := parse(one, board)) is not None}
        labels = {one: find_labels(node, view.house) - _GIVEN for one, node in nodes.items()}
        known = frozenset().union(*labels.values()) | _list_values(panel) | {"Time"}
        for field in sorted(set(panel.renamed) - known):
            yield Fault(panel.place, f"column {panel.renamed[field]}: no query gives {field}")
        for question, found in labels.items():
            for label in sorted(found - set(panel.renamed) - panel.hidden):
                yield Fault(question.place, f"label {label} becomes a column without a title")
            if "instance" in panel.renamed and "instance" not in found:
                yield Fault(question.place, "has no instance, by which rows are put together")
        yield from _find_lost_overrides(panel)


def _list_values(panel: Panel) -> frozenset[str]:
    letters = [str(target.get("refId")) for target in panel.targets]
    return frozenset({"Value"} if len(letters) == 1 else {f"Value #{one}" for one in letters})


def _find_lost_overrides(panel: Panel) -> Faults:
    titles = set(panel.renamed.values())
    for override in panel.overrides:
        matcher = override["matcher"]
        if matcher["id"] == "byName" and matcher["options"] not in titles:
            yield Fault(panel.place, f"an override is for {matcher['options']}, which is no column")


def check_tooltips(view: View) -> Faults:
    """Check that a graph's tooltip shows all series, the largest first."""
    for _, panel in view.panels:
        tooltip = panel.options.get("tooltip") or {}
        if panel.kind == "timeseries" and {**tooltip, **_TOOLTIP} != tooltip:
            yield Fault(panel.place, f"its tooltip is {tooltip}")


def check_forms(view: View) -> Faults:
    """Check that tables use instant queries in table format, and that graphs use range queries."""
    for _, question in list_questions(view, "target"):
        kind = question.panel.kind if question.panel else ""
        is_instant, form = question.json.get("instant"), question.json.get("format")
        if kind == "table" and (is_instant, form) != (True, "table"):
            yield Fault(question.place, "a table's query is neither instant nor in a table's form")
        if kind in _OVER_TIME and is_instant:
            yield Fault(question.place, "a graph's query asks for the end of the range alone")
        if kind == "heatmap" and form != "heatmap":
            yield Fault(question.place, "a heatmap's query is not in the form of one")
