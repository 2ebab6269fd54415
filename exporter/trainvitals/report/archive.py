"""What Prometheus keeps of a period: whole hours, moments and the changes between them.

No question asks for more than an hour of samples at a time, so that a week of many machines stays
below Prometheus' limit of 50 million samples for one question. Ranges are a millisecond short: a
sample that lies on the border between two hours then counts once, for versions before 3 as well,
which take both ends of a range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainvitals.report.figures import Gap
from trainvitals.report.period import Period
from trainvitals.report.promapi import Prometheus, RefusedError, Series

HOUR = 3600
MINUTE = 60
_STEP_SECONDS = {"daily": MINUTE, "weekly": 5 * MINUTE}
_MOST_SERIES = 20_000
# For one question: with a thousand accelerators it then takes half a minute.
_MOST_STEPS_AT_ONCE = 720


@dataclass(frozen=True, slots=True)
class Filters:
    """What the report is limited to.

    Attributes:
        instances: Machines; empty for all.
        runs: Runs; empty for all.
    """

    instances: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(slots=True)
class Archive:
    """Prometheus, asked about one period.

    In a question `@host` stands for the matchers of machines, `@run` for those of machines and
    runs; `[@hour]` is the range of the hour that ends at a moment, `[@hour:@step]` the moments in
    it, and `@step` how far they are apart.

    Attributes:
        prometheus: Whom to ask.
        period: About what.
        filters: What it is limited to.
        gaps: What could not be asked.
    """

    prometheus: Prometheus
    period: Period
    filters: Filters = Filters()
    gaps: list[Gap] = field(default_factory=list)

    @property
    def step_seconds(self) -> int:
        """How far the moments are apart at which states are looked at."""
        return _STEP_SECONDS[self.period.kind]

    def ask_hours(self, what: str, query: str) -> tuple[Series, ...]:
        """Ask for a value of each hour; a point stands at the end of its hour.

        Where the period ends within an hour, the last point is of that part of one.

        Args:
            what: What is asked for, in words, for where it cannot be told.
            query: The question, with `[@hour]`.
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
        """Ask for a value of each step."""
        step, gaps, series = self.step_seconds, len(self.gaps), list[Series]()
        moments = range(self.period.begin + step, self.period.end + 1, step)
        for first in range(0, len(moments), _MOST_STEPS_AT_ONCE):
            part = moments[first : first + _MOST_STEPS_AT_ONCE]
            series += self._ask(what, self._fill(query, HOUR), part[0], part[-1], step)
        return _join(series) if len(self.gaps) == gaps else ()

    def ask_changes(self, what: str, metric: str) -> tuple[Series, ...]:
        """Ask for the values at the beginning and those that were new in a minute.

        That is little to tell of what changes seldom.

        Args:
            what: What is asked for, in words.
            metric: An expression with `%s` where ` offset 1m` may stand.
        """
        now, before = metric.replace("%s", ""), metric.replace("%s", " offset 1m")
        query = f"({now} != {before}) or ({now} unless {before})"
        first = self.ask_at(what, now, self.period.begin)
        return _join((*first, *self.ask_minutes(what, query)))

    def ask_minutes(self, what: str, query: str) -> tuple[Series, ...]:
        """Ask for each minute but the first moment."""
        begin, end = self.period.begin + MINUTE, self.period.end
        return self._ask(what, self._fill(query, MINUTE), begin, end, MINUTE)

    def ask_end(self, what: str, query: str) -> tuple[Series, ...]:
        """Ask for the end of the period."""
        return self.ask_at(what, query, self.period.end)

    def ask_at(self, what: str, query: str, moment: float) -> tuple[Series, ...]:
        """Ask for one moment."""
        return self._ask(what, self._fill(query, HOUR), moment, moment, HOUR)

    def _ask(
        self, what: str, query: str, begin: float, end: float, step: int
    ) -> tuple[Series, ...]:
        try:
            if begin == end:
                found = self.prometheus.ask(query, begin)
            else:
                found = self.prometheus.ask_over(query, begin, end, step)
        except RefusedError as error:
            self.gaps.append(Gap(what, f"Prometheus refused the question: {error}"))
            return ()
        if len(found) > _MOST_SERIES:
            why = f"{len(found)} series are more than a report can tell; choose with --instance"
            self.gaps.append(Gap(what, why))
            return ()
        return found

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
    """Write a query for what a counter gained in each step; after a reset what it has since.

    Steps that lie end to end lose nothing between them, as the increase of ranges does.
    """
    before = f"{counter} offset @step"
    # What is added takes the name away: both sides must be without one, or with.
    return f"(({counter} - {before}) >= 0 or 0 + ({counter} < {before}))"


def count_seconds(series: Iterable[Series]) -> float:
    """Add all finite values."""
    return math.fsum(value for each in series for _, value in each.points if math.isfinite(value))


def find_extreme(series: Series, *, is_highest: bool) -> tuple[float, float] | None:
    """Give the moment and value of the highest or lowest; None where none is finite."""
    finite = [point for point in series.points if math.isfinite(point[1])]
    if not finite:
        return None
    return (max if is_highest else min)(finite, key=lambda point: point[1])


def list_changes(series: Series) -> Iterator[tuple[float, float]]:
    """Give each new value once, with the moment at which it was first seen."""
    seen: set[float] = set()
    for moment, value in series.points:
        if value not in seen:
            seen.add(value)
            yield moment, value


def _join(series: Sequence[Series]) -> tuple[Series, ...]:
    """Put the points of the same labels into one series."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for each in series:
        found.setdefault(tuple(sorted(each.labels.items())), []).extend(each.points)
    return tuple(Series(dict(key), tuple(points)) for key, points in found.items())


def _list(names: Iterable[str]) -> str:
    """Write names as a pattern, in a string of PromQL."""
    pattern = "|".join(re.escape(name) for name in names)
    return pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
