"""How much work followed files get in one reading, and who is next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")

_BUDGET_SECONDS = 0.25
_MARGIN_SECONDS = 0.05
_SEARCH_INTERVAL_SECONDS = 2.0
_SEARCHES_TAKE_AT_MOST = 0.05


class Turns(Generic[Item]):
    """Shares a quarter of a second among files, so that a large one never holds up a scrape.

    Whoever was not reached is first the next time. A search for files is due every two seconds, or
    more rarely where searching takes long: it shall take a twentieth of the time at most.

    Args:
        monotonic: Tells the time of the deadline.
    """

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends_at = 0.0
        self._first = 0
        self._next_search = float("-inf")

    def is_search_due(self) -> bool:
        """Tell whether it is time to look for files."""
        return self._monotonic() >= self._next_search

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Take note of how long a search takes."""
        started = self._monotonic()
        yield
        now = self._monotonic()
        self._next_search = now + max(
            _SEARCH_INTERVAL_SECONDS, (now - started) / _SEARCHES_TAKE_AT_MOST
        )

    def take(self, items: Sequence[Item], deadline: float) -> Iterator[Item]:
        """Give one after the other, as long as there is time; at least one."""
        self._ends_at = min(self._monotonic() + _BUDGET_SECONDS, deadline - _MARGIN_SECONDS)
        first = self._first % len(items) if items else 0
        for count, item in enumerate([*items[first:], *items[:first]]):
            if count and self.is_over():
                return
            yield item
            self._first = first + count + 1

    def is_over(self) -> bool:
        """Tell whether the time for this reading is over."""
        return self._monotonic() >= self._ends_at
