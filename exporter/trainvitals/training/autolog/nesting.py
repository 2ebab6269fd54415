"""Determines which calls of optimizer hooks belong to the same step."""

from __future__ import annotations


class StepNesting:
    """Tracks the nested optimizer steps that are in progress; only the outermost step counts.

    One step calls the hooks several times if an optimizer wraps another optimizer, or calls the
    `step` of its base class. A step that raises an exception calls only the first hook.
    """

    __slots__ = ("_in_progress", "_lone")

    def __init__(self) -> None:
        self._in_progress: list[tuple[int, int]] = []  # the optimizer and the earlier passes
        self._lone: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._in_progress)

    def begin(self, optimizer: object, passes: int) -> bool:
        """Record the start of a step; return whether it is the outermost one.

        Args:
            optimizer: The optimizer.
            passes: The number of backward passes so far. If the same optimizer began a step before
                the last backward pass, that step raised an exception.
        """
        owner = id(optimizer)
        if self._in_progress and any(
            each == owner and before != passes for each, before in self._in_progress
        ):
            self._in_progress.clear()
        self._in_progress.append((owner, passes))
        return len(self._in_progress) == 1

    def end(self) -> bool:
        """Record the end of a step; return whether it was the outermost one."""
        if self._in_progress:
            self._in_progress.pop()
        return not self._in_progress

    def clear(self) -> None:
        """Record that no step is in progress."""
        self._in_progress.clear()

    def repeats(self, optimizer: object) -> bool:
        """Return whether an optimizer takes its second step since the last call of `count`.

        If neither backward passes nor batches can be observed, the second step is a new training
        step.
        """
        is_repeated = id(optimizer) in self._lone
        self._lone.add(id(optimizer))
        return is_repeated

    def count(self) -> None:
        """Record that a training step was counted."""
        self._lone.clear()
