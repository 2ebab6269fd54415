"""Functions for each type of panel, in the common style.

The description of every panel states what the panel shows, what is normal, and what to do
otherwise, followed by the alerts that the panel illustrates and the metrics that it queries. A
panel without data shows the reason. Arguments such as `defaults`, `options` and `overrides` are
Grafana's JSON.
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

# Grafana's headers of legend columns, by calculation.
_COLUMNS: Final[Mapping[str, str]] = {"lastNotNull": "Last *", "max": "Max", "sum": "Total"}
_TOOLTIP: Final[Json] = {"mode": "multi", "sort": "desc"}
# The decimals of units for which Grafana would otherwise show all digits.
_DECIMALS: Final[Mapping[str, int]] = {SCIENTIFIC: 2}
# The maximum of an axis while all values are 0; Grafana's default is 100, which is 10,000 % for a
# ratio. The maximum is below all relevant values, because an axis that extends far above the values
# would flatten the curves.
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
# The minimum width in columns for a legend beside the graph, and for all values in this legend.
_BESIDE, _ALL_VALUES = 8, 12
_NO_LEGEND: Final[Json] = {
    "calcs": [],
    "displayMode": "list",
    "placement": "bottom",
    "showLegend": False,
}


@dataclass(frozen=True, slots=True)
class About:
    """The description under a panel's title.

    Attributes:
        shows: The content of the panel.
        normal: The normal values.
        act: The action to take if values are not normal.
        alerts: The alerts whose expression the panel shows.
    """

    shows: str
    normal: str
    act: str
    alerts: tuple[str, ...] = ()

    def write(self, metrics: Sequence[str]) -> str:
        """Return the description for a dashboard: one paragraph for each part, the metrics last."""
        lines = [self.shows, f"Normal: {self.normal}", f"If not: {self.act}"]
        if self.alerts:
            lines.append(f"Alerts: {', '.join(self.alerts)}")
        lines.append(f"Metrics: {', '.join(f'`{metric}`' for metric in metrics)}")
        return "\n\n".join(lines)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel that has not been placed yet.

    Attributes:
        kind: Grafana's name of the panel type.
        title: The title, which with the row's title identifies the panel for users and tests.
        about: The description under the title.
        queries: The queries.
        width: The width in columns; a dashboard has 24 columns.
        height: The height in units of 30 pixels.
        defaults: The settings of all fields, such as the unit, the thresholds and the text shown
            without data.
        overrides: The settings of single fields.
        options: The options of the panel type.
        transformations: The transformations of the results, in order.
        extra: Other fields of the panel's JSON, such as `interval`.
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
        """The names of the metrics in the panel's queries, without duplicates."""
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
    """Return a panel with one large value, coloured by its step or state unless that is OK.

    The query must return one series. In the text mode `value_and_name`, the name of the series is
    shown above the value.
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
    """Return a graph over time with a legend of all series, as a table if space permits.

    The axis ends at `most`; if `is_open`, the axis is extended for greater values, for quantities
    that are not part of a whole. Each step of `steps` except the first is drawn as a dashed line.
    Bars show the increase in each interval (see `queries.find_rise`), and their legend shows the
    sum; by default, the legend of lines shows the last value, the mean and the maximum.
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
    """Return a timeline with a band for each object, which shows the object's states.

    In a colour mode based on thresholds, Grafana would merge values by threshold and ignore the
    mappings, so that every state would have the same colour and text.
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
    """Return a heatmap of the distribution of values over time, from histogram buckets."""
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
    """Return an override of the colour of series whose name matches a pattern without slashes."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/{pattern}/"},
        "properties": [{"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}}],
    }


def colour_devices() -> tuple[Json, ...]:
    """Return overrides that set fixed colours for the series of devices, `gpu 0` to `hpu 7`."""
    return tuple(colour_series(rf"[gh]pu {at}\b", colour) for at, colour in enumerate(SERIES))


def dash_series(pattern: str, colour: str) -> Json:
    """Return an override that draws series whose name matches a pattern as dashed lines."""
    drawn = colour_series(pattern, colour)
    line = {"dash": [8, 8], "fill": "dash"}
    more = [
        {"id": "custom.lineStyle", "value": line},
        {"id": "custom.fillOpacity", "value": 0},
    ]
    return {**drawn, "properties": [*drawn["properties"], *more]}


def put_right(name: str, unit: str) -> Json:
    """Return an override that draws a series on a separate axis on the right."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": "custom.axisPlacement", "value": "right"},
            {"id": "custom.axisSoftMax", "value": _find_soft_most(unit)},
            {"id": "unit", "value": unit},
        ],
    }


def _find_soft_most(unit: str, steps: Steps = (), decimals: int | None = None) -> float:
    """Return the soft maximum of an axis: above all dashed lines or, without lines, near 0."""
    lines = [value for value, _ in steps if value is not None]
    if lines:
        return 1.2 * max(lines)
    return 1 if unit == COUNT and decimals == 0 else _SOFT_MOST.get(unit, _OTHERS_MOST)


def _write_legend(calcs: Sequence[str], count: int, width: int, height: int) -> Json:
    """Return a legend of all series: below the graph, beside it, or as a list of names only."""
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
        # Overlapping filled areas would be hard to distinguish.
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
