"""Values that callbacks read from a framework: samples and tokens of a batch, losses, names.

Only shapes and lengths are read, which does not wait for a device.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from trainvitals.training.guard import Errors, guard

if TYPE_CHECKING:
    import torch

    from trainvitals.training.monitor import TrainingMonitor

_DEEPEST = 4
_MOST_MEMBERS = 64  # enough to know what they are


def count_samples(batch: object, *, depth: int = _DEEPEST) -> int | None:
    """Return the number of samples in a batch.

    The first dimension of the first member with a shape counts. Tensors that differ only in their
    first dimension are sequences of several lengths, each a sample, as are members without a shape
    (texts).

    Args:
        batch: Anything.
        depth: The maximum nesting of collections.

    Returns:
        The number; None if it cannot be determined.
    """
    graphs = getattr(batch, "num_graphs", None)
    if isinstance(graphs, int):
        return graphs
    shape = _find_shape(batch)
    if shape is not None:
        return int(shape[0]) if shape else None
    if depth == 0 or isinstance(batch, str | bytes):
        return None
    return _count_in_collection(batch, depth)


def _count_in_collection(batch: object, depth: int) -> int | None:
    members = list(islice(_iterate_members(batch), _MOST_MEMBERS))
    shapes = [shape for member in members if (shape := _find_shape(member))]
    if shapes:
        lengths = {shape[0] for shape in shapes}
        is_ragged = len(lengths) > 1 and len({shape[1:] for shape in shapes}) == 1
        return len(batch) if is_ragged and isinstance(batch, Sequence) else int(shapes[0][0])
    counts = (count_samples(member, depth=depth - 1) for member in members)
    found = next((count for count in counts if count is not None), None)
    if found is None and isinstance(batch, Sequence):
        return len(batch) or None
    return found


def count_tokens(batch: object, *, depth: int = 2) -> int | None:
    """Return the number of elements of `input_ids`, with padding; None if a batch has none."""
    ids = (
        batch.get("input_ids") if isinstance(batch, Mapping) else getattr(batch, "input_ids", None)
    )
    numel = getattr(ids, "numel", None)
    if callable(numel):
        return int(numel())
    if depth > 0 and isinstance(batch, list | tuple):
        counts = (count_tokens(member, depth=depth - 1) for member in batch)
        return next((count for count in counts if count is not None), None)
    return None


def _find_shape(value: object) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tuple) else None


def _iterate_members(batch: object) -> Iterator[object]:
    if isinstance(batch, Mapping):
        return iter(batch.values())
    if isinstance(batch, Sequence):
        return iter(batch)
    return iter(getattr(batch, "__dict__", {}).values())


class Handle(Protocol):
    """A registered hook."""

    def remove(self) -> None:
        """Remove the hook."""
        ...


class ForwardPasses:
    """The forward passes of a model, observed by hooks: samples, tokens and loss of a step.

    For frameworks whose callbacks receive neither inputs nor outputs. Every training forward marks
    the phases forward and backward; one of a model in evaluation mode marks validation. Forwards
    without gradients, inside compiled code and on threads other than the one that created this
    object are ignored.

    Args:
        monitor: Records the phases, and counts errors in the hooks.
        batch_size: Rows of a micro-batch, for steps whose forwards cannot be observed.
        ranks: The number of ranks whose items are in `num_items_in_batch`, by which a model
            divides its loss; 1 if it counts those of this rank only.
        count_tokens: Whether the elements of `input_ids` are tokens.

    Attributes:
        samples: Rows of the step's micro-batches.
        tokens: Elements of `input_ids` in the step's forwards; None if there was none.
        loss: The step's loss, a tensor on any device; None if the model does not return it.
        is_in_validation: Whether validation is marked.
        errors: The errors of the monitor.
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
        """Register the hooks on a model; anything that is not a `torch.nn.Module` is ignored."""
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
        """Remove the hooks."""
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
        """Mark validation, once per evaluation."""
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
        module: torch.nn.Module,  # noqa: ARG002 - torch passes it to every hook
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
        """Return one loss for all micro-batches, combined as the Trainer does.

        A model that received the number of items in the whole batch has divided by it, so the
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
    """A hook that is not copied, pickled or saved with its model.

    A copy of the model (for averaging, or written by `torch.save`) has a hook of the standard
    library that does nothing, so it loads without this package.

    Args:
        function: The function to call.
        is_compiling: Returns whether the call is being compiled; the hook then does nothing.
    """

    __slots__ = ("_function", "_is_compiling")

    def __init__(self, function: Callable[..., None], is_compiling: Callable[[], bool]) -> None:
        self._function = function
        self._is_compiling = is_compiling

    def __call__(self, *args: object) -> None:
        """Call the function, unless the model is being compiled."""
        if not self._is_compiling():
            self._function(*args)

    def __reduce__(self) -> tuple[object, ...]:
        return (getattr, (nullcontext(), "__exit__"))


_SEPARATORS = re.compile(r"[/._\- ]+")
_STAGES = frozenset(("val", "valid", "validation", "eval"))
_FIRST_LOADER = "/dataloader_idx_0"


def sort_validation(
    values: Mapping[str, object],
) -> tuple[float | None, float | None, dict[str, float]]:
    """Return the loss, the accuracy and the other values of an evaluation, by their names.

    `val_loss`, `valid/loss`, `loss` and the like are the loss, `val_acc` and the like the accuracy.
    Of values that a framework logs for the step and for the whole evaluation (`…_step`, `…_epoch`)
    only the latter count.

    Returns:
        The loss, the accuracy (None if there is none), and all other numbers.
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
