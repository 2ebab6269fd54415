"""Panels: a function for each kind, with the house's look.

Every panel says three things under its title: what it shows, what is normal, what to do when it is
not; then which alerts it is the home of and which metrics it asks. A panel that finds nothing says
why. Whatever a function here takes in `defaults`, `options` or `overrides` is Grafana's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from grafana.build.palette import COUNT, OK, SERIES, UNKNOWN, State
from grafana.build.queries import Query, fill, find_metrics

Json = dict[str, Any]
Steps = Sequence[tuple[float | None, str]]

DATASOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${datasource}"}

# What Grafana heads a legend's column with, by calculation.
_COLUMNS: Final[Mapping[str, str]] = {"lastNotNull": "Last *", "max": "Max", "sum": "Total"}
_TOOLTIP: Final[Json] = {"mode": "multi", "sort": "desc", "hideZeros": False}
# Without this Grafana gives a value that is not there the colour of the lowest step: green.
_NOTHING_IS_GREY: Final[Json] = {
    "options": {"match": "null", "result": {"color": UNKNOWN, "index": 99}},
    "type": "special",
}
_NO_LEGEND: Final[Json] = {
    "calcs": [],
    "displayMode": "list",
    "placement": "bottom",
    "showLegend": False,
}


@dataclass(frozen=True, slots=True)
class About:
    """What stands under a panel's title.

    Attributes:
        shows: What it shows.
        normal: What is normal.
        act: What to do when it is not.
        alerts: The alerts whose expression it shows.
    """

    shows: str
    normal: str
    act: str
    alerts: tuple[str, ...] = ()

    def write(self, metrics: Sequence[str]) -> str:
        """Write it for a board: a paragraph each, the metrics last."""
        lines = [self.shows, f"Normal: {self.normal}", f"If not: {self.act}"]
        if self.alerts:
            lines.append(f"Alerts: {', '.join(self.alerts)}")
        lines.append(f"Metrics: {', '.join(f'`{metric}`' for metric in metrics)}")
        return "\n\n".join(lines)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel that has no place yet.

    Attributes:
        kind: Grafana's name of the panel's type.
        title: Its title; with its row, how people and tests name it.
        about: What stands under its title.
        queries: What it asks.
        width: In columns; a board has 24.
        height: In units of 30 pixels.
        defaults: Of all fields: unit, thresholds, what is shown where there is nothing.
        overrides: Of single fields.
        options: Of the kind of panel.
        transformations: What is done with the answers, one after the other.
        extra: Other fields of the panel's JSON, as `interval`.
    """

    kind: str
    title: str
    about: About
    queries: tuple[Query, ...]
    width: int
    height: int
    defaults: Json
    options: Json
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    extra: Json = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it asks, each once."""
        named = (metric for query in self.queries for metric in find_metrics(query.expr))
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a value that is asked for.

    Attributes:
        title: Its head.
        expr: The query, grouped by the labels of the table's rows.
        unit: Grafana's name of the unit.
        steps: Where its colour changes; nothing is coloured when empty.
        look: How a cell shows it: `auto`, `color-text`, `color-background` or `gauge`.
        states: The texts of its numbers.
        most: What fills a gauge.
        decimals: How many digits after the point.
        width: In pixels; 0 for its share of what is left.
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


@dataclass(frozen=True, slots=True)
class Key:
    """A column of a table that is a label of its rows.

    Attributes:
        label: The label.
        title: The column's head.
        link: Where a click leads; empty for nowhere.
        link_title: What the click does.
        width: In pixels; 0 for its share of what is left.
        colours: The colours of its texts.
    """

    label: str
    title: str
    link: str = ""
    link_title: str = ""
    width: int = 0
    colours: Mapping[str, str] = field(default_factory=dict)


def stat(
    title: str,
    about: About,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = ((None, OK),),
    states: Sequence[State] = (),
    empty: str,
    width: int = 3,
    height: int = 4,
    has_graph: bool = False,
    decimals: int | None = None,
    link: Json | None = None,
    text_mode: str = "auto",
) -> Panel:
    """Make a panel of one large value; its colour is that of the step it is on."""
    defaults = _write_defaults(unit, steps, states, empty, decimals=decimals)
    defaults["color"] = {"mode": "thresholds"}
    defaults["mappings"] = [*defaults["mappings"], _NOTHING_IS_GREY]
    options = {
        "colorMode": "background" if len(steps) > 1 or states else "value",
        "graphMode": "area" if has_graph else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": text_mode,
        "wideLayout": True,
    }
    extra = {} if link is None else {"links": [link]}
    return Panel("stat", title, about, queries, width, height, defaults, options, extra=extra)


def timeseries(
    title: str,
    about: About,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = (),
    empty: str,
    width: int = 8,
    height: int = 8,
    least: float | None = None,
    most: float | None = None,
    is_stacked: bool = False,
    is_logarithmic: bool = False,
    is_bars: bool = False,
    calcs: Sequence[str] = ("lastNotNull", "mean", "max"),
    overrides: Sequence[Json] = (),
    decimals: int | None = None,
    link: Json | None = None,
) -> Panel:
    """Make a graph over time with a table of its figures as legend.

    Where `steps` are given, each but the first is drawn as a dashed line. Bars count things, so they
    have no digits after the point, though `increase` does.
    """
    if is_bars and unit == COUNT and decimals is None:
        decimals = 0
    defaults = _write_defaults(unit, steps or ((None, OK),), (), empty, decimals=decimals)
    defaults["color"] = {"mode": "palette-classic-by-name"}
    defaults["custom"] = _write_line(
        is_stacked=is_stacked,
        is_logarithmic=is_logarithmic,
        is_bars=is_bars,
        has_steps=bool(steps),
    )
    defaults |= {} if least is None else {"min": least}
    defaults |= {} if most is None else {"max": most}
    defaults |= {} if link is None else {"links": [link]}
    options = {
        "legend": {
            "calcs": list(calcs),
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "sortBy": _COLUMNS[calcs[0]],
            "sortDesc": True,
        },
        "tooltip": _TOOLTIP,
    }
    return Panel(
        "timeseries", title, about, queries, width, height, defaults, options, tuple(overrides)
    )


def state_timeline(
    title: str,
    about: About,
    *queries: Query,
    states: Sequence[State],
    empty: str,
    width: int = 24,
    height: int = 6,
    link: Json | None = None,
) -> Panel:
    """Make a band for each object that shows the states which it was in."""
    defaults = _write_defaults(COUNT, ((None, OK),), states, empty)
    defaults["color"] = {"mode": "thresholds"}
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    defaults |= {} if link is None else {"links": [link]}
    options = {
        "alignValue": "left",
        "legend": {**_NO_LEGEND, "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel("state-timeline", title, about, queries, width, height, defaults, options)


def table(
    title: str,
    about: About,
    *,
    keys: Sequence[Key],
    columns: Sequence[Column],
    empty: str,
    sort_by: str = "",
    is_sorted_up: bool = False,
    width: int = 24,
    height: int = 8,
) -> Panel:
    """Make a table of what is now: a row for each set of labels, a column for each query.

    Each query is grouped by the labels of `keys`, and the rows of all are put together by them.
    """
    queries = tuple(Query(fill(column.expr), is_instant=True, format="table") for column in columns)
    # One answer calls its column `Value`, several call theirs by the query.
    values = [f"Value #{chr(ord('A') + at)}" for at in range(len(columns))]
    if len(columns) == 1:
        values = ["Value"]
    names = {key.label: key.title for key in keys}
    names |= {value: column.title for value, column in zip(values, columns, strict=True)}
    transformations: list[Json] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "includeByName": {},
                "indexByName": {name: at for at, name in enumerate(names)},
                "renameByName": names,
            },
        },
    ]
    overrides = [_write_key(key) for key in keys if key.link or key.width or key.colours]
    overrides += [_write_column(column) for column in columns]
    defaults = _write_defaults(COUNT, ((None, OK),), (), empty)
    defaults["custom"] = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": False,
        "minWidth": 70,
    }
    options: Json = {"cellHeight": "sm", "showHeader": True}
    if sort_by:
        options["sortBy"] = [{"desc": not is_sorted_up, "displayName": sort_by}]
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


def bar_gauge(
    title: str,
    about: About,
    *queries: Query,
    unit: str,
    steps: Steps,
    empty: str,
    most: float = 1.0,
    width: int = 8,
    height: int = 8,
) -> Panel:
    """Make a bar for each object that shows how full it is."""
    defaults = _write_defaults(unit, steps, (), empty)
    defaults |= {"color": {"mode": "thresholds"}, "min": 0, "max": most}
    options = {
        "displayMode": "basic",
        "legend": _NO_LEGEND,
        "maxVizHeight": 300,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    return Panel("bargauge", title, about, queries, width, height, defaults, options)


def heatmap(
    title: str,
    about: About,
    query: Query,
    *,
    unit: str,
    empty: str,
    width: int = 8,
    height: int = 8,
) -> Panel:
    """Make a picture of how values are spread over time, from buckets."""
    defaults: Json = {
        "custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}},
        "noValue": empty,
        "unit": COUNT,
    }
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": COUNT},
        "color": {
            "exponent": 0.5,
            "fill": "dark-orange",
            "mode": "scheme",
            "reverse": False,
            "scale": "exponential",
            "scheme": "Viridis",
            "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    return Panel("heatmap", title, about, (query,), width, height, defaults, options)


def colour_series(pattern: str, colour: str) -> Json:
    """Give the series whose name fits a pattern, without slashes, a colour."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/{pattern}/"},
        "properties": [{"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}}],
    }


def colour_devices() -> tuple[Json, ...]:
    """Give the devices 0 to 7 the same colours on every board: series named `gpu 0`, `hpu 1`."""
    return tuple(colour_series(rf"[gh]pu {at}\b", colour) for at, colour in enumerate(SERIES))


def dash_series(pattern: str, colour: str) -> Json:
    """Draw the series whose name fits a pattern as a dashed line: a limit, not a reading."""
    drawn = colour_series(pattern, colour)
    line = {"dash": [8, 8], "fill": "dash"}
    more = [
        {"id": "custom.lineStyle", "value": line},
        {"id": "custom.fillOpacity", "value": 0},
    ]
    return {**drawn, "properties": [*drawn["properties"], *more]}


def put_right(name: str, unit: str) -> Json:
    """Give a series an axis of its own on the right."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": "custom.axisPlacement", "value": "right"},
            {"id": "unit", "value": unit},
        ],
    }


def _write_defaults(
    unit: str,
    steps: Steps,
    states: Sequence[State],
    empty: str,
    *,
    decimals: int | None = None,
) -> Json:
    defaults: Json = {
        "mappings": _write_mappings(states),
        "noValue": empty,
        "thresholds": _write_steps(steps),
        "unit": unit,
    }
    return defaults if decimals is None else {**defaults, "decimals": decimals}


def _write_steps(steps: Steps) -> Json:
    written = [{"color": colour, "value": value} for value, colour in steps]
    return {"mode": "absolute", "steps": written}


def _write_mappings(states: Sequence[State]) -> list[Json]:
    if not states:
        return []
    options = {
        str(state.number): {"color": state.colour, "index": at, "text": state.text}
        for at, state in enumerate(states)
    }
    return [{"options": options, "type": "value"}]


def _write_line(*, is_stacked: bool, is_logarithmic: bool, is_bars: bool, has_steps: bool) -> Json:
    scale: Json = {"type": "log", "log": 10} if is_logarithmic else {"type": "linear"}
    return {
        "axisPlacement": "auto",
        "drawStyle": "bars" if is_bars else "line",
        "fillOpacity": 60 if is_stacked or is_bars else 8,
        "gradientMode": "none",
        "lineInterpolation": "linear",
        "lineWidth": 0 if is_stacked else 1,
        "scaleDistribution": scale,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if is_stacked else "none"},
        "thresholdsStyle": {"mode": "dashed" if has_steps else "off"},
    }


def _write_key(key: Key) -> Json:
    properties: list[Json] = []
    if key.link:
        link = {"targetBlank": False, "title": key.link_title, "url": key.link}
        properties.append({"id": "links", "value": [link]})
    if key.width:
        properties.append({"id": "custom.width", "value": key.width})
    if key.colours:
        options = {
            text: {"color": colour, "index": at}
            for at, (text, colour) in enumerate(key.colours.items())
        }
        properties += [
            {"id": "mappings", "value": [{"options": options, "type": "value"}]},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    return {"matcher": {"id": "byName", "options": key.title}, "properties": properties}


def _write_column(column: Column) -> Json:
    properties: list[Json] = [{"id": "unit", "value": column.unit}]
    if column.steps:
        properties.append({"id": "thresholds", "value": _write_steps(column.steps)})
    if column.states:
        properties.append({"id": "mappings", "value": _write_mappings(column.states)})
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
    if column.width:
        properties.append({"id": "custom.width", "value": column.width})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
