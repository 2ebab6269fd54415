"""Where pictures come from, and the thread that fetches them, so that drawing never waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from trainvitals.crew import attempt
from trainvitals.errors import TrainvitalsError
from trainvitals.overview.picture import Picture


class Origin(Protocol):
    """Somebody who can tell how the machine is."""

    @property
    def words(self) -> str:
        """Who it is, as the head of the screen says it."""

    def look(self) -> Picture:
        """Give the picture as it is now.

        Raises:
            TrainvitalsError: There is none to be had.
        """

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True, slots=True)
class News:
    """The newest picture, and whether more come.

    Attributes:
        picture: The newest one.
        heard: When it came, seconds since 1970.
        trouble: Why the next one did not come; empty when it did, or is not due.
    """

    picture: Picture
    heard: float
    trouble: str = ""


class Watch:
    """Looks again and again, on a thread of its own.

    Args:
        origin: Whom to ask.
        first: The picture that there is already.
        interval_seconds: How long to wait after each answer.
        wake: Called on that thread when there is news.
        soon_seconds: How long to wait before the first look, for rates take two.
        clock: The time of day, in seconds since 1970.

    Attributes:
        news: The newest.
    """

    def __init__(
        self,
        origin: Origin,
        first: Picture,
        *,
        interval_seconds: float,
        wake: Callable[[], None],
        soon_seconds: float = 1.1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.news = News(first, clock())
        self._origin = origin
        self._interval_seconds = interval_seconds
        self._soon_seconds = min(soon_seconds, interval_seconds)
        self._wake = wake
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; who hangs in a look is left to end with the process."""
        self._ended.set()

    def _look(self) -> None:
        wait = self._soon_seconds
        while not self._ended.wait(wait):
            wait = self._interval_seconds
            outcome = attempt("picture", self._origin.look)
            if outcome.value is not None:
                self.news = News(outcome.value, self._clock())
            else:
                self.news = replace(self.news, trouble=_explain(outcome.error))
            if not self._ended.is_set():
                self._wake()


def _explain(error: Exception | None) -> str:
    if isinstance(error, TrainvitalsError):
        return str(error)
    return f"a fault of trainvitals itself: {type(error).__name__}: {error}"
