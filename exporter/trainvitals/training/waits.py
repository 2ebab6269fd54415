"""What lasts between two marks: a phase of a run, the wait for a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Marked(Protocol):
    """Who is told where phases begin."""

    @property
    def current_phase(self) -> str:
        """What is going on, by the last mark."""
        ...

    def mark(self, phase: str) -> None:
        """Learn that a phase begins."""
        ...

    def count_data_error(self) -> None:
        """Learn of an exception of the data loader."""
        ...


class PhaseContext(AbstractContextManager[None]):
    """One phase of a run; it gives way to the one before it.

    Args:
        marked: Who is told.
        name: The phase.
    """

    __slots__ = ("_before", "_marked", "_name")

    def __init__(self, marked: Marked, name: str) -> None:
        self._marked = marked
        self._name = name

    def __enter__(self) -> None:
        self._before = self._marked.current_phase
        self._marked.mark(self._name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # what an exception ended is what the run died in
            self._marked.mark(self._before)


class Batches(Iterator[Item]):
    """The batches of a loader, each waited for; one that raises may be asked for the next.

    Args:
        marked: Who is told.
        iterable: The loader.
    """

    __slots__ = ("_iterable", "_iterator", "_marked")

    def __init__(self, marked: Marked, iterable: Iterable[Item]) -> None:
        self._marked = marked
        self._iterable = iterable
        self._iterator: Iterator[Item] | None = None

    def __next__(self) -> Item:
        marked = self._marked
        marked.mark("data_wait")
        is_broken = True
        try:
            if self._iterator is None:  # which starts a loader's workers
                self._iterator = iter(self._iterable)
            item = next(self._iterator)
            is_broken = False
        except (StopIteration, KeyboardInterrupt):
            is_broken = False
            raise
        finally:
            if is_broken:
                marked.count_data_error()
        marked.mark("other")
        return item
