"""The Prometheus queries of panels.

Queries are written with short names for common matchers, each before the other matchers of a
selector: `accelerator_up{@host}` or `training_phase{@run, phase="train"}`. All selectors are
written with braces, so that the metrics of a query can be extracted from its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from grafana.build.palette import State

_HOST = 'job=~"$job",instance=~"$instance"'
# Only one run can be selected, and by default Grafana escapes nothing in a single value: the
# brackets of `bert (uid 1000)` would be a group. Among Grafana's formats, only `regex` between
# backticks preserves quotes, backslashes and braces; a backtick in a name is not supported.
_RUN = f"{_HOST},run=~`${{run:regex}}`"
# The run's hosts and devices are selected by `and on`, because a run's metrics do not contain the
# host name.
_MATCHERS: Mapping[str, str] = MappingProxyType(
    {
        "@host": _HOST,
        "@device": f'{_HOST},kind=~"$kind",device=~"$device"',
        "@run": _RUN,
        "@rank": f'{_RUN},rank=~"$rank"',
        "@container": f'{_HOST},name=~"$container"',
    }
)
# The maximum number of series that a query may return for a label in its legend; for other labels,
# `_FEW`.
_MOST: Mapping[str, int] = MappingProxyType(
    {"kind": 1, "direction": 2, "who": 2, "device": 8, "rank": 8, "name": 8, "collector": 9}
)
_FEW = 4
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{")
_SHORT = re.compile(r"@[a-z]+")


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel.

    Attributes:
        expr: The PromQL expression in the form that Grafana reads.
        legend: The name of the series, with `{{label}}` for the value of a label.
        is_instant: Whether to query only the end of the time range.
        format: `time_series`, `table` or `heatmap`.
    """

    expr: str
    legend: str = ""
    is_instant: bool = False
    format: str = "time_series"


def fill(expr: str) -> str:
    """Return an expression on one line, with the short names of matchers expanded."""
    return _SHORT.sub(lambda found: _MATCHERS[found[0]], " ".join(expr.split()))


def over_time(expr: str, legend: str) -> Query:
    """Return a query over the entire time range."""
    return Query(fill(expr), legend)


def now(expr: str, legend: str = "") -> Query:
    """Return a query for the end of the time range only."""
    return Query(fill(expr), legend, is_instant=True)


def in_buckets(expr: str) -> Query:
    """Return a query for heatmap buckets; `expr` returns a series for each `le`."""
    return Query(fill(expr), "{{le}}", format="heatmap")


def find_metrics(expr: str) -> tuple[str, ...]:
    """Return the names of the metrics in a query, in order and without duplicates."""
    return tuple(dict.fromkeys(_SELECTOR.findall(expr)))


def encode(selector: str, label: str, states: Mapping[str, State], by: str) -> str:
    """Return a query for the number of an object's state.

    Args:
        selector: A selector without the closing brace, such as `accelerator_state{@device`, of a
            metric that is 1 for the current state.
        label: The metric's label that contains the state.
        states: The states by the label's value.
        by: The labels to keep.
    """
    parts = (
        f'{state.number} * max by ({by}) ({selector}, {label}="{value}"}} == 1)'
        for value, state in states.items()
    )
    return " or ".join(parts)


def name_series(label: str, series: Mapping[str, str]) -> str:
    """Return a query for the series of several expressions, distinguished by a label.

    Args:
        label: The name of the label.
        series: The expressions by the label's value.
    """
    return " or ".join(
        f'label_replace({expr}, "{label}", "{value}", "", "")' for value, expr in series.items()
    )


def count_series(queries: Sequence[Query]) -> int:
    """Return the maximum number of series in a graph for a machine with eight devices."""
    named = (_LABEL.findall(query.legend) for query in queries)
    return sum(max((_MOST.get(label, _FEW) for label in labels), default=1) for labels in named)


def find_rise(counter: str, *, since: str = "") -> str:
    """Return a query for a counter's increase in each step of a graph, for bars.

    Steps do not overlap, so each event is counted exactly once; `increase` over `$__rate_interval`
    would count an event in several steps and extrapolate the increase. If a counter is reset, the
    increase is 0.

    Args:
        counter: The counter's selector, such as `host_oom_kills_total{@host}`.
        since: For a counter that begins with its first event: the selector of a metric of the same
            target that exists earlier. The counter's initial value then counts as an increase.
    """
    before = f"{counter} offset $__interval"
    rise = f"clamp_min({counter} - {before}, 0)"
    if not since:
        return rise
    return (
        f"({rise} or ({counter} unless {before} and on (job, instance) {since} offset $__interval))"
    )


def keep_worst(most: int, expr: str) -> str:
    """Return a query limited to the series with the greatest maximum in the time range.

    `topk` alone selects series at each evaluation time, so that a timeline would contain a band for
    each series that was ever selected.
    """
    return f"({expr}) and topk({most}, max_over_time(({expr})[$__range:$__interval] @ end()))"


def tell_of(part: str, whole: str) -> str:
    """Return a query for a count with the total in the label `all`, for a legend `of {{all}}`."""
    return f'{part} * on () group_left (all) count_values("all", {whole})'
