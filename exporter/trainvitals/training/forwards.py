"""The forward passes of a model, seen by hooks: samples, tokens and loss of an optimizer step.

For frameworks that do not show their callbacks what goes into a model and what comes out of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from trainvitals.training.outer import Errors, guard

if TYPE_CHECKING:
    import torch

    from trainvitals.training.monitor import TrainingMonitor


class Handle(Protocol):
    """A hook that can be taken off."""

    def remove(self) -> None:
        """Take it off."""
        ...


class ForwardPasses:
    """Watches the forward passes of one optimizer step after the other.

    Every training forward marks the phases forward and backward; one of a model in evaluation mode
    marks validation. Forwards without gradients, inside compiled code and on other threads than
    the one that made this object are left alone.

    Args:
        monitor: Whose phases are marked, and who counts what goes wrong in the hooks.
        batch_size: Rows of a micro-batch, for steps whose forwards cannot be seen.
        ranks: By how many ranks' batches a model divides a loss that is given
            `num_items_in_batch`; 1 where it is the rank's own.
        count_tokens: Whether the elements of `input_ids` are tokens.

    Attributes:
        samples: Rows of the step's micro-batches.
        tokens: Elements of `input_ids` in the step's forwards; None where there was none.
        loss: The step's loss, a tensor on whatever device it was computed; None where the model
            does not return it.
        is_in_validation: Validation is marked.
        errors: The monitor's.
    """

    def __init__(
        self,
        monitor: TrainingMonitor,
        *,
        batch_size: int,
        ranks: int = 1,
        count_tokens: bool = True,
    ) -> None:
        self.errors: Errors = monitor.errors
        self.samples = 0
        self.tokens: int | None = None
        self.loss: torch.Tensor | None = None
        self.is_in_validation = False
        self._monitor = monitor
        self._batch_size = batch_size
        self._ranks = ranks
        self._count_tokens = count_tokens
        self._thread = get_ident()
        self._handles: list[Handle] = []
        self._losses: list[torch.Tensor] = []
        self._is_scaled = False
        self._is_inside = False
        self._forwards = 0
        self._micro_batches = 0

    def watch(self, model: object) -> None:
        """Put the hooks on a model; anything that is none is left alone."""
        loaded = sys.modules.get("torch")
        if loaded is None or not isinstance(model, loaded.nn.Module):
            return
        self._is_grad_enabled: Callable[[], bool] = loaded.is_grad_enabled
        self._tensor: type[torch.Tensor] = loaded.Tensor
        is_compiling: Callable[[], bool] = loaded.compiler.is_compiling
        self._is_tracing: Callable[[], bool] = loaded.jit.is_tracing
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before, is_compiling), with_kwargs=True),
            model.register_forward_hook(Hook(self._after, is_compiling), with_kwargs=True),
        ]

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def start_step(self) -> None:
        """Begin a step, at its first micro-batch."""
        self.samples, self.tokens, self.loss = 0, None, None
        self._losses = []
        self._micro_batches = self._forwards = 0
        self._is_scaled = self.is_in_validation = False

    def end_micro_batch(self) -> None:
        """End a micro-batch of the step."""
        self._micro_batches += 1
        if self._forwards == 0:
            self.samples += self._batch_size
        self._forwards = 0

    def end_step(self) -> None:
        """End the last micro-batch; `samples`, `tokens` and `loss` are the step's from now on."""
        self.end_micro_batch()
        self.loss = self._combine()

    def mark_validation(self) -> None:
        """Say, once for each evaluation, that it goes on."""
        if not self.is_in_validation:
            self.is_in_validation = True
            self._monitor.mark("validation")

    @guard
    def _before(
        self, module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        if get_ident() != self._thread or self._is_tracing():
            return
        if not module.training:
            self.mark_validation()
            return
        if not self._is_grad_enabled():
            return
        self._is_inside = True
        self._monitor.mark("forward")
        # A second forward in a micro-batch (two towers of one model) sees the same samples.
        if self._forwards == 0:
            self.samples += self._count_rows(kwargs, args)
        self._forwards += 1
        tokens = kwargs.get("input_ids")
        if self._count_tokens and isinstance(tokens, self._tensor):
            self.tokens = (self.tokens or 0) + tokens.numel()

    @guard
    def _after(
        self,
        module: torch.nn.Module,  # noqa: ARG002 - torch gives it to every hook
        args: Sequence[object],  # noqa: ARG002 - likewise
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        if not self._is_inside or get_ident() != self._thread:
            return
        self._is_inside = False
        self._monitor.mark("backward")
        loss = self._find_loss(output)
        if loss is not None:
            # The Trainer scales the loss of several ranks in place, after us.
            self._losses.append(loss if self._ranks == 1 else loss.clone())
            self._is_scaled = kwargs.get("num_items_in_batch") is not None

    def _count_rows(self, kwargs: Mapping[str, object], args: Sequence[object]) -> int:
        for value in (kwargs.get("input_ids"), *kwargs.values(), *args):
            if isinstance(value, self._tensor) and value.ndim:
                return int(value.shape[0])
        return self._batch_size

    def _find_loss(self, output: object) -> torch.Tensor | None:
        if isinstance(output, Mapping):
            loss = output.get("loss")
        elif isinstance(output, tuple):
            loss = output[0] if output else None
        else:
            loss = getattr(output, "loss", None)
        if not isinstance(loss, self._tensor) or loss.numel() != 1:
            return None
        detached: torch.Tensor = loss.detach()
        return detached

    def _combine(self) -> torch.Tensor | None:
        """Make one loss of the micro-batches' as the Trainer does.

        A model that was given the number of items in the whole batch has divided by it, so the
        parts are summed; otherwise each is a mean, and so is the step's.
        """
        if not self._losses or len(self._losses) != self._micro_batches:
            return None
        scale = self._ranks if self._is_scaled else 1 / len(self._losses)
        if len(self._losses) == 1 and scale == 1:
            return self._losses[0]
        total = self._losses[0]
        for loss in self._losses[1:]:
            total = total + loss
        return total * scale


class Hook:
    """A hook that stays behind when its model is copied, pickled or saved.

    A copy of the model (for averaging, or written by `torch.save`) has a hook that does nothing, of
    the standard library's making, and needs this package neither to be made nor to be loaded.

    Args:
        function: What is called.
        is_compiling: Tells whether the call is being compiled, which drops it.
    """

    __slots__ = ("_function", "_is_compiling")

    def __init__(self, function: Callable[..., None], is_compiling: Callable[[], bool]) -> None:
        self._function = function
        self._is_compiling = is_compiling

    def __call__(self, *args: object) -> None:
        """Call the function, unless what it would see is being compiled."""
        if not self._is_compiling():
            self._function(*args)

    def __reduce__(self) -> tuple[object, ...]:
        return (getattr, (nullcontext(), "__exit__"))
