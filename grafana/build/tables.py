"""Tables with a row for each set of labels and a column for each query."""

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
    """A table column with the values of a query.

    Attributes:
        title: The header.
        expr: The query, grouped by the labels of the table's rows.
        unit: Grafana's name of the unit.
        steps: The values at which the colour changes; values are not coloured if empty.
        look: The cell type: `auto`, `color-text` or `gauge`.
        states: The states whose texts replace numbers.
        most: The maximum of a gauge.
        decimals: The number of decimals; None for Grafana's default.
        width: The width in pixels; 0 for a share of the remaining width.
        is_first: Whether the column comes before the labels.
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
    """A table column with the values of a label.

    Attributes:
        label: The name of the label.
        title: The header.
        link: The URL of the link; empty for no link.
        link_title: A description of the link.
        width: The width in pixels; 0 for a share of the remaining width.
        colours: The text colours by the label's value.
        texts: Texts that replace label values, such as values with a number for sorting.
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
    """Return a table of current values, with a row for each set of labels.

    Each query is grouped by the labels of `keys`, by which the results of all queries are joined.
    Rows are sorted by the column `sort_by` or by several columns, in order of precedence, and in
    descending order unless `is_sorted_up`. No column is narrower than its header. `hidden` labels
    distinguish rows but have no column, such as the UUIDs of devices that also have an index.
    """
    order = (sort_by,) if isinstance(sort_by, str) else sort_by
    queries = tuple(Query(fill(column.expr), is_instant=True, format="table") for column in columns)
    # The value column of a single query is named `Value`; with several queries, the name contains
    # the query's letter.
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
    # Labels are text: as numbers, the run `0013` would be shown as 13, and the process 40961 as
    # "41.0 K".
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
    """Return the property of a column's width, or of its minimum width if the width is 0."""
    if width:
        return {"id": "custom.width", "value": width}
    least = max(_LEAST_COLUMN, measure_column(title, is_sorted=is_sorted))
    return {"id": "custom.minWidth", "value": least}


def _write_key(key: Key, *, is_sorted: bool) -> Json:
    properties: list[Json] = [_write_width(key.title, key.width, is_sorted=is_sorted)]
    if key.link:
        link = {"targetBlank": False, "title": key.link_title, "url": key.link}
        properties.append({"id": "links", "value": [link]})
    else:  # a click on the icon shows the full text
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
    if column.states:  # the cells show texts, although their values are numbers
        properties.append({"id": "custom.align", "value": "left"})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
