"""The bounds of the words in a record, which are checked because a run file can be corrupt.

A word outside its bounds becomes `ABSENT`. As an exception, a measured value, such as a loss,
becomes infinite or remains NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.foreign_numbers import (
    LATEST_TIME,
    MOST_AMOUNT,
    MOST_COUNT,
    MOST_SECONDS,
    MOST_VALUE,
    bound_value,
)
from trainvitals.runfile import ABSENT, PHASE_NAMES, STATE_WORDS, STEP_WORDS

_VALUES = {
    "loss",
    "accuracy",
    "learning_rate",
    "gradient_norm",
    "loss_ema",
    "validation_loss",
    "validation_accuracy",
    "best_evaluation",
}
_AMOUNTS = {"flops_per_sample", "flops_per_token", "peak_flops", "baseline_samples_per_second"}
_DURATIONS = {f"total_{name}" for name in PHASE_NAMES}
_MOST_NANOSECONDS = 1e18

_Bounds = tuple[float, float]


def bound_step(words: Sequence[float]) -> tuple[float, ...]:
    """Return the words of a step record, limited to their bounds."""
    return _bound(words, _STEP_BOUNDS)


def bound_state(words: Sequence[float]) -> tuple[float, ...]:
    """Return the words of a state record, limited to their bounds."""
    return _bound(words, _STATE_BOUNDS)


def _bound(words: Sequence[float], bounds: Sequence[_Bounds]) -> tuple[float, ...]:
    return tuple(
        [
            word if low <= word <= high else _replace(word, low)
            for word, (low, high) in zip(words, bounds, strict=True)
        ]
    )


def _replace(word: float, low: float) -> float:
    return bound_value(word) if low < 0 and word != ABSENT else ABSENT


def _find_bounds(name: str) -> _Bounds:
    if name in _VALUES or name.startswith(("event_value_", "metric_")):
        return -MOST_VALUE, MOST_VALUE
    if name in {"sequence", "mono_ns"}:
        return 0.0, _MOST_NANOSECONDS
    if name in _AMOUNTS:
        return 0.0, MOST_AMOUNT
    if name in _DURATIONS or name.endswith("_seconds"):
        return 0.0, MOST_SECONDS
    if name.endswith("_time") or name.startswith("event_time_"):
        return 0.0, LATEST_TIME
    return 0.0, MOST_COUNT


_STEP_BOUNDS = tuple(map(_find_bounds, STEP_WORDS))
_STATE_BOUNDS = tuple(map(_find_bounds, STATE_WORDS))
