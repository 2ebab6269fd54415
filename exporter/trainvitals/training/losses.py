"""The running mean and the spikes of the loss, and evaluations without improvement.

A loss spike is detected by comparing each loss with a limit. The limit is the greater of two
values: twice the median of the previous losses, and their median plus eight times their median
absolute deviation (MAD). A spike begins with the fifth consecutive loss above this limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

_DECAY = 0.98
_STEADY_SHARE = 0.02 + 1e-9  # close to 1 - 0.98, to which the share converges
# To keep steps cheap, losses are sorted in blocks of 50; two blocks are the last 100 losses.
_BLOCK_LOSSES = 50
_LOSSES_OF_A_SPIKE = 5
_LOSSES_OF_A_NEW_NORMAL = 2 * _BLOCK_LOSSES
_MEDIANS, _DEVIATIONS = 2.0, 8.0
# The minimum deviations, so that rounding does not count as a spike if all losses are equal: the
# relative precision of bfloat16, and the absolute precision of float32 for losses near 0.
_LEAST_RELATIVE_DEVIATION = 2.0**-8
_LEAST_DEVIATION = 1e-7


class LossWatch:
    """A detector of loss spikes on one rank, which also maintains the mean loss.

    No limit applies before the first 50 finite losses. Losses above the limit do not contribute to
    the limit. However, after 100 consecutive losses above the limit, the limit is computed from
    these losses and the spike ends.

    Attributes:
        ema: The exponential moving average (decay 0.98) of the finite losses, with bias correction;
            None before the first finite loss.
        nonfinite: The number of NaN or infinite losses, which are excluded from all other values.
        is_spiking: Whether at least the last five finite losses were above the limit.
        spikes: The number of loss spikes; each spike is counted once, regardless of its duration.
        spike_loss: The fifth loss of the latest spike; NaN before the first spike.
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
        # The weight of the newest loss in the mean: 1, 1/1.98, ... down to 0.02, which corrects the
        # bias of a mean that starts at 0.
        self._share = 1.0
        self._limit = math.inf
        self._before: list[float] = []
        self._block: list[float] = []
        self._high: list[float] = []

    def see(self, *losses: float) -> None:
        """Add losses in chronological order; a single call for several losses is faster."""
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
        """Add losses that do not exceed the limit; they must fit into the current block."""
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
        """Update the limit from this block of losses and the previous block."""
        block.sort()
        self._limit = spike_limit(sorted(self._before + block))
        self._before = block
        self._block = []


def spike_limit(ordered: Sequence[float]) -> float:
    """Return the loss above which a spike begins.

    Twice the median of the losses is considered only if the median is positive.

    Args:
        ordered: The finite losses in ascending order; their number must be even.
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

    In the sorted losses, the values nearest to the median are adjacent, so bisection finds them.
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
    """The best value of a run's evaluations, such as the lowest validation loss.

    Args:
        mode: "min" if a lower value is better, "max" if a higher value is better.

    Attributes:
        best: The best finite value of all evaluations so far; None before the first finite value.
        evaluations: The number of evaluations so far.
        since_improvement: The number of evaluations since the best evaluation; a NaN or infinite
            value is not an improvement.
    """

    __slots__ = ("_sign", "best", "evaluations", "since_improvement")

    def __init__(self, mode: Literal["min", "max"] = "min") -> None:
        self.best: float | None = None
        self.evaluations = 0
        self.since_improvement = 0
        self._sign = 1.0 if mode == "max" else -1.0

    def see(self, value: float) -> None:
        """Add the value of one evaluation, which may be NaN or infinite."""
        self.evaluations += 1
        if math.isfinite(value) and (
            self.best is None or self._sign * value > self._sign * self.best
        ):
            self.best = value
            self.since_improvement = 0
        else:
            self.since_improvement += 1
