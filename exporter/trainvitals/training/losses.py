"""Running mean and spikes of the loss, and evaluations without improvement.

A spike is detected by comparison with the previous losses. The limit is the greater of twice their
median and their median plus eight times their median absolute deviation (MAD); a spike begins with
the fifth loss in a row above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

_DECAY = 0.98
_STEADY_SHARE = 0.02 + 1e-9  # near enough to 1 - 0.98, which is approached and never reached
# Losses are sorted by the block, which is what keeps a step cheap; two blocks are the last 100.
_BLOCK_LOSSES = 50
_LOSSES_OF_A_SPIKE = 5
_LOSSES_OF_A_NEW_NORMAL = 2 * _BLOCK_LOSSES
_MEDIANS, _DEVIATIONS = 2.0, 8.0
# The smallest deviations that are used, so that rounding is not a spike where all losses are
# equal: one step of bfloat16 relative to the median, and what float32 leaves of a loss near 0.
_LEAST_RELATIVE_DEVIATION = 2.0**-8
_LEAST_DEVIATION = 1e-7


class LossWatch:
    """The losses of one rank: their mean, and spikes among them.

    There is no limit before 50 finite losses. Losses above it are not included in it, until 100 of
    them were seen in a row: they become the new baseline, and the spike is over.

    Attributes:
        ema: Exponential moving average (0.98) of the finite losses, corrected for its start;
            None before the first.
        nonfinite: Losses that were NaN or infinite; they are not included elsewhere.
        is_spiking: Whether the last five losses or more were above the limit.
        spikes: Spikes so far; a spike counts once, however long it lasts.
        spike_loss: The fifth loss of the newest spike; NaN before the first.
    """

    __slots__ = (
        "_before",
        "_block",
        "_high",
        "_limit",
        "_share",
        "ema",
        "is_spiking",
        "nonfinite",
        "spike_loss",
        "spikes",
    )

    def __init__(self) -> None:
        self.ema: float | None = None
        self.nonfinite = 0
        self.is_spiking = False
        self.spikes = 0
        self.spike_loss = math.nan
        # Share of the newest loss in the mean: 1, 1/1.98, ... towards 0.02, which corrects the bias
        # of a mean that would start at 0.
        self._share = 1.0
        self._limit = math.inf
        self._before: list[float] = []
        self._block: list[float] = []
        self._high: list[float] = []

    def see(self, *losses: float) -> None:
        """Add losses, in their order; many at once cost a third each."""
        while losses:
            room = _BLOCK_LOSSES - len(self._block)
            some, losses = losses[:room], losses[room:]
            if self._high or max(some) > self._limit or not math.isfinite(sum(some)):
                for loss in some:
                    self._see_one(loss)
            else:
                self._see_normal(some)

    def _see_one(self, loss: float) -> None:
        if not math.isfinite(loss):
            self.nonfinite += 1
        elif loss > self._limit:
            self._average((loss,))
            self._see_high(loss)
        else:
            self._high = []
            self.is_spiking = False
            self._see_normal((loss,))

    def _see_normal(self, losses: Sequence[float]) -> None:
        """Add losses that are not above the limit, at most as many as fit into the block."""
        self._average(losses)
        block = self._block
        block.extend(losses)
        if len(block) == _BLOCK_LOSSES:
            self._learn(block)

    def _average(self, losses: Iterable[float]) -> None:
        ema, share = self.ema, self._share
        for loss in losses:
            ema = loss if ema is None else ema + (loss - ema) * share
            if share > _STEADY_SHARE:
                share = share / (_DECAY + share)
        self.ema, self._share = ema, share

    def _see_high(self, loss: float) -> None:
        high = self._high
        high.append(loss)
        if len(high) == _LOSSES_OF_A_SPIKE:
            self.is_spiking = True
            self.spikes += 1
            self.spike_loss = loss
        elif len(high) == _LOSSES_OF_A_NEW_NORMAL:
            self._high = []
            self.is_spiking = False
            self._before = sorted(high[:_BLOCK_LOSSES])
            self._learn(high[_BLOCK_LOSSES:])

    def _learn(self, block: list[float]) -> None:
        """Update the limit from this block and the one before it."""
        block.sort()
        self._limit = spike_limit(sorted(self._before + block))
        self._before = block
        self._block = []


def spike_limit(ordered: Sequence[float]) -> float:
    """Return the loss above which a spike begins.

    Twice the median is used only if the median is above 0.

    Args:
        ordered: Finite losses in ascending order, an even number of them.
    """
    middle = len(ordered) // 2
    median = ordered[middle - 1] / 2 + ordered[middle] / 2
    deviation = max(
        _absolute_deviation(ordered, median),
        abs(median) * _LEAST_RELATIVE_DEVIATION,
        _LEAST_DEVIATION,
    )
    return max(median + _DEVIATIONS * deviation, _MEDIANS * median if median > 0 else -math.inf)


def _absolute_deviation(ordered: Sequence[float], median: float) -> float:
    """Return the median absolute deviation of the losses (MAD).

    The values nearest to the median are adjacent, so their place is found by bisection.
    """
    count = len(ordered) // 2 + 1
    low, high = 0, len(ordered) - count
    while low < high:
        first = (low + high) // 2
        if median - ordered[first] > ordered[first + count] - median:
            low = first + 1
        else:
            high = first
    return max(median - ordered[low], ordered[low + count - 1] - median)


class EvaluationWatch:
    """The value of each evaluation, such as the validation loss, and its best.

    Args:
        mode: Whether a lower value ("min") or a higher one ("max") is better.

    Attributes:
        best: The best finite value so far; None before the first.
        evaluations: Evaluations so far.
        since_improvement: Evaluations since the best one; one that is NaN or infinite is not an
            improvement.
    """

    __slots__ = ("_sign", "best", "evaluations", "since_improvement")

    def __init__(self, mode: Literal["min", "max"] = "min") -> None:
        self.best: float | None = None
        self.evaluations = 0
        self.since_improvement = 0
        self._sign = 1.0 if mode == "max" else -1.0

    def see(self, value: float) -> None:
        """Add the value of one evaluation."""
        self.evaluations += 1
        if math.isfinite(value) and (
            self.best is None or self._sign * value > self._sign * self.best
        ):
            self.best = value
            self.since_improvement = 0
        else:
            self.since_improvement += 1
