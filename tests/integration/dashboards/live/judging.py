"""Faults in the answers to a dashboard's queries, each with the query and a part of the answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tests.integration.dashboards.live.grafana import Answer
from tests.integration.dashboards.live.showing import (
    PanelAnswers,
    count_series,
    find_missing_labels,
    find_unit,
    group_by_panel,
    name_series,
)
from tests.unit.dashboards.boards import Panel, Place

_EXAMPLES = 3
_OLD = "last known"  # the name of a stat's value if the run has ended
_INFINITE_SECONDS = 1e9  # a larger value is a time, not a duration
_DAY_OF_2001, _DAY_OF_2096 = 1e12, 4e12  # in milliseconds
# The plausible range of values by unit; other units have no range.
_PLAUSIBLE: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "percentunit": (0, 2),  # on a busy machine, a rate over seconds can exceed 1
        "percent": (0, 200),
        "bytes": (0, 1e16),
        "Bps": (0, 1e13),
        "s": (-_INFINITE_SECONDS, _INFINITE_SECONDS),
        "celsius": (-20, 150),
        "watt": (0, 1e6),
        "kwatth": (0, 1e6),
        "joule": (0, 1e12),
        "hertz": (0, 2e10),
        "dateTimeFromNow": (_DAY_OF_2001, _DAY_OF_2096),
        "dateTimeAsLocal": (_DAY_OF_2001, _DAY_OF_2096),
    }
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The maximum sizes of panels.

    Attributes:
        series: The maximum number of series in a graph.
        rows: The maximum number of rows in a table.
    """

    series: int
    rows: float


# For a host with 8 accelerators, and for 64 such hosts, whose tables have no limit.
OF_A_HOST = Bounds(20, 200)
OF_A_FLEET = Bounds(200, math.inf)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in an answer or a panel.

    Attributes:
        place: The query, or the panel if several queries are concerned.
        kind: The kind of the fault, as in `expectations.yml`.
        says: A description with a part of the answer.
    """

    place: Place
    kind: str
    says: str


def judge(answers: Sequence[Answer], bounds: Bounds) -> Iterator[Fault]:
    """Yield the faults in a dashboard's answers, whatever the expected results are."""
    for answer in answers:
        yield from _judge_answer(answer)
    for found in group_by_panel(answers):
        yield from _judge_names(found)
        yield from _judge_count(found, bounds)
        yield from _judge_axis(found)
        if not found.has_data and not found.panel.defaults.get("noValue"):
            yield Fault(found.panel.place, "no-word", "it is empty and does not say why")


def _judge_answer(answer: Answer) -> Iterator[Fault]:
    place = answer.question.place
    if answer.error:
        yield Fault(place, "error", answer.error)
    values = [value for series in answer.series for _, value in series.samples]
    if any(math.isinf(value) for value in values):
        yield Fault(place, "infinite", _show(answer, math.isinf))
    for series in answer.series:
        if all(math.isnan(value) for _, value in series.samples):
            yield Fault(place, "nan", f"only NaN for {name_series(answer, series)}")
            break
    if answer.question.kind == "annotation":
        yield from _judge_annotation(answer)
    else:
        yield from _judge_values(answer)


def _judge_annotation(answer: Answer) -> Iterator[Fault]:
    if answer.question.json.get("useValueForTime"):

        def is_no_time(value: float) -> bool:
            return not _DAY_OF_2001 < value < _DAY_OF_2096

        if any(is_no_time(value) for series in answer.series for _, value in series.samples):
            yield Fault(answer.question.place, "unit", f"no time: {_show(answer, is_no_time)}")


def _judge_values(answer: Answer) -> Iterator[Fault]:
    panel = answer.question.panel
    assert panel is not None
    if panel.kind == "state-timeline":
        yield from _judge_states(answer, panel)
    if panel.kind == "stat":
        yield from _judge_age(answer)
    if panel.kind != "table":
        yield from _judge_labels(answer)
    for series in answer.series:
        unit = find_unit(answer, series)
        least, most = _PLAUSIBLE.get(unit, (-math.inf, math.inf))

        def is_odd(value: float, least: float = least, most: float = most) -> bool:
            return not (math.isnan(value) or math.isinf(value) or least <= value <= most)

        if any(is_odd(value) for _, value in series.samples):
            yield Fault(answer.question.place, "unit", f"{unit} of {_show(answer, is_odd)}")
            return


def _judge_states(answer: Answer, panel: Panel) -> Iterator[Fault]:
    states = _find_states(panel)
    values = {value for series in answer.series for _, value in series.samples}
    unknown = sorted(value for value in values - states if not math.isnan(value))
    if states and unknown:
        yield Fault(answer.question.place, "state", f"no text for {unknown[:_EXAMPLES]}")


def _judge_labels(answer: Answer) -> Iterator[Fault]:
    for series in answer.series:
        if labels := find_missing_labels(answer, series):
            says = f"{dict(series.labels)} has no {', '.join(labels)}"
            yield Fault(answer.question.place, "nameless", says)
            return


def _judge_age(answer: Answer) -> Iterator[Fault]:
    for series in answer.series:
        last, value = series.samples[-1]
        if last < answer.until and name_series(answer, series) != _OLD:
            says = f"{name_series(answer, series)} = {value:g} is shown as if it were of now"
            yield Fault(answer.question.place, "stale", f"{says}, and it ended in the time range")


def _judge_names(found: PanelAnswers) -> Iterator[Fault]:
    if found.panel.kind == "table":
        yield from _judge_rows(found)
        return
    names = Counter(
        (name_series(answer, series), *_tell_apart(answer))
        for answer in found.answers
        for series in answer.series
    )
    twice = [name[0] for name, times in names.items() if times > 1]
    if twice:
        letters = sorted(
            {
                answer.question.place.query
                for answer in found.answers
                for series in answer.series
                if name_series(answer, series) == twice[0]
            }
        )
        says = f"{names[next(n for n in names if n[0] == twice[0])]} series of {', '.join(letters)}"
        yield Fault(found.panel.place, "duplicate", f"{says} are called {twice[0]!r}")


def _tell_apart(answer: Answer) -> tuple[str, ...]:
    """Return the query's letter if Grafana names the series, as it then names the query as well."""
    is_named = answer.question.json.get("legendFormat") not in (None, "", "__auto")
    return () if is_named else (answer.question.place.query,)


def _judge_rows(found: PanelAnswers) -> Iterator[Fault]:
    """Yield the faults of a table: columns without a title, and several rows with the same keys."""
    keys = {name for name in found.panel.renamed if not name.startswith("Value")}
    keys |= found.panel.hidden
    for answer in found.answers:
        extra = sorted({label for series in answer.series for label in series.labels} - keys)
        if extra:
            says = f"columns that have no title: {', '.join(extra)}"
            yield Fault(answer.question.place, "column", says)
        rows = Counter(
            tuple(sorted((key, value) for key, value in series.labels.items() if key in keys))
            for series in answer.series
        )
        twice = [row for row, times in rows.items() if times > 1]
        if twice:
            yield Fault(answer.question.place, "duplicate", f"two rows of {dict(twice[0])}")


def _judge_count(found: PanelAnswers, bounds: Bounds) -> Iterator[Fault]:
    count = count_series(found)
    most = bounds.rows if found.panel.kind == "table" else bounds.series
    if count > most:
        parts = ((answer.question.place.query, len(answer.series)) for answer in found.answers)
        letters = ", ".join(f"{letter}: {number}" for letter, number in parts)
        yield Fault(found.panel.place, "many", f"{count} series, at most {most:g} ({letters})")


def _judge_axis(found: PanelAnswers) -> Iterator[Fault]:
    """Yield a fault if an axis ends above all values, unless it has alert lines or shows ratios."""
    custom = found.panel.defaults.get("custom") or {}
    end, unit = custom.get("axisSoftMax"), found.panel.defaults.get("unit")
    has_lines = custom.get("thresholdsStyle", {}).get("mode", "off") != "off"
    if end is None or has_lines or (unit, end) == ("percentunit", 1):
        return
    values = [
        value
        for answer in found.answers
        for series in answer.series
        for _, value in series.samples
        if find_unit(answer, series) == unit and not math.isnan(value)
    ]
    if 0 < (highest := max(values, default=0)) < end:
        says = f"an axis to {end:g} flattens values of {highest:g} at most"
        yield Fault(found.panel.place, "flat", says)


def _find_states(panel: Panel) -> set[float]:
    return {
        float(number)
        for mapping in panel.defaults.get("mappings") or ()
        if mapping.get("type") == "value"
        for number in mapping["options"]
    }


def _show(answer: Answer, is_odd: Callable[[float], bool]) -> str:
    """Return the text of the first series that have an odd value."""
    odd = [
        f"{name_series(answer, series)} = {value:g}"
        for series in answer.series
        for value in [next((value for _, value in series.samples if is_odd(value)), None)]
        if value is not None
    ]
    more = f" and {len(odd) - _EXAMPLES} more" if len(odd) > _EXAMPLES else ""
    return "; ".join(odd[:_EXAMPLES]) + more
