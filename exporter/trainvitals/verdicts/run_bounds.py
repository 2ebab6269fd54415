"""The bottleneck of a run, by the same conditions as the recording rules for the dashboards.

The first condition in this table that is true determines the bottleneck. A run that died, is
stalled, is silent or has ended has no bottleneck.

================== =============================================================================
word               condition
================== =============================================================================
`loss is NaN`      the loss of a rank that is alive is NaN or infinite
`input-bound`      a rank waits for data for more than 30 % of its step time, over 10 minutes
`throttled`        one of the run's accelerators is slowed down by heat for more than 10 % of 5
                   minutes, or by the power brake for more than 2 %
`slow rank`        a rank is a straggler
`not in steps`     the run is compiling, or every rank spends more than half of 10 minutes outside
                   of training
`underused`        one of the run's accelerators is busy for less than 50 % of 10 minutes (Gaudi:
                   20 %), with time outside of training counted as busy
`compute-bound`    the run's accelerators are busy for at least the share given for `underused`
================== =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainvitals.runfile import STEP
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.runs.reading import RankReading
from trainvitals.verdicts.accelerators import Work, is_throttled, is_underused, is_unused
from trainvitals.verdicts.thresholds import Thresholds

# The words for the bottlenecks, which the dashboards also use.
LOSS_IS_NAN: Final = "loss is NaN"
INPUT_BOUND: Final = "input-bound"
THROTTLED: Final = "throttled"
SLOW_RANK: Final = "slow rank"
NOT_IN_STEPS: Final = "not in steps"
UNDERUSED: Final = "underused"
COMPUTE_BOUND: Final = "compute-bound"

_LOSS = STEP["loss"]
_BOUNDLESS = frozenset(("died", "terminated", "stalled", "silent", "ended", "finished"))


@dataclass(frozen=True, slots=True)
class Habit:
    """The phases of a rank over the past 10 minutes.

    Attributes:
        waited_ratio: The share of step time in which the rank waited for data, 0 to 1; None if the
            share is unknown.
        away_ratio: The share of the time in which the rank did not train, 0 to 1; None if the share
            is unknown.
    """

    waited_ratio: float | None = None
    away_ratio: float | None = None


def judge_bound(
    state: str,
    ranks: Sequence[RankReading],
    habits: Mapping[str, Habit],
    devices: Sequence[AcceleratorReading],
    work: Mapping[str, Work],
    thresholds: Thresholds,
) -> str | None:
    """Return the bottleneck of a run, which is one of the words in the module's table.

    The result is None if the run has no bottleneck, or if the bottleneck is unknown.

    Args:
        state: The state of the run, as returned by `run_states.judge_state`.
        ranks: The ranks of the run on this machine.
        habits: The recent phases of each rank, by rank number.
        devices: The accelerators of this machine.
        work: The recent utilization of each accelerator, by UUID.
        thresholds: The thresholds of the alerts, by name.
    """
    living = [rank for rank in ranks if rank.ending is None]
    if state in _BOUNDLESS or not living:
        return None
    if not has_finite_loss(living):
        return LOSS_IS_NAN
    kept = [habits[rank.rank] for rank in living if rank.rank in habits]
    waited = measure_wait(kept)
    if waited is not None and waited > thresholds["data_loader_bottleneck:wait_ratio"]:
        return INPUT_BOUND
    held = [each for each in _find_held(ranks, devices) if each.identity.uuid in work]
    if any(is_throttled(work[each.identity.uuid], thresholds) for each in held):
        return THROTTLED
    return _judge_pace(state, living, kept, thresholds) or _judge_work(held, work, thresholds)


def _judge_pace(
    state: str, living: Sequence[RankReading], kept: Iterable[Habit], thresholds: Thresholds
) -> str | None:
    if any(rank.slowness is not None and rank.slowness.is_straggler for rank in living):
        return SLOW_RANK
    away = _known(each.away_ratio for each in kept)
    most = thresholds["gpu_low_utilization:other_phases_ratio"]
    if state == "compiling" or (away and min(away) > most):
        return NOT_IN_STEPS
    return None


def has_finite_loss(living: Iterable[RankReading]) -> bool:
    """Return whether no rank's loss is NaN or infinite; an unknown loss counts as finite."""
    return all(math.isfinite(rank.record.step[_LOSS]) for rank in living)


def measure_wait(habits: Iterable[Habit]) -> float | None:
    """Return the largest share of step time in which a rank waited for data.

    The result is None if the share is unknown for every rank.
    """
    return max(_known(each.waited_ratio for each in habits), default=None)


def _judge_work(
    held: Sequence[AcceleratorReading], work: Mapping[str, Work], thresholds: Thresholds
) -> str | None:
    verdict = None
    for each in held:
        kind = each.identity.kind
        is_low = is_underused(work[each.identity.uuid], kind, thresholds)
        if is_low is False:
            verdict = COMPUTE_BOUND
        elif is_low and each.measurements and not is_unused(kind, each.measurements, thresholds):
            return UNDERUSED
    return verdict


def _find_held(
    ranks: Sequence[RankReading], devices: Sequence[AcceleratorReading]
) -> list[AcceleratorReading]:
    """Return a run's accelerators, or all of the machine's if no rank reports its accelerators."""
    known = {uuid for rank in ranks for uuid in rank.gpu_uuids}
    return [device for device in devices if not known or device.identity.uuid in known]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
