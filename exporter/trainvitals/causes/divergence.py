"""Deaths of a training whose numbers ran away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.causes.case import Case
from trainvitals.causes.signs import Sign, find, has
from trainvitals.causes.verdict import Cause, Finding

_STOPPED = has(
    "Loss is nan",
    "returned nan values",
    "contains either `inf`, `nan`",
    "The loss returned in `training_step` is nan",
    "loss scale already at minimum",
    "Minimum loss scale reached",
    "NaN or Inf found in input tensor",
)
_NAN_LOSS = re.compile(
    r"loss[\"'\])]{0,3} {0,4}[=:]? {0,4}[\"'(]{0,2}(?:tensor\()?nan(?![A-Za-z_])", re.IGNORECASE
)
_SCALE = re.compile(r"reducing (?:loss scale )?to (\d[\d.e+-]{0,20})")
_OVERFLOWS = ("Gradient overflow", "OVERFLOW!")
_MANY_OVERFLOWS = 12
# Half precision works with scales of some thousands; below one nothing is scaled up any more.
_TINY_SCALE = 1.0


def look_nan_loss(case: Case) -> Finding | None:
    """Look for a loss that is no number, or a loss scale that fell to nothing."""
    sign = find(case, _STOPPED)
    if sign is None:
        sign = _find_nan_line(case)
    collapsed = _tell_overflows(case.lines)
    if sign is None and collapsed:
        sign = find(case, has(*_OVERFLOWS))
    if sign is None:
        return None
    first = next((line.strip() for line in case.lines if _is_nan_line(line)), "")
    return sign.conclude(
        "nan-loss",
        "The numbers ran away: the loss or a gradient is no number any more.",
        (
            "Go back to the last checkpoint before it, and lower the learning rate to a third.",
            (
                "Clip gradients: `clip_grad_norm_(model.parameters(), 1.0)` (`max_grad_norm=1.0`), and warm"
                " up longer."
            ),
            "Use `bf16` instead of `fp16`: it does not overflow at 65504.",
            (
                "Find where it begins: `torch.autograd.set_detect_anomaly(True)` for a few steps before, and"
                " look at that batch."
            ),
        ),
        speaks_for=(
            *((f"The first such line is `{first[:200]}`.",) if first else ()),
            *collapsed,
        ),
    )


def _find_nan_line(case: Case) -> Sign | None:
    sign = find(case, _is_nan_line)
    return sign and sign.cap("medium", "A loss of nan by itself ends nothing.")


def _is_nan_line(text: str) -> bool:
    return "nan" in text.lower() and _NAN_LOSS.search(text) is not None


def _tell_overflows(lines: Sequence[str]) -> tuple[str, ...]:
    """Say how often gradients overflowed, where that was more than the scale's first search."""
    overflows = [line for line in lines if any(sign in line for sign in _OVERFLOWS)]
    scales = [float(found[1]) for line in overflows if (found := _match_scale(line))]
    if len(overflows) < _MANY_OVERFLOWS or not scales or scales[-1] > _TINY_SCALE:
        return ()
    return (f"Gradients overflowed {len(overflows)} times; the loss scale fell to {scales[-1]:g}.",)


def _match_scale(line: str) -> re.Match[str] | None:
    found = _SCALE.search(line)
    if found is None:
        return None
    try:
        float(found[1])
    except ValueError:
        return None
    return found


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="nan-loss",
        title="The loss is no number",
        signs="The log says `loss nan`, `Loss is nan, stopping`, `returned nan values`, or has many"
        " `Gradient overflow` until the loss scale is below 1; a few at the start are normal.",
        meaning="The learning rate is too high, `fp16` overflowed, or a sample is bad.",
        steps=(
            "Lower the learning rate, clip gradients (`max_grad_norm=1.0`), use `bf16`.",
            "Find the operation with `torch.autograd.set_detect_anomaly(True)`.",
        ),
        confidence="high",
        look=look_nan_loss,
    ),
)
