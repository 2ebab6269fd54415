"""An optimizer step that is made of several batches, as gradients are accumulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from trainvitals.training.monitor import TrainingMonitor


class AccumulatedStep:
    """The totals of an optimizer step over its batches so far.

    Attributes:
        learning_rate: The rate of the first group; None if unknown.
    """

    __slots__ = ("_losses", "_samples", "_tokens", "learning_rate")

    def __init__(self) -> None:
        self.learning_rate: float | None = None
        self._samples = 0
        self._tokens: int | None = None
        self._losses: list[Tensor] = []

    def add(self, samples: int, tokens: int | None, loss: Tensor | None) -> None:
        """Add a batch.

        Args:
            samples: Its samples.
            tokens: Its tokens; None if they are not counted.
            loss: Its loss, already divided by the number of parts; None if there is none.
        """
        self._samples += samples
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens
        if loss is not None:
            self._losses.append(loss)

    def record(self, monitor: TrainingMonitor, *, parts: int, global_step: int) -> None:
        """Record the end of the step; each loss was divided by `parts`, whatever their number."""
        loss: Tensor | None = None
        for part in self._losses:
            loss = part if loss is None else loss + part
        if loss is not None and len(self._losses) != parts:
            loss = loss * (parts / len(self._losses))
        monitor.update_batch(
            self._samples,
            loss=loss,
            tokens=self._tokens,
            learning_rate=self.learning_rate,
            global_step=global_step,
        )
