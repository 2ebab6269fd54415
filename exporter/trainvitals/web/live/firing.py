"""What fires, by the word of a Prometheus.

It is asked in the background, at most every `INTERVAL_SECONDS` while somebody looks, and whoever
looks gets the latest answer without waiting for the next one.

`GET /api/v1/alerts` answers with an object `data` that has a list `alerts`; each has `labels`,
`annotations`, `state` (`firing`, or `pending`, which is left out) and `activeAt` (RFC 3339).
"""

from __future__ import annotations

import json
import math
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from urllib.parse import SplitResult, unquote, urlsplit

from trainvitals.crew import attempt
from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.overview.picture import Alert

INTERVAL_SECONDS = 5.0
TIMEOUT_SECONDS = 3.0
SERVED_SECONDS = 30.0
MOST_ALERTS = 256
MOST_BYTES = 4 << 20

_PATH = "/api/v1/alerts"
_SEVERITIES = ("critical", "warning", "info")
_SUBJECTS = ("run", "name", "mountpoint", "interface", "collector", "job")
_MOST_CHARACTERS = 512
_OK = 200

Fetch = Callable[[], bytes]


def read_prometheus_url(url: str) -> Fetch:
    """Give what asks the Prometheus at an address for its alerts.

    Args:
        url: `http://HOST:PORT`, with `https`, `USER:PASSWORD@` and a path where it has them.

    Raises:
        ConfigurationError: It is no such address.
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment:
        raise ConfigurationError(
            "--web.prometheus is no address of a Prometheus; give one as http://localhost:9090"
        )
    return partial(fetch_alerts, parts)


def fetch_alerts(url: SplitResult) -> bytes:
    """Ask a Prometheus for its alerts.

    Raises:
        SourceError: It does not answer, or not with alerts.
    """
    import http.client  # noqa: PLC0415 - only who looks and has a Prometheus needs it

    shown = f"Prometheus at {url.hostname}:{url.port or 'its port'}"
    make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = make(url.hostname or "", url.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", url.path.rstrip("/") + _PATH, headers=_authorize(url))
        answer = connection.getresponse()
        data = answer.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SourceError(f"{shown} does not answer: {why}") from error
    finally:
        connection.close()
    if answer.status != _OK:
        raise SourceError(f"{shown} answers {answer.status} {answer.reason}")
    if len(data) > MOST_BYTES:
        raise SourceError(f"{shown} has more than {MOST_BYTES >> 20} MiB of alerts")
    return data


def read_alerts(data: bytes, hostname: str) -> tuple[Alert, ...]:
    """Read what fires: first what concerns this machine, then the worst.

    Args:
        data: What Prometheus answered.
        hostname: This machine's name, which its alerts have as `instance`.

    Raises:
        SourceError: It is no answer of a Prometheus.
    """
    try:
        found = json.loads(data)["data"]["alerts"]
        firing = [each for each in found if each["state"] == "firing"]
        rows = [_read_alert(each["labels"], each["annotations"], each, hostname) for each in firing]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError("the Prometheus answers with something else than alerts") from error
    kept = sorted((row for row in rows if row[2].severity in _SEVERITIES), key=lambda row: row[:2])
    return tuple(alert for _, _, alert in kept[:MOST_ALERTS])


class FiringAlerts:
    """Knows what fires.

    Args:
        fetch: Asks Prometheus for its alerts; it may raise SourceError.
        hostname: This machine's name.
        monotonic: Seconds that never go back.
    """

    def __init__(
        self, fetch: Fetch, hostname: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._hostname = hostname
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._is_asking = False
        self._asked_at = -math.inf
        self._answered_at = -math.inf
        self._alerts: tuple[Alert, ...] = ()
        self._trouble = ""

    def latest(self) -> tuple[Sequence[Alert] | None, str]:
        """Give what fires, and why that is not known; has Prometheus asked anew where it is time.

        Returns:
            None and an empty text before the first answer; None and the reason where Prometheus
            has not answered of late.
        """
        now = self._monotonic()
        with self._lock:
            is_due = not self._is_asking and now - self._asked_at >= INTERVAL_SECONDS
            if is_due:
                self._is_asking, self._asked_at = True, now
            is_fresh = now - self._answered_at < SERVED_SECONDS
            latest = (self._alerts if is_fresh else None), ("" if is_fresh else self._trouble)
        if is_due:
            threading.Thread(target=self._ask, name="alerts", daemon=True).start()
        return latest

    def _ask(self) -> None:
        answer = attempt("alerts", lambda: read_alerts(self._fetch(), self._hostname))
        with self._lock:
            self._is_asking = False
            if answer.value is not None:
                self._alerts, self._answered_at = answer.value, self._monotonic()
            self._trouble = "" if answer.error is None else str(answer.error)


def _read_alert(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    alert: Mapping[str, object],
    hostname: str,
) -> tuple[bool, int, Alert]:
    severity = str(labels.get("severity", ""))
    instance = str(labels.get("instance", ""))
    is_elsewhere = bool(instance) and instance.rpartition(":")[0] != hostname != instance
    words = str(annotations.get("summary") or annotations.get("description") or "")
    read = Alert(
        name=str(labels["alertname"])[:_MOST_CHARACTERS],
        severity=severity,
        subject=_name_subject(labels, instance if is_elsewhere else "")[:_MOST_CHARACTERS],
        summary=words[:_MOST_CHARACTERS],
        since=_read_time(str(alert.get("activeAt", ""))),
    )
    rank = _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
    return is_elsewhere, rank, read


def _name_subject(labels: Mapping[str, str], instance: str) -> str:
    about = next((str(labels[label]) for label in _SUBJECTS if labels.get(label)), "")
    if "kind" in labels and "device" in labels:
        about = f"{labels['kind']}{labels['device']}"
    return " on ".join(part for part in (about, instance) if part)


def _read_time(text: str) -> float | None:
    try:
        # Prometheus writes nanoseconds, which fromisoformat does not take before Python 3.11.
        return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
    except ValueError:
        return None


def _authorize(url: SplitResult) -> Mapping[str, str]:
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
