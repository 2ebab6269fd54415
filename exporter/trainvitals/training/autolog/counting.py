"""Counts the steps of a training loop with any number of optimizers, and the batches' samples."""

from __future__ import annotations

import weakref
from collections import deque

from trainvitals.training.frameworks import count_samples, count_tokens

_MOST_SILENT = 50
_MOST_OPTIMIZERS = 1000
_MOST_AHEAD = 2


class StepCounter:
    """Counts training steps as the steps of the leading optimizer, which has taken the most steps.

    In adversarial training, for example, two optimizers take steps after separate backward passes.
    If the leading optimizer no longer exists, or has not taken any of the last 50 steps, the next
    optimizer that takes a step becomes the leading optimizer and continues the count.

    Attributes:
        steps: The number of training steps so far.
    """

    __slots__ = ("_counts", "_leader", "_silent", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self._counts: dict[int, int] = {}
        self._leader: weakref.ref[object] | None = None
        self._silent = 0

    def count(self, optimizer: object) -> bool:
        """Count an optimizer's step; return whether the step is a new training step."""
        owner = id(optimizer)
        count = self._counts.get(owner, 0) + 1
        if count <= self.steps:
            self._silent += 1
            if self._silent < _MOST_SILENT and not self._is_leader_gone():
                self._counts[owner] = count
                return False
            count = self.steps + 1
        self._counts[owner] = self.steps = count
        self._silent = 0
        if self._leader is None or self._leader() is not optimizer:
            self._lead(owner, optimizer)
        return True

    def _is_leader_gone(self) -> bool:
        return self._leader is not None and self._leader() is None

    def _lead(self, owner: int, optimizer: object) -> None:
        if len(self._counts) > _MOST_OPTIMIZERS:  # optimizers that existed only for a few steps
            self._counts = {owner: self.steps}
        self._leader = weakref.ref(optimizer)


class Batches:
    """Counts the samples and tokens in the batches that are used for training.

    A loop may fetch a batch before it has used the previous batch, so up to two batches are kept.
    """

    __slots__ = (
        "_ahead",
        "_has_tokens",
        "_is_first",
        "_plain",
        "_samples",
        "_tokens",
        "_uncertain",
    )

    def __init__(self) -> None:
        self._ahead: deque[tuple[int, int | None]] = deque(maxlen=_MOST_AHEAD)
        self._uncertain: tuple[int, int | None] | None = None
        self._has_tokens = self._is_first = True
        self._plain: type | None = None
        self._samples = 0
        self._tokens: int | None = None

    def take(self) -> tuple[int, int | None]:
        """Return the numbers of samples and tokens in the backward passes since the last call.

        The number of tokens is None if the batches have no `input_ids`.
        """
        samples, tokens = self._samples, self._tokens
        self._samples, self._tokens = 0, None
        return samples, tokens

    def fetch(self, batch: object, *, is_certain: bool = True) -> None:
        """Record that a batch was fetched.

        Args:
            batch: The batch.
            is_certain: Whether the batch is known to be used for training. Any other batch is
                counted only after a call of `confirm`.
        """
        tokens = count_tokens(batch) if self._has_tokens else None
        shape = getattr(batch[0], "shape", None) if type(batch) is self._plain and batch else None  # type: ignore[index] # a sequence
        counts = (int(shape[0]) if shape else count_samples(batch) or 0, tokens)
        if is_certain:
            if self._is_first:  # all batches have the same structure
                self._has_tokens, self._is_first = tokens is not None, False
                self._plain = type(batch) if _is_plain(batch) else None
            self._ahead.append(counts)
        else:
            self._uncertain = counts

    def confirm(self) -> None:
        """Record that the last uncertain batch was used for training."""
        if self._uncertain is not None:
            self._ahead.append(self._uncertain)
            self._uncertain = None

    def use(self) -> None:
        """Record a backward pass, and count the oldest fetched batch that has not been counted."""
        if self._ahead:
            self.add(*self._ahead.popleft())

    def add(self, samples: int, tokens: int | None) -> None:
        """Add the samples and tokens of one backward pass."""
        self._samples += samples
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens


def _is_plain(batch: object) -> bool:
    """Return whether the first dimension of a batch's first tensor is the number of samples.

    If the tensors differ only in their first dimensions, each tensor may be one sample.
    """
    if type(batch) not in {list, tuple} or not batch:
        return False
    shapes = [tuple(getattr(member, "shape", ())) for member in batch]  # type: ignore[attr-defined]
    return bool(shapes[0]) and (len(shapes) == 1 or len({shape[1:] for shape in shapes}) > 1)
