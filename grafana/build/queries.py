"""Queries: what a panel asks Prometheus.

A query is written with short names for what it selects by, each in front of a selector's own
matchers: `accelerator_up{@host}` or `training_phase{@run, phase="train"}`. All selectors are
written with braces, so that the metrics of a query can be read off its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from grafana.build.palette import State

_HOST = 'job=~"$job",instance=~"$instance"'
# A run is chosen alone, and Grafana escapes nothing in a single value by default: the
# brackets of `bert (uid 1000)` would be a group. Of its formats, `regex` between backticks is the
# one that quotes, backslashes and braces survive; only a backtick in a name does not.
_RUN = f"{_HOST},run=~`${{run:regex}}`"
# The run's own hosts and devices are selected by `and on`, as a run does not know its host's name.
_MATCHERS: Mapping[str, str] = MappingProxyType(
    {
        "@host": _HOST,
        "@device": f'{_HOST},kind=~"$kind",device=~"$device"',
        "@run": _RUN,
        "@rank": f'{_RUN},rank=~"$rank"',
        "@container": f'{_HOST},name=~"$container"',
    }
)
# How many series a query may return for a label of its legend; of a label not named here, a few.
_MOST: Mapping[str, int] = MappingProxyType(
    {"kind": 1, "direction": 2, "who": 2, "device": 8, "rank": 8, "name": 8, "collector": 9}
)
_FEW = 4
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{")
_SHORT = re.compile(r"@[a-z]+")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL, as Grafana takes it.
        legend: What its series are called, with `{{label}}` for the value of a label.
        is_instant: Whether only the end of the time range is asked for.
        format: `time_series`, `table` or `heatmap`.
    """

    expr: str
    legend: str = ""
    is_instant: bool = False
    format: str = "time_series"


def fill(expr: str) -> str:
    """Return the short names of matchers out, and the whole on one line."""
    return _SHORT.sub(lambda found: _MATCHERS[found[0]], " ".join(expr.split()))


def over_time(expr: str, legend: str) -> Query:
    """Ask for the whole time range."""
    return Query(fill(expr), legend)


def now(expr: str, legend: str = "") -> Query:
    """Ask for the end of the time range alone."""
    return Query(fill(expr), legend, is_instant=True)


def in_buckets(expr: str) -> Query:
    """Return the target of the buckets of a heatmap: `expr` returns a series for each `le`."""
    return Query(fill(expr), "{{le}}", format="heatmap")


def find_metrics(expr: str) -> tuple[str, ...]:
    """Name the metrics of a query, each once, in their order."""
    return tuple(dict.fromkeys(_SELECTOR.findall(expr)))


def encode(selector: str, label: str, states: Mapping[str, State], by: str) -> str:
    """Return a query for the number of the state that something is in.

    Args:
        selector: A metric that is 1 for the state of it, as `accelerator_state{@device`, without
            the closing brace.
        label: Its label with the state.
        states: The states by the value of that label.
        by: The labels that are kept.
    """
    parts = (
        f'{state.number} * max by ({by}) ({selector}, {label}="{value}"}} == 1)'
        for value, state in states.items()
    )
    return " or ".join(parts)


def name_series(label: str, series: Mapping[str, str]) -> str:
    """Return a query for the series of several expressions, distinguished by a label.

    Args:
        label: That label.
        series: The expressions by its value.
    """
    return " or ".join(
        f'label_replace({expr}, "{label}", "{value}", "", "")' for value, expr in series.items()
    )


def count_series(queries: Sequence[Query]) -> int:
    """Return how many series a graph may draw on a machine with eight devices."""
    named = (_LABEL.findall(query.legend) for query in queries)
    return sum(max((_MOST.get(label, _FEW) for label in labels), default=1) for labels in named)


def find_rise(counter: str, *, since: str = "") -> str:
    """Return a query for how much a counter rose in each step of a graph, for bars.

    Steps do not overlap, so each event is counted once and whole; `increase` over
    `$__rate_interval` has it in several steps, and stretches it. Where a counter was reset, the rise
    is 0.

    Args:
        counter: Its selector, as `host_oom_kills_total{@host}`.
        since: For a counter that begins with its first event: the selector of a metric of the same
            target that is there before. What the counter begins with counts then, too.
    """
    before = f"{counter} offset $__interval"
    rise = f"clamp_min({counter} - {before}, 0)"
    if not since:
        return rise
    return (
        f"({rise} or ({counter} unless {before} and on (job, instance) {since} offset $__interval))"
    )


def keep_worst(most: int, expr: str) -> str:
    """Return a query for those series alone that were the greatest in the time range.

    `topk` alone chooses anew at each time, and a timeline would have a band for each that it ever
    chose.
    """
    return f"({expr}) and topk({most}, max_over_time(({expr})[$__range:$__interval] @ end()))"


def tell_of(part: str, whole: str) -> str:
    """Return a query for a count whose label `all` has the total, for a legend `of {{all}}`."""
    return f'{part} * on () group_left (all) count_values("all", {whole})'
