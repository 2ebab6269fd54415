"""Series as panels see them: a name, values over time, and what holds for them."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from docs.build.pictures.asking import Answer

Json = Mapping[str, Any]
Numbers = NDArray[np.float64]

_PLACE = re.compile(r"\{\{\s*(.+?)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Series:
    """A series of a panel.

    Attributes:
        name: What it is called.
        ref: The letter of its query.
        labels: Its labels.
        times: In seconds since 1970.
        values: One for each; NaN where there is a gap.
        config: What holds for it: unit, thresholds, mappings, colour, `custom`.
    """

    name: str
    ref: str
    labels: Mapping[str, str]
    times: Numbers
    values: Numbers
    config: Json = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """Grafana's name of its unit."""
        return str(self.config.get("unit") or "")

    @property
    def custom(self) -> Json:
        """What only this kind of panel knows."""
        custom: Json = self.config.get("custom") or {}
        return custom


def read_series(panel: Json, answers: Sequence[Answer]) -> list[Series]:
    """Give the series of a panel, in the order of its queries."""
    return [
        _configure(panel, _read(answer, result)) for answer in answers for result in answer.series
    ]


def _read(answer: Answer, result: Json) -> Series:
    points = result["values"] if "values" in result else [result["value"]]
    times = np.array([float(at) for at, _ in points])
    values = np.array([float(value) for _, value in points])
    if "values" in result:
        times, values = _open_gaps(times, values, answer.query.pace.step)
    labels = result["metric"]
    target = answer.query.target
    name = name_series(str(target.get("legendFormat") or "__auto"), labels, str(target["expr"]))
    return Series(name, str(target.get("refId", "A")), labels, times, values)


def _open_gaps(times: Numbers, values: Numbers, step: float) -> tuple[Numbers, Numbers]:
    """Put a NaN into each gap that is longer than a step, so that no line is drawn across."""
    wide = np.flatnonzero(np.diff(times) > 1.5 * step) + 1
    return np.insert(times, wide, times[wide - 1] + step), np.insert(values, wide, math.nan)


def name_series(legend: str, labels: Mapping[str, str], expr: str = "") -> str:
    """Name a series as its query's legend says."""
    if legend != "__auto":
        return _PLACE.sub(lambda found: labels.get(found[1], ""), legend)
    own = {name: value for name, value in labels.items() if name != "__name__"}
    if not own:
        return labels.get("__name__", expr)
    inside = ", ".join(f'{name}="{value}"' for name, value in own.items())
    return f"{labels.get('__name__', '')}{{{inside}}}"


def _configure(panel: Json, series: Series) -> Series:
    config = configure(panel, series.name, series.ref)
    name = str(config.get("displayName") or series.name)
    return Series(name, series.ref, series.labels, series.times, series.values, config)


def configure(panel: Json, name: str, ref: str = "", kind: str = "number") -> Json:
    """Give what holds for a field: the defaults and every override that fits, in their order.

    Args:
        panel: The panel's JSON.
        name: What the field is called.
        ref: The letter of its query.
        kind: `number`, `string` or `time`.

    Raises:
        ValueError: An override chooses fields in a way that is not known here.
    """
    config: dict[str, Any] = copy.deepcopy(dict(panel["fieldConfig"]["defaults"]))
    for override in panel["fieldConfig"].get("overrides") or ():
        matcher = override["matcher"]
        if matcher["id"] not in _MATCHERS:
            raise ValueError(f"panel {panel['title']!r} chooses fields by {matcher['id']!r}")
        if _MATCHERS[matcher["id"]](matcher.get("options"), name, ref, kind):
            for entry in override["properties"]:
                _set(config, str(entry["id"]), entry.get("value"))
    return config


_MATCHERS: Final[Mapping[str, Callable[[Any, str, str, str], bool]]] = {
    "byName": lambda wanted, name, ref, kind: name == wanted,  # noqa: ARG005 - one signature
    "byNames": lambda wanted, name, ref, kind: name in wanted["names"],  # noqa: ARG005
    "byRegexp": lambda wanted, name, ref, kind: bool(re.search(_bare(wanted), name)),  # noqa: ARG005
    "byFrameRefID": lambda wanted, name, ref, kind: ref == wanted,  # noqa: ARG005
    "byType": lambda wanted, name, ref, kind: kind == wanted,  # noqa: ARG005
}


def _bare(pattern: str) -> str:
    return pattern[1:-1] if pattern.startswith("/") and pattern.endswith("/") else pattern


def _set(config: dict[str, Any], path: str, value: Any) -> None:  # noqa: ANN401 - JSON
    *parents, last = path.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[last] = value


def reduce(values: Numbers, how: str) -> float:
    """Make one value of many, as the calculations of legends and stats do; NaN where there is none.

    Raises:
        ValueError: The calculation is not known here.
    """
    if how not in _REDUCERS:
        raise ValueError(f"the calculation {how!r} is not known to docs/build/pictures/fields.py")
    present = values[~np.isnan(values)]
    return float(_REDUCERS[how](present)) if present.size else math.nan


_REDUCERS: Final[Mapping[str, Callable[[Numbers], Any]]] = {
    "lastNotNull": lambda values: values[-1],
    "last": lambda values: values[-1],
    "firstNotNull": lambda values: values[0],
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "sum": np.sum,
    "range": np.ptp,
    "delta": lambda values: values[-1] - values[0],
    "count": np.size,
}
CALCULATIONS: Final[Mapping[str, str]] = {
    "lastNotNull": "Last *",
    "last": "Last",
    "firstNotNull": "First *",
    "mean": "Mean",
    "max": "Max",
    "min": "Min",
    "sum": "Total",
    "range": "Range",
    "delta": "Delta",
    "count": "Count",
}
