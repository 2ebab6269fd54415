"""Facts that several checks need and one of them reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from trainvitals.crew import Outcome, attempt

Fact = TypeVar("Fact")


class Once(Generic[Fact]):
    """Reads something for the first who asks; the others wait for it.

    Args:
        read: Reads it. What it raises is raised for everybody who asks.
    """

    def __init__(self, read: Callable[[], Fact]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._outcome: Outcome[Fact] | None = None

    def __call__(self) -> Fact:
        """Give what was read."""
        with self._lock:
            if self._outcome is None:
                self._outcome = attempt("", self._read)
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.value  # type: ignore[return-value]  # it returned, or there is an error
