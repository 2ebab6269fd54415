"""The sources of machine states, such as this machine, and the thread that reads a source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from trainvitals import __version__
from trainvitals.errors import TrainvitalsError
from trainvitals.sources.alerts import follow_alerts
from trainvitals.sources.files import name_machine
from trainvitals.views.machine.picture import Picture
from trainvitals.workers import attempt

if TYPE_CHECKING:
    from trainvitals.metrics.machine import MachineOptions

# The maximum time for a reading; after it, the values of the collectors that responded are shown.
_PATIENCE_SECONDS = 3.0
_SOON_SECONDS = 1.1  # rates require a second reading soon after the first


class Origin(Protocol):
    """A source of machine states."""

    @property
    def words(self) -> str:
        """The name of the source in the first line of the screen."""

    def look(self) -> Picture:
        """Return the current machine state.

        Raises:
            TrainvitalsError: The machine cannot be read.
        """

    def close(self) -> None:
        """Release all resources of the source."""


class LocalOrigin:
    """A source that collects the data of this machine in this process, as the exporter does.

    Args:
        options: The collectors to use and the paths that the collectors read.
        words: The name of the source in the first line of the screen.
        prometheus: The address of the Prometheus server to query for alerts; if None, no server is
            queried.
        alerts_wait_seconds: The maximum time to wait for the first response of the Prometheus
            server.

    Raises:
        ConfigurationError: The options or the address of the Prometheus server are invalid.
    """

    def __init__(
        self,
        options: MachineOptions,
        *,
        words: str = "read here",
        prometheus: str | None = None,
        alerts_wait_seconds: float = 0.0,
    ) -> None:
        # The collectors take long to import, and are not needed to show another machine.
        from trainvitals.metrics.machine import Machine  # noqa: PLC0415
        from trainvitals.views.machine.observer import Observer  # noqa: PLC0415

        self.words = words
        hostname = name_machine(options.roots)
        self._alerts = (
            follow_alerts(prometheus, hostname, flag="--prometheus") if prometheus else None
        )
        self._alerts_wait_seconds = alerts_wait_seconds
        self._machine = Machine(options)
        self._observer = Observer(__version__, roots=options.roots)

    def look(self) -> Picture:
        """Return the current machine state; a collector that hangs is reported as failed."""
        seen = self._machine.runner.snapshot(seconds=_PATIENCE_SECONDS)
        alerts, trouble = None, ""
        if self._alerts is not None:
            alerts, trouble = self._alerts.latest(self._alerts_wait_seconds)
        return self._observer.picture(seen, time.time(), alerts=alerts, alerts_trouble=trouble)

    def close(self) -> None:
        """Stop the collectors that read this machine."""
        self._machine.close()


@dataclass(frozen=True, slots=True)
class News:
    """The latest machine state, and whether the source still responds.

    Attributes:
        picture: The latest machine state.
        heard: The time at which the machine state was read, in Unix seconds.
        trouble: The reason why no later machine state could be read; an empty string if no later
            reading has failed.
    """

    picture: Picture
    heard: float
    trouble: str = ""


class Watch:
    """A separate thread that reads machine states, so that the screen is drawn without waiting.

    Args:
        origin: The source of the machine states.
        first: The machine state that is shown first.
        interval_seconds: The pause after each reading.
        wake: A function that the thread calls after each new machine state and after each failure.
        clock: A function that returns Unix seconds.

    Attributes:
        news: The latest machine state, and the reason why no later state could be read.
    """

    def __init__(
        self,
        origin: Origin,
        first: Picture,
        *,
        interval_seconds: float,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.news = News(first, clock())
        self._origin = origin
        self._interval_seconds = interval_seconds
        self._soon_seconds = min(_SOON_SECONDS, interval_seconds)
        self._wake = wake
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def start(self) -> None:
        """Start the thread that reads machine states."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading machine states; a hanging thread ends when the process ends."""
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
    return f"an error in trainvitals itself: {type(error).__name__}: {error}"
