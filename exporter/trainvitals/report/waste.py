"""The attribution of accelerator time to uses, in which each moment belongs to exactly one use.

The state of an accelerator at each step of the period counts for the whole step. Waiting for data
and throttling count for their share of the step. The times of the uses add up to the time for which
accelerators were observed.

The label `gpu_uuid` of `training_rank_info` lists up to eight accelerators of a rank, separated by
commas. PromQL cannot split a list, so a separate expression extracts each item of the list. On a
machine where no rank has this label, all accelerators that a process holds are attributed to the
machine's runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trainvitals.report.archive import Archive, write_rise
from trainvitals.report.figures import OTHERS, TRAINING, Use
from trainvitals.sources.prometheus import Points

DEVICE: Final = "job, instance, uuid"
RANK: Final = "job, instance, run, rank"
LIVES: Final = "training_process_up{@host} == 1"
ANSWERS: Final = "accelerator_up{@host} == 1"

# The maximum number of accelerators in the label `gpu_uuid` of training_rank_info.
_MOST_IN_A_LIST: Final = 8
_IN_STEPS: Final = "data_wait|h2d|forward|backward|optimizer|other"
_SLOWED: Final = "hw_thermal|sw_thermal|hw_power_brake"
_STALLED: Final = "training_stalled{@host} == 1"

# Each use as a signed sum of query results, so that no query runs twice.
_SUMS: Final[Mapping[str, tuple[tuple[int, str], ...]]] = MappingProxyType(
    {
        TRAINING: ((1, "train"), (-1, "waiting"), (-1, "slowed"), (1, "slowed while waiting")),
        OTHERS: ((1, "free and busy"),),
        "data_wait": ((1, "waiting"),),
        "stalled": ((1, "stalled"),),
        "throttled": ((1, "slowed"), (-1, "slowed while waiting")),
        "evaluation": ((1, "evaluation"),),
        "starting": ((1, "starting"),),
        "paused": ((1, "paused"),),
        "held": ((1, "free and held"), (-1, "free, held and busy")),
        "idle": (
            *((1, "free"), (-1, "free and held")),
            *((-1, "free and busy"), (1, "free, held and busy")),
        ),
        "lost": ((1, "lost"),),
    }
)
# A shorter time is a rounding error of sums and differences.
_NOTHING_SECONDS: Final = 1e-3


def find_uses(archive: Archive) -> tuple[Use, ...]:
    """Return the accelerator time of each use, without uses that took no time.

    The result is an empty tuple if Prometheus refused a query, because the remaining uses would not
    add up to the time for which accelerators were observed.
    """
    gaps = len(archive.gaps)
    queries = _write(
        find_holding(archive),
        archive.step_seconds,
        archive.thresholds["accelerator_held_idle:memory_ratio"],
    )
    parts = {name: _ask(archive, name, expr) for name, expr in queries.items()}
    if len(archive.gaps) > gaps:
        return ()
    found = []
    for cause, terms in _SUMS.items():
        points = _add(terms, parts)
        seconds = math.fsum(value for _, value in points)
        if seconds > _NOTHING_SECONDS:
            found.append(Use(cause, seconds, points))
    return tuple(found)


def _ask(archive: Archive, name: str, expr: str) -> Mapping[float, float]:
    series = archive.ask_hours(
        f"accelerator time, {name}",
        f"{archive.step_seconds} * sum(sum_over_time(({expr})[@hour:@step]))",
    )
    return dict(series[0].points) if series else {}


def _add(terms: tuple[tuple[int, str], ...], parts: Mapping[str, Mapping[float, float]]) -> Points:
    moments = sorted({moment for _, name in terms for moment in parts[name]})
    return tuple(
        (moment, max(0.0, math.fsum(sign * parts[name].get(moment, 0.0) for sign, name in terms)))
        for moment in moments
    )


def _write(holding: Holding, step_seconds: int, held_ratio: float) -> Mapping[str, str]:
    """Return the queries by name; a query yields, for each accelerator, a share of a step."""
    hold = holding.hold
    stalled, starting = hold(_STALLED), hold(_in_phase("init|compile"))
    evaluation = hold(_in_phase("validation|checkpoint"))
    elsewhere = hold(f"{_in_phase('init|compile|validation|checkpoint|idle')} or {_STALLED}")
    trains = f"({hold(LIVES)} unless on ({DEVICE}) {elsewhere})"
    waiting = f"{trains} * on ({DEVICE}) clamp_max({holding.hold_most(_write_wait())}, 1)"
    slowed = f"on ({DEVICE}) {_write_slowed(step_seconds)}"
    free = f"(group by ({DEVICE}) ({ANSWERS}) unless on ({DEVICE}) {hold(LIVES)})"
    busy = f"{free} * on ({DEVICE}) {_write_busy(step_seconds)}"
    held = (
        f"and on ({DEVICE}) accelerator_memory_used_bytes{{@host}}"
        f" / accelerator_memory_total_bytes{{@host}} > {held_ratio:g}"
    )
    begun = f"({stalled} or {starting})"
    return {
        "train": trains,
        "waiting": waiting,
        "slowed": f"{trains} * {slowed}",
        "slowed while waiting": f"{waiting} * {slowed}",
        "stalled": stalled,
        "starting": f"{starting} unless on ({DEVICE}) {stalled}",
        "evaluation": f"{evaluation} unless on ({DEVICE}) {begun}",
        "paused": f"{hold(_in_phase('idle'))} unless on ({DEVICE}) ({begun} or {evaluation})",
        "free": free,
        "free and busy": busy,
        "free and held": f"{free} {held}",
        "free, held and busy": f"{busy} {held}",
        "lost": "1 - (accelerator_up{@host} == 0)"
        f' unless on ({DEVICE}) accelerator_state{{@host, state="unsupported"}} == 1',
    }


def _in_phase(phases: str) -> str:
    return f'training_phase{{@host, phase=~"{phases}"}} == 1 and on ({RANK}) {LIVES}'


def _write_wait() -> str:
    """Return a query for the share of step time in which each rank waits for data."""
    waited = 'rate(training_phase_seconds_total{@host, phase="data_wait"}[5m])'
    steps = f'rate(training_phase_seconds_total{{@host, phase=~"{_IN_STEPS}"}}[5m])'
    return (
        f"{waited} / ignoring (phase) (sum without (phase) ({steps}) > 0) and on ({RANK}) {LIVES}"
    )


def _write_slowed(step_seconds: int) -> str:
    gained = write_rise(f'accelerator_throttle_seconds_total{{@host, reason=~"{_SLOWED}"}}')
    found = f'accelerator_throttle_active{{@host, reason=~"{_SLOWED}"}}'
    return (
        f"clamp_max(max by ({DEVICE}) ({gained} / {step_seconds} or {found}"
        f" unless on ({DEVICE}) accelerator_throttle_seconds_total{{@host}}), 1)"
    )


def _write_busy(step_seconds: int) -> str:
    gained = write_rise("accelerator_busy_seconds_total{@host}")
    return (
        f"clamp_max(max by ({DEVICE}) ({gained} / {step_seconds}"
        f" or accelerator_utilization_ratio{{@host}}), 1)"
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """Queries that map the series of ranks to the ranks' accelerators.

    Attributes:
        most: The maximum number of accelerators that the queries extract from a rank's list.
    """

    most: int = 1

    def hold(self, condition: str) -> str:
        """Return a query that yields 1 for each responding accelerator of a matching rank."""
        return f"(group by ({DEVICE}) ({self._place(condition)}) and on ({DEVICE}) {ANSWERS})"

    def hold_most(self, expr: str) -> str:
        """Return a query for an expression's highest value among the ranks on each accelerator."""
        return f"max by ({DEVICE}) ({self._place(expr)})"

    def _place(self, expr: str) -> str:
        known = " or ".join(_cut_out(place) for place in range(self.most))
        found = (
            f"max by ({RANK}, uuid) ({known}) * on ({RANK}) group_left () max by ({RANK}) ({expr})"
        )
        unsaid = (
            f"max by (job, instance) (({expr}) and on ({RANK}) training_rank_info{{@host, "
            'gpu_uuid=""}) unless on (job, instance) training_rank_info{@host, gpu_uuid!=""}'
        )
        there = (
            f"(accelerator_up{{@host}} unless on ({DEVICE}) accelerator_processes{{@host}} == 0)"
        )
        return f"{found} or {there} * on (job, instance) group_left () ({unsaid})"


def find_holding(archive: Archive) -> Holding:
    """Return queries for eight accelerators per rank, or cheaper queries if one is enough."""
    found = archive.ask_hours(
        "ranks with several accelerators",
        'group(last_over_time(training_rank_info{@host, gpu_uuid=~".+,.+"}[@hour]))',
    )
    return Holding(_MOST_IN_A_LIST if found else 1)


def _cut_out(before: int) -> str:
    """Return a query that adds the label `uuid` with the list item at index `before` (from 0)."""
    having = f'gpu_uuid=~"([^,]+,){{{before}}}.+"' if before else 'gpu_uuid!=""'
    taken = f"(?:[^,]+,){{{before}}}([^,]+).*"
    return (
        f'label_replace(training_rank_info{{@host, {having}}}, "uuid", "$1", "gpu_uuid", "{taken}")'
    )
