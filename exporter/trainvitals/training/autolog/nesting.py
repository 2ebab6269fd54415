"""Determines which calls of optimizer hooks belong to the same step."""

from __future__ import annotations


class StepNesting:
    """Tracks the nested optimizer steps that are in progress; only the outermost step counts.

    One step calls the hooks several times if an optimizer wraps another optimizer, or calls the
    `step` of its base class. A step that raises an exception calls only the first hook.

    Attributes:
        in_progress: The identities of the optimizers whose steps are in progress, each with the
            number of backward passes before the step.
        lone: The identities of the optimizers that have taken a step since the last training step,
            if neither backward passes nor batches can be observed.
    """

    __slots__ = ("in_progress", "lone")

    def __init__(self) -> None:
        self.in_progress: list[tuple[int, int]] = []
        self.lone: set[int] = set()

    def begin(self, optimizer: object, passes: int) -> bool:
        """Record the start of a step; return whether the step is the outermost step.

        Args:
            optimizer: The optimizer.
            passes: The number of backward passes so far. If the same optimizer began a step before
                the last backward pass, that step raised an exception.
        """
        owner = id(optimizer)
        if self.in_progress and any(
            each == owner and before != passes for each, before in self.in_progress
        ):
            self.in_progress.clear()
        self.in_progress.append((owner, passes))
        return len(self.in_progress) == 1

    def end(self) -> bool:
        """Record the end of a step; return whether the step was the outermost step."""
        if self.in_progress:
            self.in_progress.pop()
        return not self.in_progress

    def repeats(self, optimizer: object) -> bool:
        """Return whether `optimizer` has already taken a step since the last training step.

        The method also records the step of `optimizer`. If neither backward passes nor batches can
        be observed, such a repeated step begins a new training step.
        """
        is_repeated = id(optimizer) in self.lone
        self.lone.add(id(optimizer))
        return is_repeated
