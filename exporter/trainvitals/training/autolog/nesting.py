"""Which calls of an optimizer's hooks belong to one step."""

from __future__ import annotations


class StepNesting:
    """The optimizer steps that are in progress, of which the outermost counts.

    A step calls the hooks several times if an optimizer is wrapped around another, or calls the
    `step` of its base class. A step that raises an exception calls the first hook only.

    Attributes:
        in_progress: The optimizers whose steps are in progress, each with the backward passes
            before.
        lone: The optimizers that have taken a step, where neither passes nor batches can be
            observed.
    """

    __slots__ = ("in_progress", "lone")

    def __init__(self) -> None:
        self.in_progress: list[tuple[int, int]] = []
        self.lone: set[int] = set()

    def begin(self, optimizer: object, passes: int) -> bool:
        """Record the start of a step; return whether it is the outermost one.

        Args:
            optimizer: The optimizer.
            passes: The number of backward passes so far. If the same optimizer began a step before
                the last of them, that step raised an exception.
        """
        owner = id(optimizer)
        if self.in_progress and any(
            each == owner and before != passes for each, before in self.in_progress
        ):
            self.in_progress.clear()
        self.in_progress.append((owner, passes))
        return len(self.in_progress) == 1

    def end(self) -> bool:
        """Record the end of a step; return whether it was the outermost one."""
        if self.in_progress:
            self.in_progress.pop()
        return not self.in_progress

    def repeats(self, optimizer: object) -> bool:
        """Return whether an optimizer takes a second step since `lone` was cleared.

        It then begins a new training step, where neither passes nor batches can be observed.
        """
        is_repeated = id(optimizer) in self.lone
        self.lone.add(id(optimizer))
        return is_repeated
