"""Detects when a training loop evaluates its model instead of training the model."""

from __future__ import annotations

import weakref
from typing import Any

_MOST_UNUSED = 2


class Evaluations:
    """Detects evaluations from the modes of models and from how batches are used.

    A model in evaluation mode indicates an evaluation. If a backward pass shows that another model
    is being trained, as in distillation, the model in evaluation mode is ignored. If no model is in
    evaluation mode, batches are used for an evaluation in two cases: gradients are disabled when
    the batches are fetched, or no backward pass has followed the last three fetched batches.

    Attributes:
        is_fetching: Whether the latest batch is used for an evaluation.
    """

    __slots__ = ("_evaluated", "_has_gradients", "_others", "_unused", "is_fetching")

    def __init__(self) -> None:
        self._evaluated: weakref.ref[Any] | None = None
        self._others: dict[int, weakref.ref[Any]] = {}
        self._unused = 0
        self._has_gradients = True
        self.is_fetching = False

    def set_mode(self, module: Any) -> str | None:  # noqa: ANN401 - a module of PyTorch
        """Record that a model's mode was set; return the new phase; None if no phase begins."""
        if next(module.children(), None) is None:
            return None  # a single layer in evaluation mode is frozen rather than evaluated
        if module.training:
            was_evaluated, self._evaluated = self._evaluated is not None, None
            return "other" if was_evaluated else None
        known = self._others.get(id(module))
        if known is not None and known() is module:
            return None
        self._evaluated = weakref.ref(module)
        return "validation"

    def begin_fetch(self, has_gradients: bool, has_passes: bool) -> bool:  # noqa: FBT001 - on every step
        """Return whether the next batch is used for an evaluation.

        Args:
            has_gradients: Whether gradients are enabled.
            has_passes: Whether backward passes can be observed in this process.
        """
        self._has_gradients = has_gradients
        self.is_fetching = (
            self._evaluated is not None
            or not has_gradients
            or (self._unused > _MOST_UNUSED and has_passes)
        )
        return self.is_fetching

    def end_fetch(self) -> bool:
        """Record that a batch was fetched; return whether the batch may be used for training."""
        if self._has_gradients and self._evaluated is None:
            self._unused += 1
        return self._has_gradients

    def use_batch(self) -> bool:
        """Record a backward pass; return whether another model is in evaluation mode."""
        self._unused = 0
        if self._evaluated is None:
            return False
        module, self._evaluated = self._evaluated(), None
        if module is None or module.training:
            return False
        self._others[id(module)] = weakref.ref(module)
        return True
