"""Which of the values that an evaluation logged is its loss, and which its accuracy."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SEPARATORS = re.compile(r"[/._\- ]+")
_STAGES = frozenset(("val", "valid", "validation", "eval"))
_FIRST_LOADER = "/dataloader_idx_0"


def sort_validation(
    values: Mapping[str, object],
) -> tuple[float | None, float | None, dict[str, float]]:
    """Sort the values of an evaluation by their names.

    `val_loss`, `valid/loss`, `loss` and the like are the loss, `val_acc` and the like the accuracy.
    Of values that a framework logs for the step and for the whole evaluation (`…_step`, `…_epoch`)
    only the latter count.

    Returns:
        The loss, the accuracy (None where there is none), and all other numbers.
    """
    loss: float | None = None
    accuracy: float | None = None
    others: dict[str, float] = {}
    for name, value in values.items():
        if not isinstance(value, int | float) or name in ("epoch", "step"):
            continue
        if name.endswith("_step") and f"{name[:-5]}_epoch" in values:
            continue
        clean = name.removesuffix(_FIRST_LOADER).removesuffix("_epoch")
        words = [word for word in _SEPARATORS.split(clean.lower()) if word not in _STAGES]
        if words == ["loss"]:
            loss = float(value)
        elif words in (["acc"], ["accuracy"]):
            accuracy = float(value)
        else:
            others[clean] = float(value)
    return loss, accuracy, others
