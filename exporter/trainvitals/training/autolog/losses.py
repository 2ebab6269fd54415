"""Samples the loss of a step about once a second without waiting for the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_SAMPLE_SECONDS = 1.0


class LossSampler:
    """Samples the loss of a step from the step's backward passes.

    The loss of a step is the sum of the values on which `backward` was called. If a gradient scaler
    multiplied a value, the value before the multiplication is used. Backward passes inside an
    optimizer's step repeat the evaluation of the same loss, so only the first such pass counts.

    Args:
        torch: The module `torch`.
        monotonic: A function that returns the time of a monotonic clock, in seconds.

    Attributes:
        due: The time from which the loss of the next step is sampled, on the monotonic clock.
        holds_any: Whether a tensor is kept until the end of the step.
        is_stale: Whether the program has discarded the gradients of the backward passes so far.
    """

    __slots__ = (
        "_is_sampling",
        "_monotonic",
        "_passes",
        "_scaled",
        "_torch",
        "due",
        "holds_any",
        "is_stale",
    )
    due: float

    def __init__(self, torch: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:  # noqa: ANN401 - a module
        self._torch = torch
        self._monotonic = monotonic
        self.due = 0.0
        self._passes: list[Any] = []
        self._is_sampling = self.holds_any = self.is_stale = False
        self._scaled: tuple[int, Any] = (0, None)

    def scale(self, scaled: object, loss: object) -> None:
        """Record that a gradient scaler returned `scaled` for `loss`."""
        self._scaled = (id(scaled), loss)
        self.holds_any = True

    def take(self, value: Any, *, parts: float = 1, is_repeated: bool = False) -> None:  # noqa: ANN401 - any value of the program
        """Record the start of a backward pass.

        Args:
            value: The value on which `backward` was called.
            parts: The number by which a framework divides the value before the backward pass.
            is_repeated: Whether the pass is inside an optimizer's step.
        """
        if self.is_stale:
            self._passes.clear()
            self.is_stale = False
        if not self._passes:
            self._is_sampling = self._monotonic() >= self.due
        if not self._is_sampling:
            return
        scaled, loss = self._scaled
        self._scaled = (0, None)  # a loss keeps its graph, and thereby the saved tensors, in memory
        if scaled == id(value):
            value = loss
        if self._is_readable(value) and not (is_repeated and self._passes):
            value = value.detach()
            self._passes.append(value if parts == 1 else value / parts)
            self.holds_any = True

    def end_step(self, *, is_counted: bool) -> Any:  # noqa: ANN401 - a tensor
        """Return the loss of a step; None if the loss was not sampled or the step is not counted."""
        self.holds_any, self.is_stale, self._scaled = False, False, (0, None)
        if not self._passes:
            return None
        loss = sum(self._passes[1:], self._passes[0])
        self._passes.clear()
        if not is_counted:
            return None
        self.due = self._monotonic() + _SAMPLE_SECONDS
        return loss

    def _is_readable(self, value: Any) -> bool:  # noqa: ANN401 - any value of the program
        """Return whether a value can be copied without an effect on the program.

        Tensors of other classes are not read, because this may require a collective operation.
        """
        return (
            type(value) is self._torch.Tensor
            and value.numel() == 1
            and value.device.type != "meta"
            and not self._is_capturing()
        )

    def _is_capturing(self) -> bool:
        """Return whether the current stream is being captured in a CUDA graph."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
