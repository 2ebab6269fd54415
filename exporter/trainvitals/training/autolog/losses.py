"""The loss of a step, sampled about once a second, without waiting for the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_SAMPLE_SECONDS = 1.0


class LossSampler:
    """The values on which the backward passes of a step were called, before they were scaled.

    The loss of a step is the sum of these values. Passes inside an optimizer's step are repeated
    evaluations of the same loss, of which the first counts.

    Args:
        torch: The module `torch`.
        monotonic: A clock that never jumps, in seconds.

    Attributes:
        due: The time from which the loss of the next step is taken.
        holds_any: Whether a tensor is held until the end of the step.
        is_stale: Whether the gradients so far are discarded if another backward pass follows.
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
        """Record that `scaled` is a multiple of the loss."""
        self._scaled = (id(scaled), loss)
        self.holds_any = True

    def take(self, value: Any, *, parts: float = 1, is_repeated: bool = False) -> None:  # noqa: ANN401 - any value of the program
        """Record the start of a backward pass.

        Args:
            value: The value on which `backward` was called.
            parts: The number by which a framework divides the value.
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
        self._scaled = (0, None)  # the loss holds all that its backward pass needs
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

        A tensor of another class may need a collective operation to give its value.
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
