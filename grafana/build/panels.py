"""Panels: a function for each kind, with the house's look.

Every panel has three things under its title: what it shows, what is normal, what to do when it is
not; then which alerts it is the home of and which metrics it asks. A panel without data shows
why. Whatever a function here takes in `defaults`, `options` or `overrides` is Grafana's JSON.
"""

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
)
from grafana.build.palette import (
    BYTES,
    BYTES_PER_SECOND,
    CALM,
    CALM_BAND,
    CELSIUS,
    COUNT,
    HERTZ,
    JOULES,
    OK,
    RATIO,
    SCIENTIFIC,
    SECONDS,
    SERIES,
    UNKNOWN,
    WATTS,
    WHOLE,
    State,
)
from grafana.build.queries import Query, count_series, find_metrics
from grafana.build.sizes import count_legend_rows

DATASOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${datasource}"}

# What Grafana heads a legend's column with, by calculation.
_COLUMNS: Final[Mapping[str, str]] = {"lastNotNull": "Last *", "max": "Max", "sum": "Total"}
_TOOLTIP: Final[Json] = {"mode": "multi", "sort": "desc"}
# Of units that Grafana writes with all their digits otherwise.
_DECIMALS: Final[Mapping[str, int]] = {SCIENTIFIC: 2}
# Where an axis ends while all values are 0; Grafana's own choice is 100, 10,000 % for a ratio. It is
# below whatever is worth a look, for an axis that ends above its values flattens them.
_SOFT_MOST: Final[Mapping[str, float]] = {
    BYTES: 1024,
    BYTES_PER_SECOND: 10,
    CELSIUS: 1,
    HERTZ: 1e6,
    JOULES: 1,
    RATIO: 0.001,
    SCIENTIFIC: 1e-12,
    SECONDS: 1e-6,
    WATTS: 0.1,
    WHOLE: 1,
}
_OTHERS_MOST: Final = 0.001
# Panels of fewer columns have no room for a legend beside the graph, or for one value in it.
_BESIDE, _ALL_VALUES = 8, 12
_NO_LEGEND: Final[Json] = {
    "calcs": [],
    "displayMode": "list",
    "placement": "bottom",
    "showLegend": False,
}


@dataclass(frozen=True, slots=True)
class About:
    """The text under a panel's title.

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
        about: The text under its title.
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


def stat(
    title: str,
    about: About,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = ((None, OK),),
    states: Sequence[State] = (),
    empty: str,
    width: int = 4,
    height: int = 3,
    decimals: int | None = None,
    link: Json | None = None,
    text_mode: str = "value",
) -> Panel:
    """Return a panel of one large value, in the colour of its step or state if that is not OK.

    Its query returns one series. With `value_and_name` as text mode the series' name is above it.
    """
    steps, states = calm_steps(steps), calm_states(states)
    defaults = write_defaults(unit, steps, states, empty, decimals=decimals)
    defaults["color"] = {"mode": "thresholds"}
    defaults["mappings"] = [*defaults["mappings"], NOTHING_IS_GREY]
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
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
    is_open: bool = False,
    calcs: Sequence[str] = (),
    overrides: Sequence[Json] = (),
    decimals: int | None = None,
    link: Json | None = None,
) -> Panel:
    """Return a graph over time with a legend of all its series, as a table where there is room.

    The axis ends at `most`, and later for greater values if it `is_open`: what is no part of a whole.
    Where `steps` are given, each but the first is drawn as a dashed line. Bars show how much
    something rose in each step (see `queries.find_rise`), and their legend the sum; without `calcs`,
    that of lines has the last value, the mean and the maximum.
    """
    count = count_series(queries)
    if decimals is None:
        decimals = 0 if is_bars and unit == COUNT else _DECIMALS.get(unit)
    defaults = write_defaults(unit, steps or ((None, OK),), (), empty, decimals=decimals)
    defaults["color"] = {"mode": "palette-classic-by-name"}
    defaults["custom"] = _write_line(
        is_stacked=is_stacked,
        is_logarithmic=is_logarithmic,
        is_bars=is_bars,
        has_steps=bool(steps),
        is_alone=count == 1,
    )
    if is_open:
        defaults["custom"]["axisSoftMax"] = most
    elif least == 0 and most is None and not is_logarithmic:
        defaults["custom"]["axisSoftMax"] = _find_soft_most(unit, steps, decimals)
    defaults |= {} if least is None else {"min": least}
    defaults |= {} if most is None or is_open else {"max": most}
    defaults |= {} if link is None else {"links": [link]}
    calcs = calcs or (("sum",) if is_bars else ("lastNotNull", "mean", "max"))
    options = {"legend": _write_legend(calcs, count, width, height), "tooltip": _TOOLTIP}
    fields = (SAY_NOTHING, *overrides)
    return Panel("timeseries", title, about, queries, width, height, defaults, options, fields)


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
    """Return a band for each object that shows the states which it was in.

    With a colour mode that looks at thresholds, Grafana merges values by threshold and never reads
    the mappings: every state would have one colour and one text.
    """
    defaults = write_defaults(COUNT, ((None, CALM),), calm_states(states, CALM_BAND), empty)
    defaults["color"] = {"fixedColor": UNKNOWN, "mode": "fixed"}
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
    fields = (SAY_NOTHING,)
    return Panel("state-timeline", title, about, queries, width, height, defaults, options, fields)


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
    """Return a picture of how values are spread over time, from buckets."""
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
    fields = (SAY_NOTHING,)
    return Panel("heatmap", title, about, (query,), width, height, defaults, options, fields)


def colour_series(pattern: str, colour: str) -> Json:
    """Return the series whose name fits a pattern, without slashes, a colour."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/{pattern}/"},
        "properties": [{"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}}],
    }


def colour_devices() -> tuple[Json, ...]:
    """Return the devices 0 to 7 the same colours on every board: series named `gpu 0`, `hpu 1`."""
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
    """Return a series an axis of its own on the right."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": "custom.axisPlacement", "value": "right"},
            {"id": "custom.axisSoftMax", "value": _find_soft_most(unit)},
            {"id": "unit", "value": unit},
        ],
    }


def _find_soft_most(unit: str, steps: Steps = (), decimals: int | None = None) -> float:
    """Return where an axis ends unless values are greater: above all dashed lines, else near 0."""
    lines = [value for value, _ in steps if value is not None]
    if lines:
        return 1.2 * max(lines)
    return 1 if unit == COUNT and decimals == 0 else _SOFT_MOST.get(unit, _OTHERS_MOST)


def _write_legend(calcs: Sequence[str], count: int, width: int, height: int) -> Json:
    """Return a legend that shows all series: below, beside, or as a list of names alone."""
    if count <= count_legend_rows(height, is_beside=False):
        shown, placement = calcs, "bottom"
    elif width >= _BESIDE:
        shown, placement = calcs if width >= _ALL_VALUES else calcs[:1], "right"
    else:
        return {**_NO_LEGEND, "showLegend": True}
    return {
        "calcs": list(shown),
        "displayMode": "table",
        "placement": placement,
        "showLegend": True,
        "sortBy": _COLUMNS[shown[0]],
        "sortDesc": True,
    }


def _write_line(
    *, is_stacked: bool, is_logarithmic: bool, is_bars: bool, has_steps: bool, is_alone: bool
) -> Json:
    scale: Json = {"type": "log", "log": 10} if is_logarithmic else {"type": "linear"}
    return {
        "axisPlacement": "auto",
        "drawStyle": "bars" if is_bars else "line",
        # Overlapping areas would be hard to distinguish.
        "fillOpacity": 60 if is_stacked or is_bars else 8 * is_alone,
        "gradientMode": "none",
        "lineInterpolation": "linear",
        "lineWidth": 0 if is_stacked else 1,
        "scaleDistribution": scale,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if is_stacked else "none"},
        "thresholdsStyle": {"mode": "dashed" if has_steps else "off"},
    }
