"""What the time of accelerators went to, each moment of it to one cause alone.

An accelerator is looked at once for each step of the period. What it is found in counts for the
step; where a share of it waits for data or is slowed down, that share does. The parts together are
the time in which there were accelerators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from trainvitals.report.archive import Archive, write_rise
from trainvitals.report.hardware import Use
from trainvitals.report.holding import ANSWERS, DEVICE, LIVES, RANK, Holding, find_holding
from trainvitals.report.points import Points

TRAINING, OTHERS = "training", "others"

CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        TRAINING: "training at full speed",
        OTHERS: "computing for something that is no known run",
        "data_wait": "waiting for data",
        "stalled": "held by a run that stood still",
        "throttled": "training, slowed down by heat or the power brake",
        "evaluation": "evaluating or saving a checkpoint",
        "starting": "starting and compiling",
        "paused": "held by a run that was idle on purpose",
        "held": "idle, its memory held by no run",
        "idle": "idle, held by nobody",
        "lost": "lost: it did not answer",
    }
)
"""What each cause means; those but the first two are waste."""

# As AcceleratorHeldIdle has it: less is a driver's own.
_HELD_RATIO: Final = 0.1
_IN_STEPS: Final = "data_wait|h2d|forward|backward|optimizer|other"
_SLOWED: Final = "hw_thermal|sw_thermal|hw_power_brake"
_STALLED: Final = "training_stalled{@host} == 1"

# What is taken from which sum, so that no question is asked twice.
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
# What is left of sums and differences of numbers that are not whole.
_NOTHING_SECONDS: Final = 1e-3


def is_waste(cause: str) -> bool:
    """Whether the time that went to a cause was wasted."""
    return cause not in {TRAINING, OTHERS}


def find_uses(archive: Archive) -> tuple[Use, ...]:
    """Find out what the time went to; causes that had none are left out.

    Where a question was refused nothing is told, as the others alone would not add up.
    """
    gaps = len(archive.gaps)
    queries = _write(find_holding(archive), archive.step_seconds)
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


def _write(holding: Holding, step_seconds: int) -> Mapping[str, str]:
    """Write a query for each sum, which gives the share of each accelerator that is in it."""
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
        f" / accelerator_memory_total_bytes{{@host}} > {_HELD_RATIO:g}"
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
    """Write a query for the share of its steps for which a rank waits for data."""
    waited = 'rate(training_phase_seconds_total{@host, phase="data_wait"}[5m])'
    steps = f'rate(training_phase_seconds_total{{@host, phase=~"{_IN_STEPS}"}}[5m])'
    return (
        f"{waited} / ignoring (phase) (sum without (phase) ({steps}) > 0) and on ({RANK}) {LIVES}"
    )


def _write_slowed(step_seconds: int) -> str:
    gained = write_rise(f'accelerator_throttle_seconds_total{{@host, reason=~"{_SLOWED}"}}')
    told = f'accelerator_throttle_active{{@host, reason=~"{_SLOWED}"}}'
    return (
        f"clamp_max(max by ({DEVICE}) ({gained} / {step_seconds} or {told}"
        f" unless on ({DEVICE}) accelerator_throttle_seconds_total{{@host}}), 1)"
    )


def _write_busy(step_seconds: int) -> str:
    gained = write_rise("accelerator_busy_seconds_total{@host}")
    return (
        f"clamp_max(max by ({DEVICE}) ({gained} / {step_seconds}"
        f" or accelerator_utilization_ratio{{@host}}), 1)"
    )
