"""Detect stragglers: ranks that slow down the other ranks of a run on this machine.

In data-parallel training, every rank waits for the slowest rank when gradients are reduced, during
the backward pass. Steps and backward passes therefore take equally long on all ranks and do not
show which rank is slow. Differences are visible in the phases that a rank executes on its own:
waiting for data, copying to the device and the forward pass, which precede the reduction, and the
optimizer's step, which follows the reduction. The phases that a rank executes on its own are
compared between a run's living ranks on this machine, over windows of at least 32 steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainvitals.runfile import STEP, Record

LOCAL_PHASES = ("data_wait", "h2d", "forward", "optimizer")
WINDOW_STEPS = 32
STRAGGLER_RATIO = 1.33
WINDOWS = 3
# A difference that is less than this share of a step is ignored.
_SHARE_THAT_COUNTS = 0.05

_STEPS, _TRAIN = STEP["steps"], STEP["train_seconds"]
_TOTALS = tuple(STEP[f"total_{phase}"] for phase in LOCAL_PHASES)


@dataclass(frozen=True, slots=True)
class Slowness:
    """The comparison of a rank with the fastest rank of the run on this machine.

    Attributes:
        ratios: For each of `LOCAL_PHASES`, the rank's time per step as a multiple of the fastest
            rank's time; 1 if the difference is less than 5% of a step; None for a phase that no
            rank recorded.
        is_straggler: Whether the rank is a straggler. A rank becomes a straggler after three
            consecutive windows in which a ratio is above 1.33. The rank ceases to be a straggler
            after three consecutive windows in which no ratio is above 1.33.
    """

    ratios: tuple[float | None, ...]
    is_straggler: bool


@dataclass(slots=True)
class _Rank:
    """The state of a rank, which is kept between readings."""

    origin: tuple[float, ...]
    slow: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOWS))
    slowness: Slowness | None = None


class StragglerDetector:
    """Compares the ranks of one run on this machine with each other at every reading."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Rank] = {}
        self._starts: dict[str, float] = {}

    def compare(self, records: Mapping[str, Record]) -> Mapping[str, Slowness]:
        """Compare the latest records of the run's ranks that are still running.

        Args:
            records: The latest record of each rank that is still running, keyed by rank.

        Returns:
            The result of the latest window, keyed by rank. The result is empty before the first
            window is full, or if there is only one rank.
        """
        current = {
            rank: (record.step[_STEPS], record.step[_TRAIN], *_pick_totals(record.step))
            for rank, record in records.items()
            if record.step[_STEPS] >= 0
        }
        starts = {rank: _date_start(records[rank]) for rank in current}
        if starts != self._starts or any(
            current[rank][0] < kept.origin[0] for rank, kept in self._ranks.items()
        ):  # the set of ranks has changed, so a new window begins
            self._starts = starts
            self._ranks = {rank: _Rank(row) for rank, row in current.items()}
        elif len(current) > 1 and all(
            row[0] - self._ranks[rank].origin[0] >= WINDOW_STEPS for rank, row in current.items()
        ):
            self._close_window(current)
        return {
            rank: kept.slowness for rank, kept in self._ranks.items() if kept.slowness is not None
        }

    def _close_window(self, current: Mapping[str, tuple[float, ...]]) -> None:
        means = {rank: _mean(self._ranks[rank].origin, row) for rank, row in current.items()}
        step_seconds = sum(mean[0] for mean in means.values()) / len(means)
        fastest = tuple([min(column) for column in zip(*means.values(), strict=True)][1:])
        slowest = [max(column) for column in zip(*means.values(), strict=True)][1:]
        for rank, kept in self._ranks.items():
            ratios = tuple(
                [
                    _compare(mean, least, step_seconds) if most > 0 else None
                    for mean, least, most in zip(means[rank][1:], fastest, slowest, strict=True)
                ]
            )
            kept.slow.append(any(ratio is not None and ratio > STRAGGLER_RATIO for ratio in ratios))
            was = kept.slowness is not None and kept.slowness.is_straggler
            is_certain = len(kept.slow) == WINDOWS and len(set(kept.slow)) == 1
            kept.slowness = Slowness(ratios, kept.slow[0] if is_certain else was)
            kept.origin = current[rank]


def _date_start(record: Record) -> float:
    return 0.0 if record.identity is None else record.identity.created_time


def _pick_totals(step: Sequence[float]) -> tuple[float, ...]:
    return tuple([max(0.0, step[index]) for index in _TOTALS])


def _mean(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, ...]:
    """Return the mean time per step in seconds, for the whole step and for each phase."""
    steps = after[0] - before[0]
    return tuple(
        [max(0.0, late - early) / steps for early, late in zip(before[1:], after[1:], strict=True)]
    )


def _compare(seconds: float, fastest: float, step_seconds: float) -> float:
    weight = _SHARE_THAT_COUNTS * step_seconds
    if seconds - fastest < weight or weight <= 0:
        return 1.0
    return seconds / max(fastest, weight)
