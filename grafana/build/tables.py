"""Tables: a row for each set of labels, a column for each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from grafana.build.fields import (
    NOTHING_IS_GREY,
    SAY_NOTHING,
    Json,
    Steps,
    calm_states,
    calm_steps,
    write_defaults,
    write_mappings,
    write_steps,
)
from grafana.build.palette import CALM, CALM_BAND, COUNT, TEXT, UNKNOWN, State
from grafana.build.panels import About, Panel
from grafana.build.queries import Query, fill
from grafana.build.sizes import measure_column

_LEAST_COLUMN: Final = 70  # pixels


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a value that is asked for.

    Attributes:
        title: Its head.
        expr: The query, grouped by the labels of the table's rows.
        unit: Grafana's name of the unit.
        steps: Where its colour changes; nothing is coloured when empty.
        look: How a cell shows it: `auto`, `color-text` or `gauge`.
        states: The texts of its numbers.
        most: What fills a gauge.
        decimals: How many digits after the point.
        width: In pixels; 0 for its share of what is left.
        is_first: Whether it stands before the labels.
    """

    title: str
    expr: str
    unit: str = COUNT
    steps: Steps = ()
    look: str = "auto"
    states: tuple[State, ...] = ()
    most: float | None = None
    decimals: int | None = None
    width: int = 0
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A column of a table that is a label of its rows.

    Attributes:
        label: The label.
        title: The column's head.
        link: Where a click leads; empty for nowhere.
        link_title: What the click does.
        width: In pixels; 0 for its share of what is left.
        colours: The colours of its texts, by the label's value.
        texts: What is shown in place of such a value, as where values have a number to be sorted by.
    """

    label: str
    title: str
    link: str = ""
    link_title: str = ""
    width: int = 0
    colours: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


def table(
    title: str,
    about: About,
    *,
    keys: Sequence[Key],
    columns: Sequence[Column],
    empty: str,
    sort_by: str | Sequence[str] = (),
    is_sorted_up: bool = False,
    hidden: Sequence[str] = (),
    width: int = 24,
    height: int = 8,
) -> Panel:
    """Return a table of what is now: a row for each set of labels, a column for each query.

    Each query is grouped by the labels of `keys`, and the rows of all are put together by them. They
    are sorted by the column `sort_by`, or by several, the first of which counts most; the greatest
    come first unless `is_sorted_up`. No column is narrower than its head. Labels that are `hidden`
    tell rows apart and have no column, as UUIDs of devices that have an index.
    """
    order = (sort_by,) if isinstance(sort_by, str) else sort_by
    queries = tuple(Query(fill(column.expr), is_instant=True, format="table") for column in columns)
    # One answer calls its column `Value`, several call theirs by the query.
    values = [f"Value #{chr(ord('A') + at)}" for at in range(len(columns))]
    if len(columns) == 1:
        values = ["Value"]
    titles = dict(zip(values, columns, strict=True))
    names = {value: column.title for value, column in titles.items() if column.is_first}
    names |= {key.label: key.title for key in keys}
    names |= {value: column.title for value, column in titles.items()}
    transformations: list[Json] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": dict.fromkeys(("Time", *hidden), True),
                "includeByName": {},
                "indexByName": {name: at for at, name in enumerate(names)},
                "renameByName": names,
            },
        },
    ]
    overrides = [SAY_NOTHING]
    overrides += [_write_key(key, is_sorted=key.title in order) for key in keys]
    overrides += [_write_column(column, is_sorted=column.title in order) for column in columns]
    # A label is a text: as a number, the run `0013` would be 13 and the process 40961 "41.0 K".
    defaults = write_defaults(TEXT, ((None, UNKNOWN),), (), empty)
    defaults["custom"] = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": False,
        "minWidth": _LEAST_COLUMN,
    }
    options: Json = {"cellHeight": "sm", "showHeader": True}
    if order:
        options["sortBy"] = [{"desc": not is_sorted_up, "displayName": title} for title in order]
    return Panel(
        "table",
        title,
        about,
        queries,
        width,
        height,
        defaults,
        options,
        tuple(overrides),
        tuple(transformations),
    )


def _write_width(title: str, width: int, *, is_sorted: bool) -> Json:
    """Return the property of a column's width, or of the least that it has when it takes its share."""
    if width:
        return {"id": "custom.width", "value": width}
    least = max(_LEAST_COLUMN, measure_column(title, is_sorted=is_sorted))
    return {"id": "custom.minWidth", "value": least}


def _write_key(key: Key, *, is_sorted: bool) -> Json:
    properties: list[Json] = [_write_width(key.title, key.width, is_sorted=is_sorted)]
    if key.link:
        link = {"targetBlank": False, "title": key.link_title, "url": key.link}
        properties.append({"id": "links", "value": [link]})
    else:  # a click on its icon shows the whole of a text that is cut
        properties.append({"id": "custom.inspect", "value": True})
    if key.colours:
        options = {
            value: {"color": colour, "index": at, "text": key.texts.get(value, value)}
            for at, (value, colour) in enumerate(key.colours.items())
        }
        properties += [
            {"id": "mappings", "value": [{"options": options, "type": "value"}]},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    return {"matcher": {"id": "byName", "options": key.title}, "properties": properties}


def _write_column(column: Column, *, is_sorted: bool) -> Json:
    is_word = column.look == "color-text"
    properties: list[Json] = [
        {"id": "unit", "value": column.unit},
        _write_width(column.title, column.width, is_sorted=is_sorted),
    ]
    if column.steps:
        steps = calm_steps(column.steps, CALM if is_word else CALM_BAND)
        properties.append({"id": "thresholds", "value": write_steps(steps)})
    states = calm_states(column.states) if is_word else column.states
    mappings = write_mappings(states)
    if column.look != "auto":
        mappings.append(NOTHING_IS_GREY)
    if mappings:
        properties.append({"id": "mappings", "value": mappings})
    if column.look != "auto":
        cell: Json = {"type": column.look}
        if column.look == "gauge":
            cell |= {"mode": "basic", "valueDisplayMode": "text"}
            properties += [
                {"id": "min", "value": 0},
                {"id": "max", "value": 1 if column.most is None else column.most},
            ]
        properties.append({"id": "custom.cellOptions", "value": cell})
    if column.decimals is not None:
        properties.append({"id": "decimals", "value": column.decimals})
    if column.states:  # words, though they are numbers to Grafana
        properties.append({"id": "custom.align", "value": "left"})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
