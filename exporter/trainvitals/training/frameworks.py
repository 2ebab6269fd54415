"""Values that callbacks read from a framework, such as sample counts, token counts and losses.

The functions that count samples and tokens read only shapes and lengths. They do not wait for a
device.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from operator import itemgetter
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from trainvitals.training.guard import Errors, guard

if TYPE_CHECKING:
    import torch

    from trainvitals.training.monitor import TrainingMonitor

_DEEPEST = 4
_MOST_MEMBERS = 64  # enough members to determine the types in a collection


def count_samples(batch: object, *, depth: int = _DEEPEST) -> int | None:
    """Return the number of samples in a batch.

    The number of samples is `num_graphs` if the batch has this attribute, and otherwise the first
    dimension of the first member with a shape. If tensors differ only in their first dimension,
    they are sequences of different lengths, and each tensor counts as one sample. If no member has
    a shape, as in a list of texts, each member counts as one sample.

    Args:
        batch: The batch that the data loader returned, an object of any type.
        depth: The maximum nesting depth of collections.

    Returns:
        The number of samples; None if it cannot be determined.
    """
    graphs = getattr(batch, "num_graphs", None)
    if isinstance(graphs, int):
        return graphs
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        return int(shape[0]) if shape else None
    if depth == 0 or isinstance(batch, str | bytes):
        return None
    return _count_in_collection(batch, depth)


def _count_in_collection(batch: object, depth: int) -> int | None:
    members = list(islice(_iterate_members(batch), _MOST_MEMBERS))
    shapes = [
        shape
        for each in members
        if isinstance(shape := getattr(each, "shape", None), tuple) and shape
    ]
    if shapes:
        lengths = set(map(itemgetter(0), shapes))
        is_ragged = len(lengths) > 1 and len({shape[1:] for shape in shapes}) == 1
        return len(batch) if is_ragged and isinstance(batch, Sequence) else int(shapes[0][0])
    counts = (count_samples(member, depth=depth - 1) for member in members)
    found = next((count for count in counts if count is not None), None)
    if found is None and isinstance(batch, Sequence):
        return len(batch) or None
    return found


def count_tokens(batch: object, *, depth: int = 2) -> int | None:
    """Return the number of elements in `input_ids`, including padding; None without `input_ids`."""
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


def _iterate_members(batch: object) -> Iterator[object]:
    if isinstance(batch, list | tuple):  # faster than a test for an abstract class
        return iter(batch)
    if isinstance(batch, Mapping):
        return iter(batch.values())
    if isinstance(batch, Sequence):
        return iter(batch)
    return iter(getattr(batch, "__dict__", {}).values())


class Handle(Protocol):
    """A handle that removes a hook from the model on which the hook is registered."""

    def remove(self) -> None:
        """Remove the hook from the model."""
        ...


class ForwardPasses:
    """An observer of a model's forward passes, which provides a step's samples, tokens and loss.

    This class is for frameworks whose callbacks receive neither inputs nor outputs. Each forward
    pass in training mode marks the phases forward and backward. A forward pass in evaluation mode
    marks the validation phase. Other forward passes are ignored: those without gradients, those in
    compiled code, and those on a thread that did not create this object.

    Args:
        monitor: The monitor that records the phases and counts errors in the hooks.
        batch_size: The number of rows in a micro-batch, which is used for steps whose forward
            passes cannot be observed.
        ranks: The number of ranks whose items `num_items_in_batch` counts; 1 if only the items of
            this rank are counted. A model divides its loss by `num_items_in_batch`.
        count_tokens: Whether the elements of `input_ids` are tokens.

    Attributes:
        samples: The number of rows in the step's micro-batches.
        tokens: The number of elements of `input_ids` in the step's forward passes; None if
            `input_ids` was never passed.
        loss: The step's loss, a tensor on any device; None if the model does not return the loss.
        is_in_validation: Whether the validation phase is marked.
        errors: The monitor's counter of internal errors.
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
        """Remove the hooks from the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def start_step(self) -> None:
        """Start a step and its first micro-batch."""
        self.samples, self.tokens, self.loss = 0, None, None
        self._losses = []
        self._micro_batches = self._forwards = 0
        self._is_scaled = self.is_in_validation = False

    def end_micro_batch(self) -> None:
        """End a micro-batch that is not the last one of the step."""
        self._micro_batches += 1
        if self._forwards == 0:
            self.samples += self._batch_size
        self._forwards = 0

    def end_step(self) -> None:
        """End the last micro-batch; `samples`, `tokens` and `loss` then describe the whole step."""
        self.end_micro_batch()
        self.loss = self._combine()

    def mark_validation(self) -> None:
        """Mark the validation phase, once in each evaluation."""
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
        # A second forward pass in a micro-batch (two towers of one model) processes the same
        # samples.
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
            # With several ranks, the Trainer scales the loss in place after this hook has run.
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
        """Return the step's loss, combined from the losses of its micro-batches as in the Trainer.

        If the model received the number of items in the whole batch, it divided each loss by this
        number, so the losses are summed. Otherwise each loss is a mean, and the step's loss is the
        mean of these losses. The result is None if the loss of a micro-batch is missing.
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

    In a copy of the model, such as a copy for averaging or a file written by `torch.save`, the hook
    is replaced by a function of the standard library that does nothing. The copy can therefore be
    loaded without this package.

    Args:
        function: The function that the hook calls.
        is_compiling: A function that returns whether the call of the model is being compiled. While
            it is, the hook does nothing.
    """

    __slots__ = ("_function", "_is_compiling")

    def __init__(self, function: Callable[..., None], is_compiling: Callable[[], bool]) -> None:
        self._function = function
        self._is_compiling = is_compiling

    def __call__(self, *args: object) -> None:
        """Call the hook's function, unless the model is being compiled."""
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
    """Find the loss, the accuracy and the other values of an evaluation by name.

    Names such as `val_loss`, `valid/loss` and `loss` denote the loss; names such as `val_acc`
    denote the accuracy. If a framework logs a value both for the step and for the whole evaluation
    (`…_step` and `…_epoch`), only the latter is used.

    Returns:
        The loss (None if no value is a loss), the accuracy (None if no value is an accuracy), and
        all other numbers by name.
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
