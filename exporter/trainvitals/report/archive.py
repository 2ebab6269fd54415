"""Prometheus queries about a period: hourly values, values at each step, and value changes.

No query evaluates more than one hour of samples at a time, so a report about many machines and a
week stays below Prometheus' limit of 50 million samples per query. Each range is one millisecond
shorter than an hour, so that a sample on the border between two hours is counted once. Otherwise,
Prometheus versions before 3 would count it twice, because their ranges include both ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainvitals.foreign_numbers import read_time
from trainvitals.report.figures import Gap
from trainvitals.report.period import Period
from trainvitals.sources.prometheus import Prometheus, QueryError, Series
from trainvitals.verdicts.thresholds import Thresholds, read_thresholds

HOUR = 3600
MINUTE = 60
_STEP_SECONDS = {"daily": MINUTE, "weekly": 5 * MINUTE}
_MOST_SERIES = 20_000
# A query with this many steps takes half a minute for a thousand accelerators.
_MOST_STEPS_AT_ONCE = 720


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters that limit a report to some machines and runs.

    Attributes:
        instances: The machines to report; an empty tuple selects all machines.
        runs: The runs to report; an empty tuple selects all runs.
    """

    instances: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(slots=True)
class Archive:
    """A Prometheus server that is queried about one period.

    In a query, `@host` stands for the label matchers that select the machines, and `@run` stands
    for the label matchers that select the machines and runs. `[@hour]` is a range of one hour,
    `[@hour:@step]` is a subquery over the steps of that hour, and `@step` is the interval between
    two steps.

    Attributes:
        prometheus: The Prometheus server that is queried.
        period: The period that the queries cover.
        filters: The machines and runs that queries are limited to.
        gaps: The figures whose queries Prometheus refused or answered with too many series. A
            method adds such a figure and returns no series.
        thresholds: The alert thresholds.
    """

    prometheus: Prometheus
    period: Period
    filters: Filters = Filters()
    gaps: list[Gap] = field(default_factory=list)
    thresholds: Thresholds = field(default_factory=read_thresholds)

    @property
    def step_seconds(self) -> int:
        """The interval between two steps: one minute for a day, five minutes for a week."""
        return _STEP_SECONDS[self.period.kind]

    def ask_hours(self, what: str, query: str) -> tuple[Series, ...]:
        """Return the series of a query, with one value for each hour at the end of the hour.

        If the period ends within an hour, the last point covers only the time until the end.

        Args:
            what: The description of the figure that is added to `gaps` if the query is refused.
            query: The query, which contains `[@hour]` as the range.
        """
        begin, end = self.period.begin, self.period.end
        whole, rest = divmod(end - begin, HOUR)
        at_once = _MOST_STEPS_AT_ONCE * self.step_seconds // HOUR
        series: list[Series] = []
        gaps = len(self.gaps)
        for first in range(1, whole + 1, at_once):
            last = min(first + at_once - 1, whole)
            filled = self._fill(query, HOUR)
            series += self._ask(what, filled, begin + first * HOUR, begin + last * HOUR, HOUR)
        if rest:
            series += self._ask(what, self._fill(query, rest), end, end, HOUR)
        return _join(series) if len(self.gaps) == gaps else ()

    def ask_moments(self, what: str, query: str) -> tuple[Series, ...]:
        """Return the series of a query, with one value for each step of the period."""
        step, gaps, series = self.step_seconds, len(self.gaps), list[Series]()
        moments = range(self.period.begin + step, self.period.end + 1, step)
        for first in range(0, len(moments), _MOST_STEPS_AT_ONCE):
            part = moments[first : first + _MOST_STEPS_AT_ONCE]
            series += self._ask(what, self._fill(query, HOUR), part[0], part[-1], step)
        return _join(series) if len(self.gaps) == gaps else ()

    def ask_changes(self, what: str, metric: str) -> tuple[Series, ...]:
        """Return each series' first value, and each value that differs from a minute earlier.

        The result is small if the values seldom change.

        Args:
            what: The description of the figure that is added to `gaps` if the query is refused.
            metric: An expression with `%s` in place of an `offset` modifier.
        """
        now, before = metric.replace("%s", ""), metric.replace("%s", " offset 1m")
        query = f"({now} != {before}) or ({now} unless {before})"
        first = self.ask_at(what, now, self.period.begin)
        return _join((*first, *self.ask_minutes(what, query)))

    def ask_minutes(self, what: str, query: str) -> tuple[Series, ...]:
        """Return the series of a query, with one value for each minute of the period."""
        begin, end = self.period.begin + MINUTE, self.period.end
        return self._ask(what, self._fill(query, MINUTE), begin, end, MINUTE)

    def ask_end(self, what: str, query: str) -> tuple[Series, ...]:
        """Return the series of a query, with the value at the end of the period."""
        return self.ask_at(what, query, self.period.end)

    def ask_at(self, what: str, query: str, moment: float) -> tuple[Series, ...]:
        """Return the series of a query, with the value at the given Unix time."""
        return self._ask(what, self._fill(query, HOUR), moment, moment, HOUR)

    def _ask(
        self, what: str, query: str, begin: float, end: float, step: int
    ) -> tuple[Series, ...]:
        try:
            if begin == end:
                found = self.prometheus.query(query, begin)
            else:
                found = self.prometheus.query_range(query, begin, end, step)
        except QueryError as error:
            self.gaps.append(Gap(what, f"Prometheus refused the query: {error}"))
            return ()
        if len(found) > _MOST_SERIES:
            why = (
                f"{len(found)} series are too many for one report; select machines with --instance"
            )
            self.gaps.append(Gap(what, why))
            return ()
        return tuple(_drop_unknown(found))

    def _fill(self, query: str, seconds: int) -> str:
        host = f'instance=~"{_list(self.filters.instances)}"' if self.filters.instances else ""
        run = f'run=~"{_list(self.filters.runs)}"' if self.filters.runs else ""
        step = self.step_seconds
        filled = (
            " ".join(query.split())
            .replace("@host", host)
            .replace("@run", ",".join(each for each in (host, run) if each))
            .replace("@hour", f"{seconds * 1000 - 1}ms")
            .replace("@step", f"{step}s")
        )
        return re.sub(r"\{,\s*", "{", filled)


def write_rise(counter: str) -> str:
    """Return a query for a counter's increase in a step; after a reset, the counter's value.

    Unlike `increase`, this query misses no increase between adjacent steps.
    """
    before = f"{counter} offset @step"
    # Arithmetic drops the metric name. `or` matches series only if both sides have the name or both
    # sides lack it; the `0 +` therefore drops the name on the right side.
    return f"(({counter} - {before}) >= 0 or 0 + ({counter} < {before}))"


def count_seconds(series: Iterable[Series]) -> float:
    """Return the sum of all values in the given series."""
    return math.fsum(value for each in series for _, value in each.points)


def find_extreme(series: Series, *, is_highest: bool) -> tuple[float, float] | None:
    """Return the time and value of a series' highest or lowest point; None for an empty series."""
    return (max if is_highest else min)(series.points, key=lambda point: point[1], default=None)


def list_changes(series: Series) -> Iterator[tuple[float, float]]:
    """Yield each distinct value of a series, with the time at which the value first occurs."""
    seen: set[float] = set()
    for moment, value in series.points:
        if value not in seen:
            seen.add(value)
            yield moment, value


def list_times(series: Series) -> list[float]:
    """Return a series' distinct values that are valid Unix times."""
    return [time for _, value in list_changes(series) if (time := read_time(value)) is not None]


def _drop_unknown(series: Iterable[Series]) -> Iterator[Series]:
    """Yield series without NaN and infinite values, which contain no information."""
    for each in series:
        points = tuple(point for point in each.points if math.isfinite(point[1]))
        if points:
            yield Series(each.labels, points)


def _join(series: Sequence[Series]) -> tuple[Series, ...]:
    """Return the series, with series that have the same labels joined into one series."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for each in series:
        found.setdefault(tuple(sorted(each.labels.items())), []).extend(each.points)
    return tuple(Series(dict(key), tuple(points)) for key, points in found.items())


def _list(names: Iterable[str]) -> str:
    """Return a regular expression that matches any of the names, escaped for a PromQL string."""
    pattern = "|".join(re.escape(name) for name in names)
    return pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
