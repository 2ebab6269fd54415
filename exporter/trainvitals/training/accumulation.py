"""The totals of an optimizer step that accumulates the gradients of several batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from trainvitals.training.monitor import TrainingMonitor


class AccumulatedStep:
    """The totals of the batches in an optimizer step so far.

    Attributes:
        learning_rate: The learning rate of the first parameter group; None if the learning rate is
            unknown.
    """

    __slots__ = ("_losses", "_samples", "_tokens", "learning_rate")

    def __init__(self) -> None:
        self.learning_rate: float | None = None
        self._samples = 0
        self._tokens: int | None = None
        self._losses: list[Tensor] = []

    def add(self, samples: int, tokens: int | None, loss: Tensor | None) -> None:
        """Add a batch to the totals of the step.

        Args:
            samples: The number of samples in the batch.
            tokens: The number of tokens in the batch; None if tokens are not counted.
            loss: The loss of the batch, already divided by the argument `parts` of `record`; None
                if the loss is unknown.
        """
        self._samples += samples
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens
        if loss is not None:
            self._losses.append(loss)

    def record(self, monitor: TrainingMonitor, *, parts: int, global_step: int) -> None:
        """Record the end of the optimizer step in a monitor.

        Args:
            monitor: The monitor in which the step is recorded.
            parts: The number by which each batch loss was divided. The number of batches added may
                differ.
            global_step: The number of the optimizer step.
        """
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
