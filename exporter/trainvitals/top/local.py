"""The machine, read in this process as the exporter reads it."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainvitals import __version__
from trainvitals.errors import ConfigurationError
from trainvitals.machine import Machine, MachineOptions
from trainvitals.overview.observer import Observer, name_machine
from trainvitals.overview.picture import Picture
from trainvitals.web.live.firing import FiringAlerts, read_prometheus_url

_PATIENCE_SECONDS = 3.0


class LocalOrigin:
    """Reads this machine.

    Args:
        options: What to look at, and where.
        words: Who this is, as the head of the screen says it.
        prometheus: The address of the Prometheus that knows what fires; None for none.
        patience_seconds: How long one look waits for what does not answer; the rest is there.
        clock: The time of day, in seconds since 1970.

    Raises:
        ConfigurationError: The options cannot be used, or the address of the Prometheus is none.
    """

    def __init__(
        self,
        options: MachineOptions,
        *,
        words: str = "read here",
        prometheus: str | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.words = words
        self._alerts = _find_alerts(prometheus, options)
        self._machine = Machine(options)
        self._observer = Observer(__version__, roots=options.roots)
        self._patience_seconds = patience_seconds
        self._clock = clock

    def look(self) -> Picture:
        """Give the picture as it is now; what hangs is missing, and the collectors say so."""
        seen = self._machine.runner.snapshot(seconds=self._patience_seconds)
        alerts, trouble = (None, "") if self._alerts is None else self._alerts.latest()
        return self._observer.picture(seen, self._clock(), alerts=alerts, alerts_trouble=trouble)

    def close(self) -> None:
        """Stop reading."""
        self._machine.close()


def _find_alerts(url: str | None, options: MachineOptions) -> FiringAlerts | None:
    if not url:
        return None
    try:
        fetch = read_prometheus_url(url)
    except ConfigurationError as error:
        raise ConfigurationError(
            "--prometheus is no address of a Prometheus; give one as http://localhost:9090"
        ) from error
    return FiringAlerts(fetch, name_machine(options.roots))
