"""Calls amtool, and queries a running Alertmanager through the HTTP API."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TypedDict, cast
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

import yaml

from trainvitals.errors import ConfigurationError, StackError
from trainvitals.foreign_numbers import read_count
from trainvitals.sources import external_program
from trainvitals.sources.external_program import Version, parse_version
from trainvitals.sources.http_client import TooLargeError, build_opener, read_bounded
from trainvitals.units import format_bytes

# The suffix of a temporary file, which is incomplete or has not been checked by amtool yet. The
# name of such a file begins with a dot.
PARTIAL = ".partial"
_PROGRAM_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_MOST_BYTES = 32 << 20
_URL = re.compile(r"(https?://)[^\s\"]*")
_COUNTER = re.compile(r"alertmanager_notification_requests_(failed_)?total\{([^}]*)\} (\S{1,40})")
_INTEGRATION = re.compile(r"\bintegration=\"([^\"]*)\"")


def check_configuration(path: Path, *, amtool: Path) -> None:
    """Check Alertmanager's configuration and templates with amtool.

    Raises:
        ConfigurationError: The configuration is invalid, or amtool cannot be run.
    """
    try:
        answer = external_program.run(
            (str(amtool), "check-config", str(path)), timeout_seconds=_PROGRAM_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"cannot run {amtool}: {error}; reinstall it") from error
    if answer.returncode:
        words = answer.stdout + answer.stderr
        found = re.search(r"FAILED: (.*)", words)
        reason = found[1].strip() if found else " ".join(words.split())
        # amtool's message names the temporary file; replace it with the final name.
        shown = path.with_name(path.name.removeprefix(".").removesuffix(PARTIAL))
        # The path in a webhook URL is a secret.
        reason = _URL.sub(r"\1…", reason)
        raise ConfigurationError(f"amtool rejects {shown}: {reason}")


class ShownAlert(TypedDict):
    """The fields that this package reads from an alert in Alertmanager's API."""

    labels: dict[str, str]
    receivers: list[dict[str, str]]
    status: dict[str, object]


class _Status(TypedDict):
    config: dict[str, str]
    versionInfo: dict[str, str]


@dataclass(frozen=True, slots=True)
class Counts:
    """Alertmanager's notification counters by integration, such as `slack` and `email`."""

    tried: Counter[str]
    failed: Counter[str]


class Alertmanager:
    """A client of a running Alertmanager.

    Args:
        url: Alertmanager's URL, such as `http://127.0.0.1:9093`.

    Every method except `find_version` raises StackError if Alertmanager does not respond or sends
    an invalid response.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._opener = build_opener(uses_proxy=False)

    def find_version(self) -> Version | None:
        """Return Alertmanager's version; None if Alertmanager does not respond."""
        try:
            return parse_version(self._read_status()["versionInfo"]["version"])
        except StackError:
            return None

    def reload(self) -> None:
        """Make Alertmanager reload its configuration."""
        self._request("POST", "/-/reload")

    def post(self, alerts: Sequence[Mapping[str, object]]) -> None:
        """Post alerts to Alertmanager, as Prometheus does."""
        self._request("POST", "/api/v2/alerts", json.dumps(alerts))

    def find_alerts(self, **labels: str) -> tuple[ShownAlert, ...]:
        """Return Alertmanager's active alerts that have the specified labels."""
        query = "&".join(
            f"filter={quote(f'{name}={json.dumps(value)}')}" for name, value in labels.items()
        )
        page = self._request("GET", f"/api/v2/alerts?{query}")
        return tuple(cast("list[ShownAlert]", self._decode(page)))

    def list_integrations(self) -> dict[str, tuple[str, ...]]:
        """Return the integration names of each receiver, such as `slack`, once for each address."""
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
        except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._refuse("responds with a configuration that cannot be read") from error

    def read_counts(self) -> Counts:
        """Return Alertmanager's notification counters since Alertmanager was started."""
        counts = Counts(Counter(), Counter())
        for line in self._request("GET", "/metrics").decode().splitlines():
            if (found := _COUNTER.match(line)) and (named := _INTEGRATION.search(found[2])):
                counted = counts.failed if found[1] else counts.tried
                counted[named[1]] += read_count(float(found[3])) or 0
        return counts

    def _read_status(self) -> _Status:
        return cast("_Status", self._decode(self._request("GET", "/api/v2/status")))

    def _decode(self, page: bytes) -> object:
        try:
            return cast("object", json.loads(page))
        except (ValueError, RecursionError) as error:
            raise self._refuse("does not respond with JSON") from error

    def _request(self, method: str, path: str, body: str | None = None) -> bytes:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        data = None if body is None else body.encode()
        request = Request(self.url + path, data, headers, method=method)  # noqa: S310 - http alone
        deadline = time.monotonic() + _ANSWER_SECONDS
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as response:
                return read_bounded(response, deadline=deadline, most_bytes=_MOST_BYTES)
        except HTTPError as error:
            words = " ".join(error.read().decode("utf-8", "replace").split())
            raise self._refuse(f"rejects {path}: {words}") from error
        except (OSError, HTTPException) as error:
            raise self._refuse("does not respond") from error
        except TooLargeError as error:
            raise self._refuse(f"sends more than {format_bytes(_MOST_BYTES)}") from error

    def _refuse(self, reason: str) -> StackError:
        return StackError(f"Alertmanager at {self.url} {reason}; see `trainvitals status`")
