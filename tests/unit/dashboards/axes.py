"""Checks of the limits of axes, so that a curve is neither flattened nor cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from promql_parser import BinaryExpr

from tests.support.promql import Node, children
from tests.support.rulebook import read_names
from tests.unit.dashboards.boards import Json, Panel
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import parse

Faults = Iterator[Fault]

# The smallest relevant values by unit. For example, a request to a fast disk takes 50 us, and a
# schedule ends with a learning rate of 1e-9.
_LEAST_SEEN: Mapping[str, float] = MappingProxyType(
    {
        "bytes": 16 * 1024,
        "Bps": 100,
        "celsius": 20,
        "hertz": 1e8,
        "joule": 100,
        "locale": 10,
        "percentunit": 0.01,
        "s": 2e-5,
        "sci": 1e-9,
        "watt": 5,
    }
)
_LEAST_OF_OTHERS = 0.01  # epochs per hour, cores, requests, samples and tokens per second
_TENTH = 0.1
# Names of metrics that denote a whole, by which its parts are divided.
_WHOLE = re.compile(r"(size|limit|total|max|expected)(:bytes|_bytes)?$|_(total|sum|up)$|^ALERTS$")


def check_ratios(view: View) -> Faults:
    """Check that a ratio's axis runs from 0 to 1, with a soft end if the ratio may exceed 1."""
    for _, panel in view.panels:
        custom = panel.defaults.get("custom") or {}
        most = panel.defaults.get("max", custom.get("axisSoftMax"))
        ends = (panel.defaults.get("min"), most)
        is_ratio = panel.defaults.get("unit") == "percentunit"
        if panel.kind == "timeseries" and is_ratio and ends != (0, 1):
            yield Fault(panel.place, f"a ratio is drawn from {ends[0]} to {ends[1]}")


def check_soft_axes(view: View) -> Faults:
    """Check that an axis from 0 has a soft end; Grafana ends it at 100 if all values are 0."""
    for _, panel in view.panels:
        custom = panel.defaults.get("custom") or {}
        is_linear = custom.get("scaleDistribution", {}).get("type") == "linear"
        is_open = panel.defaults.get("min") == 0 and panel.defaults.get("max") is None
        if panel.kind == "timeseries" and is_linear and is_open and not custom.get("axisSoftMax"):
            yield Fault(panel.place, "its axis ends at 100 while all values are 0")


def check_soft_ends(view: View) -> Faults:
    """Check that a soft end is at most a tenth of the smallest relevant value of the unit.

    A higher soft end would flatten small values. Axes with a line that marks an alert are exempt.
    """
    for _, panel in view.panels:
        if panel.kind != "timeseries":
            continue
        for unit, end in _list_soft_ends(panel):
            is_count = unit == "short" and panel.defaults.get("decimals") == 0
            least = 10 if is_count else _LEAST_SEEN.get(unit, _LEAST_OF_OTHERS)
            is_share = unit == "percentunit" and end == 1
            if end > _TENTH * least and not is_share:
                yield Fault(panel.place, f"flattens {unit} below its soft end at {end:g}")


def _list_soft_ends(panel: Panel) -> Iterator[tuple[str, float]]:
    """Yield the unit and the soft end of each axis without threshold lines."""
    custom = panel.defaults.get("custom") or {}
    has_lines = custom.get("thresholdsStyle", {}).get("mode") != "off"
    end = custom.get("axisSoftMax")
    if end is not None and not has_lines:
        yield str(panel.defaults.get("unit")), float(end)
    for override in panel.overrides:
        changed: Json = {one["id"]: one["value"] for one in override["properties"]}
        own = changed.get("custom.axisSoftMax", end)
        if "unit" in changed and own is not None:
            yield str(changed["unit"]), float(own)


def check_hard_ends(view: View) -> Faults:
    """Check that only the axes of ratios to a whole have a hard end, because they are at most 1."""
    for board, panel in view.panels:
        if panel.kind != "timeseries" or panel.defaults.get("max") is None:
            continue
        if panel.defaults.get("unit") != "percentunit":
            yield Fault(panel.place, f"cuts {panel.defaults.get('unit')} at the top")
        for question in (one for one in board.questions if one.panel is panel):
            node = parse(question, board)
            for divisor in _list_divisors(node) if node is not None else ():
                others = sorted(name for name in read_names(divisor) if not _WHOLE.search(name))
                if others:
                    yield Fault(question.place, f"may exceed 1, a multiple of {', '.join(others)}")


def _list_divisors(node: Node) -> Iterator[Node]:
    if isinstance(node, BinaryExpr) and str(node.op) == "/":
        yield children(node)[1]
    for child in children(node):
        yield from _list_divisors(child)
