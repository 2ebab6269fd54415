"""A running Alertmanager, over its HTTP API."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast
from urllib.parse import quote, urlsplit

import yaml

from trainvitals.errors import StackError
from trainvitals.notify.channels import Version
from trainvitals.notify.checking import parse_version

_OK = 200
_COUNTER = re.compile(
    r"alertmanager_notification_requests_(failed_)?total\{[^}]*\bintegration=\"([^\"]*)\"[^}]*\} (\S+)"
)


class PostedAlert(TypedDict, total=False):
    """An alert as the API takes it; without `endsAt` it ends after `resolve_timeout`."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    startsAt: str
    endsAt: str


class ShownAlert(TypedDict):
    """What matters here of an alert as the API shows it."""

    labels: dict[str, str]
    receivers: list[dict[str, str]]
    status: dict[str, object]


class _Status(TypedDict):
    config: dict[str, str]
    versionInfo: dict[str, str]


@dataclass(frozen=True, slots=True)
class Counts:
    """How often Alertmanager has tried to send, by integration (`slack`, `email`, …)."""

    tried: Counter[str]
    failed: Counter[str]


class Alertmanager:
    """A running Alertmanager.

    Args:
        url: Its address, as `http://127.0.0.1:9093`.
        patience_seconds: How long an answer may take.

    Every method but `find_version` raises StackError where nothing answers, or not as it should.
    """

    def __init__(self, url: str, *, patience_seconds: float = 5.0) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 9093
        self._prefix = parts.path.rstrip("/")
        self._patience_seconds = patience_seconds

    def find_version(self) -> Version | None:
        """Give its version; None where nothing answers."""
        try:
            return parse_version(self._read_status()["versionInfo"]["version"])
        except StackError:
            return None

    def reload(self) -> None:
        """Have it read its configuration again."""
        self._ask("POST", "/-/reload")

    def post(self, alerts: Sequence[PostedAlert]) -> None:
        """Send it alerts, as Prometheus does."""
        self._ask("POST", "/api/v2/alerts", json.dumps(alerts))

    def find_alerts(self, **labels: str) -> tuple[ShownAlert, ...]:
        """Give the alerts that it holds and that have these labels."""
        query = "&".join(
            f"filter={quote(f'{name}={json.dumps(value)}')}" for name, value in labels.items()
        )
        page = self._ask("GET", f"/api/v2/alerts?{query}")
        return tuple(cast("list[ShownAlert]", self._decode(page)))

    def list_integrations(self) -> dict[str, tuple[str, ...]]:
        """Tell what each receiver sends to, as `slack`; one entry for each address."""
        try:
            config = yaml.safe_load(self._read_status()["config"]["original"])
            return {
                receiver["name"]: tuple(
                    key.removesuffix("_configs")
                    for key, blocks in receiver.items()
                    if key.endswith("_configs")
                    for _ in blocks or ()
                )
                for receiver in config["receivers"]
            }
        except (yaml.YAMLError, KeyError, TypeError) as error:
            raise self._refuse("answers with a configuration that is none") from error

    def read_counts(self) -> Counts:
        """Tell how often it has tried to send since it started."""
        counts = Counts(Counter(), Counter())
        for failed, integration, value in _COUNTER.findall(self._ask("GET", "/metrics").decode()):
            (counts.failed if failed else counts.tried)[integration] += int(float(value))
        return counts

    def _read_status(self) -> _Status:
        return cast("_Status", self._decode(self._ask("GET", "/api/v2/status")))

    def _decode(self, page: bytes) -> object:
        try:
            return cast("object", json.loads(page))
        except ValueError as error:
            raise self._refuse("answers with something that is no JSON") from error

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        # No urllib: it would send the request to a proxy that the environment names.
        connection = http.client.HTTPConnection(
            self._host, self._port, timeout=self._patience_seconds
        )
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, self._prefix + path, body, headers)
            response = connection.getresponse()
            page = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._refuse("does not answer") from error
        finally:
            connection.close()
        if response.status != _OK:
            raise self._refuse(f"refuses {path}: {_in_one_line(page)}")
        return page

    def _refuse(self, reason: str) -> StackError:
        return StackError(f"Alertmanager at {self.url} {reason}; `trainvitals status` says more")


def _in_one_line(page: bytes) -> str:
    return " ".join(page.decode("utf-8", "replace").split())


def name_channels(integrations: Iterable[str]) -> dict[str, str]:
    """Give the name that a person knows for each integration."""
    known = {
        "slack": "Slack",
        "discord": "Discord",
        "msteams": "Teams",
        "msteamsv2": "Teams",
        "pagerduty": "PagerDuty",
        "telegram": "Telegram",
        "email": "e-mail",
    }
    return {integration: known.get(integration, integration) for integration in integrations}
