"""Checks that follow from Grafana's rendering, as observed and as found in its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from grafana.build.palette import CRITICAL, OK, WARNING
from grafana.build.sizes import measure_text
from tests.unit.dashboards.boards import Json, Panel, Place
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.series import count_lines

Faults = Iterator[Fault]

_JUDGEMENTS = frozenset({OK, WARNING, CRITICAL})
_JUDGES, _JUDGING = ("stat", "state-timeline"), ("color-text", "gauge")
_PLAIN = ("auto", None)
_TEXT_MODES = ("value", "value_and_name")
_RANKS = {CRITICAL: 0, WARNING: 1}
_UUID = measure_text("GPU-f91d317e-585c-556d-9a0b-0123456789ab")
_ALL_DIGITS = ("sci",)
# A legend that names a label, other than `when`, which is the same for all stats.
_NAMES_A_THING = re.compile(r"\{\{(?!when\b)\w+\}\}")


def find_property(panel: Panel, column: str, path: str) -> Any:
    """Return a property of a column: its last override, or else the default, or else None."""
    found: Any = panel.defaults
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    for override in panel.overrides:
        if _is_for(override["matcher"], column):
            for one in override["properties"]:
                found = one["value"] if one["id"] == path else found
    return found


def _is_for(matcher: Json, column: str) -> bool:
    if matcher["id"] == "byRegexp":
        pattern = str(matcher["options"])
        return bool(re.search(pattern[1:-1] if pattern.startswith("/") else pattern, column))
    return matcher == {"id": "byName", "options": column}


def list_columns(panel: Panel) -> Iterator[tuple[str, bool]]:
    """Yield the title of each column of a table, and whether the column is a value."""
    for field, title in panel.renamed.items():
        yield title, field == "Value" or field.startswith("Value #")


def check_timelines(view: View) -> Faults:
    """Check that a state timeline takes its colours from mappings, with the fixed colour mode.

    With thresholds as colour mode, Grafana merges values by threshold and ignores mappings. Each
    band then has one colour and the name of a range as its text.
    """
    for _, panel in view.panels:
        mode = (panel.defaults.get("color") or {}).get("mode")
        if panel.kind == "state-timeline" and mode != "fixed":
            yield Fault(panel.place, f"colours its states by {mode}")


def check_nothing(view: View) -> Faults:
    """Check that unknown states have no text on a timeline, because it would be in the legend."""
    for _, panel in view.panels:
        for mapping in panel.defaults.get("mappings") or ():
            text = (mapping.get("options", {}).get("result") or {}).get("text")
            if panel.kind == "state-timeline" and mapping.get("type") == "special" and text:
                yield Fault(panel.place, f"has {text!r} in its legend, for what is not known")


def check_reach(view: View) -> Faults:
    """Check that the text for missing data applies to no cell, link, axis or legend."""
    for _, panel in view.panels:
        columns = [title for title, _ in list_columns(panel)] or ["any"]
        said = {title: find_property(panel, title, "noValue") for title in columns}
        for title in [title for title, text in said.items() if text]:
            if panel.kind != "stat":  # a stat shows the text in place of its only value
                yield Fault(panel.place, f"writes {said[title]!r} where {title} has no value")


def check_label_units(view: View) -> Faults:
    """Check that only columns of labels are texts; as a number, 0013 would be 13, and 1e3 1 K."""
    for _, panel in view.panels:
        for title, is_value in list_columns(panel):
            unit = find_property(panel, title, "unit")
            if not is_value and unit != "string":
                yield Fault(panel.place, f"reads column {title} as a number: unit {unit}")
            if is_value and unit == "string":
                yield Fault(panel.place, f"writes column {title} with all digits, as a text")


def check_unknown(view: View) -> Faults:
    """Check that coloured values have a mapping with a neutral colour for an unknown value."""
    for _, panel in view.panels:
        titles = [title for title, is_value in list_columns(panel) if is_value]
        for title in titles if panel.kind == "table" else [""]:
            if not _is_coloured(panel, title):
                continue
            colour = _find_null_colour(find_property(panel, title, "mappings") or [])
            if colour is None or colour in _JUDGEMENTS:
                of = f" of {title}" if title else ""
                yield Fault(panel.place, f"nothing is {colour or 'coloured by the first step'}{of}")


def _is_coloured(panel: Panel, title: str) -> bool:
    if panel.kind == "table":
        return _get_look(panel, title) not in _PLAIN
    return panel.kind == "stat"


def _find_null_colour(mappings: list[Json]) -> str | None:
    specials = [one["options"] for one in mappings if one.get("type") == "special"]
    for options in specials:
        if str(options.get("match")).startswith("null"):
            return str(options["result"].get("color"))
    return None


def check_variable_targets(view: View) -> Faults:
    """Check that a variable's query has a refId, which Grafana 9 and 10 may require."""
    for board in view.boards:
        for variable in (one for one in board.variables if one.get("type") == "query"):
            if not (variable.get("query") or {}).get("refId"):
                place = Place(board.title, "variable", str(variable.get("name")))
                yield Fault(place, "its query has no refId")


def check_fills(view: View) -> Faults:
    """Check that areas are filled only under a single line, in stacked areas, or in bars."""
    for _, panel in view.panels:
        custom = panel.defaults.get("custom") or {}
        is_area = custom.get("drawStyle") == "bars" or custom.get("lineWidth") == 0
        if panel.kind == "timeseries" and custom.get("fillOpacity") and not is_area:
            count = count_lines(panel)
            if count > 1:
                yield Fault(panel.place, f"fills the areas under {count} lines")


def check_figures(view: View) -> Faults:
    """Check that a stat shows a coloured value on a plain ground, and a name only for a label."""
    for _, panel in view.panels:
        if panel.kind != "stat":
            continue
        modes = (panel.options.get("colorMode"), panel.options.get("graphMode"))
        if modes != ("value", "none"):
            yield Fault(panel.place, f"colours its {modes[0]}, with {modes[1]} behind the text")
        text_mode = panel.options.get("textMode")
        names = [str(target.get("legendFormat")) for target in panel.targets]
        if text_mode not in _TEXT_MODES:
            yield Fault(panel.place, f"shows {text_mode}: a name or none, by how many there are")
        elif text_mode != "value" and not all(_NAMES_A_THING.search(name) for name in names):
            yield Fault(panel.place, f"shows {', '.join(names)} above its value")


def check_calm(view: View) -> Faults:
    """Check that values in order are not coloured, so that faults are visible at once."""
    for _, panel in view.panels:
        titles = [title for title, _ in list_columns(panel)] if panel.kind == "table" else [""]
        for title in titles:
            if panel.kind in _JUDGES or _get_look(panel, title) in _JUDGING:
                of = f" of {title}" if title else ""
                if OK in _list_colours(panel, title):
                    yield Fault(panel.place, f"is {OK} where nothing is wrong{of}")


def _get_look(panel: Panel, title: str) -> object:
    look = find_property(panel, title, "custom.cellOptions")
    return look.get("type") if isinstance(look, dict) else None


def _list_colours(panel: Panel, title: str) -> Iterator[object]:
    steps = find_property(panel, title, "thresholds.steps")
    own = find_property(panel, title, "thresholds")
    steps = own.get("steps") if isinstance(own, dict) else steps
    yield from (one.get("color") for one in steps or ())
    for options in _list_shown(panel, title).values():
        yield options.get("color")


def _list_shown(panel: Panel, title: str) -> dict[str, Json]:
    mappings = find_property(panel, title, "mappings")
    values = [one for one in mappings or () if one.get("type") == "value"]
    return {value: shown for one in values for value, shown in one["options"].items()}


def check_order(view: View) -> Faults:
    """Check that a table sorted by a coloured column shows red before orange before others.

    A table must be sorted by an existing column, and by a label only if its texts are ranked.
    """
    for _, panel in view.panels:
        columns = dict(list_columns(panel))
        for by in panel.options.get("sortBy") or () if panel.kind == "table" else ():
            title = str(by.get("displayName"))
            shown = _list_shown(panel, title)
            if title not in columns:
                yield Fault(panel.place, f"is sorted by {title}, which is no column")
            elif not columns[title] and not shown:
                yield Fault(panel.place, f"is sorted by the words of {title}")
            is_number = all(_is_number(value) for value in shown)
            order = sorted(shown, key=float if is_number else str, reverse=bool(by.get("desc")))
            ranks = [_RANKS.get(str(shown[value].get("color")), len(_RANKS)) for value in order]
            if ranks != sorted(ranks):
                texts = [str(shown[value].get("text", value)) for value in order]
                yield Fault(panel.place, f"is sorted by word or chance: {', '.join(texts)}")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def check_digits(view: View) -> Faults:
    """Check that a unit which Grafana would write with all digits has a number of decimals."""
    for _, panel in view.panels:
        for title in [title for title, _ in list_columns(panel)] or [""]:
            unit = find_property(panel, title, "unit")
            if unit in _ALL_DIGITS and find_property(panel, title, "decimals") is None:
                yield Fault(panel.place, f"writes {unit} with all digits")


def check_texts(view: View) -> Faults:
    """Check that a label's full text is visible, a UUID directly and other texts on a click."""
    for _, panel in view.panels:
        for field, title in panel.renamed.items() if panel.kind == "table" else ():
            width = find_property(panel, title, "custom.width") or 0
            if field == "uuid" and width < _UUID:
                yield Fault(panel.place, f"cuts {title} in the middle")
            is_label = field not in ("Value", "Time") and not field.startswith("Value #")
            can_be_opened = find_property(panel, title, "custom.inspect")
            if is_label and not (can_be_opened or find_property(panel, title, "links")):
                yield Fault(panel.place, f"has no way to the whole of {title}")
