"""Read the firing alerts from a Prometheus server.

While callers read the alerts, Prometheus is queried in the background, at most once every
`INTERVAL_SECONDS`. A call returns the latest answer. Only a caller that shows the alerts once waits
for the first answer.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainvitals.sources.prometheus import ActiveAlert, Prometheus, find_prometheus
from trainvitals.sources.timestamps import parse_time
from trainvitals.workers import attempt

INTERVAL_SECONDS = 5.0
TIMEOUT_SECONDS = 3.0
SERVED_SECONDS = 30.0
MOST_ALERTS = 256
MOST_BYTES = 4_000_000
NOT_ASKED_YET = "not known yet: Prometheus has not answered"

_SEVERITIES = ("critical", "warning", "info")
_SUBJECTS = ("run", "name", "mountpoint", "interface", "collector", "job")
_JOB = "trainvitals"
_MOST_CHARACTERS = 512

Fetch = Callable[[], Iterable[ActiveAlert]]


@dataclass(frozen=True, slots=True)
class Alert:
    """A firing alert, as Prometheus reports it.

    Attributes:
        name: The name of the alert, such as `GPUHighTemperature`.
        severity: The alert's severity: `critical`, `warning` or `info`.
        subject: The device, run or container that the alert concerns; empty if the alert concerns
            the whole machine.
        summary: The alert's annotation `summary`, or `description` if there is no summary; empty if
            the alert has neither annotation.
        since: The time when the alert became active, in seconds since 1970; None if Prometheus does
            not report this time.
        is_elsewhere: Whether the alert concerns another machine.
    """

    name: str
    severity: str
    subject: str
    summary: str
    since: float | None = None
    is_elsewhere: bool = False


def select_alerts(active: Iterable[ActiveAlert], hostname: str) -> tuple[Alert, ...]:
    """Return at most 256 firing alerts, this machine's alerts first, then sorted by severity.

    An alert without a known severity, such as a watchdog that always fires, is not returned.

    Args:
        active: The active alerts from Prometheus.
        hostname: This machine's name, which the label `instance` of this machine's alerts contains.
    """
    rows = [
        (_is_elsewhere(each, hostname), _SEVERITIES.index(severity), _make_alert(each, hostname))
        for each in active
        if each.state == "firing" and (severity := each.labels.get("severity")) in _SEVERITIES
    ]
    rows.sort(key=lambda row: row[:2])
    return tuple(alert for _, _, alert in rows[:MOST_ALERTS])


class FiringAlerts:
    """Keeps the firing alerts up to date while callers read the alerts.

    Args:
        fetch: A function that queries Prometheus for the active alerts; it may raise SourceError.
        hostname: This machine's name.
        monotonic: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(
        self, fetch: Fetch, hostname: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._hostname = hostname
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._is_asking = False
        self._asked_at = -math.inf
        self._answered_at = -math.inf
        self._failed_at = -math.inf
        self._alerts: tuple[Alert, ...] = ()
        self._trouble = ""

    @property
    def is_unknown(self) -> bool:
        """Whether Prometheus has neither answered nor failed recently.

        If so, a caller should wait for an answer.
        """
        with self._changed:
            return not self._is_known(self._monotonic())

    def latest(self, wait_seconds: float = 0.0) -> tuple[Sequence[Alert] | None, str]:
        """Return the firing alerts, or why they are unknown; start a query if a query is due.

        Args:
            wait_seconds: The maximum time to wait for an answer if there is neither a recent
                answer nor a recent failure.

        Returns:
            The alerts and an empty string. If Prometheus has not answered recently, None and the
            reason.
        """
        with self._changed:
            now = self._monotonic()
            if not self._is_asking and now - self._asked_at >= INTERVAL_SECONDS:
                self._is_asking, self._asked_at = True, now
                threading.Thread(target=self._ask, name="alerts", daemon=True).start()
            if wait_seconds > 0 and not self._is_known(now):
                self._changed.wait_for(lambda: not self._is_asking, wait_seconds)
            return self._describe(self._monotonic())

    def _is_known(self, now: float) -> bool:
        """Return whether an answer or a failure from Prometheus is recent enough to show."""
        return now - max(self._answered_at, self._failed_at) < SERVED_SECONDS

    def _describe(self, now: float) -> tuple[Sequence[Alert] | None, str]:
        if now - self._answered_at < SERVED_SECONDS:
            return self._alerts, ""
        return None, self._trouble if self._is_known(now) else NOT_ASKED_YET

    def _ask(self) -> None:
        answer = attempt("alerts", lambda: select_alerts(self._fetch(), self._hostname))
        with self._changed:
            self._is_asking = False
            if answer.value is not None:
                self._alerts, self._answered_at = answer.value, self._monotonic()
            else:
                self._trouble, self._failed_at = str(answer.error), self._monotonic()
            self._changed.notify_all()


def follow_alerts(url: str, hostname: str, *, flag: str) -> FiringAlerts:
    """Return an object that keeps the firing alerts from a Prometheus server up to date.

    Args:
        url: The server's address, in the form `http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]`.
        hostname: This machine's name.
        flag: The flag that sets the address, for the error message.

    Raises:
        ConfigurationError: The address is invalid, or a credentials file cannot be read.
    """

    def find() -> Prometheus:
        return find_prometheus(
            url, flag=flag, timeout_seconds=TIMEOUT_SECONDS, most_bytes=MOST_BYTES
        )

    find()
    # The credentials file is read for each query, so that a change takes effect at once.
    return FiringAlerts(lambda: find().list_alerts(), hostname)


def _is_elsewhere(alert: ActiveAlert, hostname: str) -> bool:
    instance = alert.labels.get("instance", "")
    return bool(instance) and instance.rpartition(":")[0] != hostname != instance


def _make_alert(alert: ActiveAlert, hostname: str) -> Alert:
    words = alert.annotations.get("summary") or alert.annotations.get("description") or ""
    return Alert(
        name=alert.labels["alertname"][:_MOST_CHARACTERS],
        severity=alert.labels["severity"],
        subject=_name_subject(alert, hostname)[:_MOST_CHARACTERS],
        summary=words[:_MOST_CHARACTERS],
        since=_read_time(alert.active_at),
        is_elsewhere=_is_elsewhere(alert, hostname),
    )


def _name_subject(alert: ActiveAlert, hostname: str) -> str:
    labels = alert.labels
    about = next((labels[label] for label in _SUBJECTS if labels.get(label)), "")
    if "kind" in labels:
        about = f"{labels['kind']}{labels.get('device', '')}"
    elif about == labels.get("job") == _JOB:
        about = ""  # the machine itself
    instance = labels.get("instance", "") if _is_elsewhere(alert, hostname) else ""
    return " on ".join(part for part in (about, instance) if part)


def _read_time(text: str) -> float | None:
    seconds = parse_time(text)
    return None if seconds is None else float(math.floor(seconds))
