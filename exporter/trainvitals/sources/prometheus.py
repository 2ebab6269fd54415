"""The package's only client for the Prometheus HTTP API.

Each request to Prometheus has its own connection, a deadline and a size limit, and does not follow
redirects, so that a password is sent only to the configured address. `/api/v1/query` and
`/api/v1/query_range` are requested with POST, since a query may be too long for a URL.
VictoriaMetrics, Thanos and Mimir provide the same API.

No error message and no `repr` contains credentials; the module `prometheus_address` describes where
the credentials come from. `http.client` and `urllib` are imported at the first request, because
most exporters never request the alerts of a Prometheus server.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlencode, urlsplit

from trainvitals.errors import SourceError
from trainvitals.foreign_numbers import bound_value, read_time
from trainvitals.foreign_text import clean_text
from trainvitals.sources.prometheus_address import (
    LOGIN_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    find_authorization,
    split_address,
)
from trainvitals.units import format_bytes, format_duration

if TYPE_CHECKING:
    import urllib.request

_MOST_BYTES = 64_000_000
_MOST_ERROR_BYTES = 1 << 16
_MOST_ERROR_CHARACTERS = 300
_MULTIPLE_CHOICES, _BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN = 300, 400, 401, 403

Points = tuple[tuple[float, float], ...]
"""Pairs of a Unix time and a value, the oldest first."""
_Object = dict[str, Any]  # parsed JSON
Problem = Literal["unreachable", "timeout", "unauthorized", "other"]


class PrometheusError(SourceError):
    """The error for a server that does not answer or is not a Prometheus server.

    Attributes:
        problem: The kind of failure, for callers that handle some kinds of failure differently.
    """

    def __init__(self, message: str, problem: Problem = "other") -> None:
        super().__init__(message)
        self.problem: Problem = problem


class QueryError(PrometheusError):
    """The error for a query that Prometheus rejects, or whose answer cannot be used."""


@dataclass(frozen=True, slots=True)
class Series:
    """A time series in a query result.

    Attributes:
        labels: The labels of the series.
        points: The points of the series: pairs of a Unix time and a value, the oldest first.
    """

    labels: Mapping[str, str]
    points: Points

    @property
    def last(self) -> float:
        """The newest value of the series."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class Target:
    """A target that Prometheus scrapes.

    Attributes:
        job: The name of the scrape job that the target belongs to.
        url: The URL from which the target is scraped.
        health: The health of the target: `up`, `down`, or `unknown` before the first scrape.
        last_error: The reason why the last scrape failed; None if the last scrape did not fail.
    """

    job: str
    url: str
    health: str
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording or alerting rule of Prometheus.

    Attributes:
        name: The name of the rule's recorded series or alert.
        health: The health of the rule: `ok`, `err`, or `unknown` before the first evaluation; empty
            if Prometheus does not report the health.
        last_error: The reason why the last evaluation failed; None if the last evaluation did not
            fail.
        summary: The rule's annotation `summary`; empty if the rule has no such annotation.
    """

    name: str
    health: str
    last_error: str | None
    summary: str


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """A group of rules that Prometheus has loaded.

    Attributes:
        name: The name of the rule group.
        rules: The rules in the group, in the order in which Prometheus lists the rules.
    """

    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """A pending or firing alert of Prometheus.

    Attributes:
        labels: The labels of the alert, including `alertname`.
        annotations: The annotations of the alert.
        state: The state of the alert: `pending` or `firing`.
        active_at: The time since which the alert's expression has held, in RFC 3339 format as
            Prometheus writes the time; empty if Prometheus does not report the time.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    state: str
    active_at: str


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A client for one Prometheus server.

    Every method raises QueryError if its request fails, and PrometheusError if Prometheus does not
    answer.

    Attributes:
        url: The server's address `http(s)://HOST[:PORT][/PATH]`, without user name and password.
        timeout_seconds: The timeout for an answer, in seconds.
        authorization: The value of the `Authorization` header; empty to send no credentials.
        most_bytes: The maximum size of an answer, in bytes.
        uses_proxy: Whether requests to another machine use the proxy from the environment.
    """

    url: str
    timeout_seconds: float = 10.0
    authorization: str = field(default="", repr=False)
    most_bytes: int = _MOST_BYTES
    uses_proxy: bool = False

    def query(self, query: str, at: float | None = None) -> tuple[Series, ...]:
        """Return the result of a query at a Unix time, or at the current time if `at` is None."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        return _read_series(self._request("query", {"query": query, **when}))

    def query_range(
        self, query: str, begin: float, end: float, step_seconds: float
    ) -> tuple[Series, ...]:
        """Return the results of a query at each step from `begin` to `end`, inclusive."""
        span = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:g}"}
        return _read_series(self._request("query_range", {"query": query, **span}))

    def list_alerts(self) -> tuple[ActiveAlert, ...]:
        """Return the alerts that are pending or firing in Prometheus."""
        data = self._request("alerts")
        try:
            return tuple(_read_alert(each) for each in data["alerts"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._unusable("alerts") from error

    def list_rules(self) -> tuple[RuleGroup, ...]:
        """Return the rule groups that Prometheus has loaded."""
        data = self._request("rules")
        try:
            return tuple(
                RuleGroup(str(group["name"]), tuple(_read_rule(each) for each in group["rules"]))
                for group in data["groups"]
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise self._unusable("rules") from error

    def list_targets(self) -> tuple[Target, ...]:
        """Return the targets that Prometheus scrapes."""
        data = self._request("targets?state=active")
        try:
            return tuple(
                Target(
                    each["scrapePool"], each["scrapeUrl"], each["health"], each["lastError"] or None
                )
                for each in data["activeTargets"]
            )
        except (KeyError, TypeError) as error:
            raise self._unusable("targets") from error

    def list_alertmanagers(self) -> tuple[str, ...]:
        """Return the URLs of the Alertmanagers to which Prometheus sends alerts."""
        data = self._request("alertmanagers")
        try:
            return tuple(each["url"] for each in data["activeAlertmanagers"])
        except (KeyError, TypeError) as error:
            raise self._unusable("Alertmanagers") from error

    def _request(self, path: str, form: Mapping[str, str] | None = None) -> _Object:
        page = self._fetch(path, None if form is None else urlencode(form).encode())
        try:
            return cast("_Object", json.loads(page)["data"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PrometheusError(
                f"what answers at {self.url} is no Prometheus: its answer is not that of the API"
            ) from error

    def _fetch(self, path: str, body: bytes | None) -> bytes:
        import http.client  # noqa: PLC0415 - see the module's docstring
        import urllib.error  # noqa: PLC0415
        import urllib.request  # noqa: PLC0415

        from trainvitals.sources import http_client  # noqa: PLC0415

        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            f"{self.url}/api/v1/{path}",
            data=body,
            headers={"Accept": "application/json", "User-Agent": "trainvitals"},
        )
        if self.authorization:
            request.add_unredirected_header("Authorization", self.authorization)
        deadline = time.monotonic() + self.timeout_seconds
        opener = http_client.build_opener(uses_proxy=self._uses_proxy_now())
        try:
            with opener.open(request, timeout=self.timeout_seconds) as answer:
                return http_client.read_bounded(
                    answer, deadline=deadline, most_bytes=self.most_bytes
                )
        except http_client.TooLargeError as error:
            raise QueryError(
                f"the answer is larger than {format_bytes(self.most_bytes)}"
            ) from error
        except urllib.error.HTTPError as error:
            with error:
                raise self._explain_status(error.code, error.reason, _read_error(error)) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise self._explain_silence(error) from error

    def _uses_proxy_now(self) -> bool:
        return self.uses_proxy and not _is_local(urlsplit(self.url).hostname or "")

    def _explain_status(self, status: int, reason: str, error: str) -> PrometheusError:
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            return PrometheusError(
                f"{self.url} requires other credentials (HTTP {status}): name a file with "
                f"USER:PASSWORD in {LOGIN_FILE_VARIABLE}, or one with a token in "
                f"{TOKEN_FILE_VARIABLE}",
                "unauthorized",
            )
        if _MULTIPLE_CHOICES <= status < _BAD_REQUEST:
            return PrometheusError(
                f"{self.url} redirects (HTTP {status}), which is not followed: use the address "
                "that it redirects to"
            )
        if error:
            return QueryError(error)
        return PrometheusError(
            f"what answers at {self.url} is no Prometheus (HTTP {status} {reason})"
        )

    def _explain_silence(self, error: Exception) -> PrometheusError:
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            return PrometheusError(
                f"no answer from {self.url} within {format_duration(self.timeout_seconds)}",
                "timeout",
            )
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return PrometheusError(f"no Prometheus answers at {self.url}: {why}", "unreachable")

    def _unusable(self, what: str) -> QueryError:
        return QueryError(f"{self.url} does not list its {what} as Prometheus does")


def find_prometheus(
    url: str,
    *,
    flag: str = "--prometheus",
    token_file: Path | None = None,
    login_file: Path | None = None,
    timeout_seconds: float = 10.0,
    most_bytes: int = _MOST_BYTES,
    uses_proxy: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Prometheus:
    """Return a client for the Prometheus server at an address.

    The credentials come from `token_file` or `login_file`, otherwise from the address, otherwise
    from the file that the environment specifies.

    Args:
        url: The server's address, in the form `http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]`.
        flag: The flag that sets the address, for the error message.
        token_file: The value of `--token-file`, a file that contains a bearer token; None if
            `--token-file` is not set.
        login_file: The value of `--login-file`, a file that contains `USER:PASSWORD`; None if
            `--login-file` is not set.
        timeout_seconds: The timeout for an answer, in seconds.
        most_bytes: The maximum size of an answer, in bytes.
        uses_proxy: Whether requests to another machine use the proxy from the environment.
        environ: The environment, which may specify a file with credentials.

    Raises:
        ConfigurationError: The address is invalid, or a file cannot be read; the message contains
            no secret.
    """
    parts = split_address(url, flag)
    authorization = find_authorization(parts, token_file, login_file, environ)
    plain = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    return Prometheus(plain, timeout_seconds, authorization, most_bytes, uses_proxy)


def _is_local(host: str) -> bool:
    import ipaddress  # noqa: PLC0415 - only where a proxy may be used

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_error(answer: urllib.error.HTTPError) -> str:
    """Return the error that Prometheus reports for a rejected request.

    The result is empty if Prometheus reports no error.
    """
    import http.client  # noqa: PLC0415

    try:
        error = json.loads(answer.read(_MOST_ERROR_BYTES))["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return clean_text(" ".join(str(error).split()), most=_MOST_ERROR_CHARACTERS)


def _read_series(data: _Object) -> tuple[Series, ...]:
    try:
        return tuple(_read_sample(each) for each in data["result"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise QueryError("its answer is not that of a query") from error


def _read_sample(sample: _Object) -> Series:
    points = sample["values"] if "values" in sample else [sample["value"]]
    return Series(
        {str(name): str(value) for name, value in sample["metric"].items()},
        tuple(_read_point(moment, value) for moment, value in points),
    )


def _read_point(moment: object, value: object) -> tuple[float, float]:
    time_ = read_time(float(str(moment)))
    if time_ is None:
        raise ValueError("no such time")
    return time_, bound_value(float(str(value)))


def _read_rule(rule: _Object) -> Rule:
    return Rule(
        str(rule["name"]),
        str(rule.get("health", "")),
        rule.get("lastError") or None,
        str(rule.get("annotations", {}).get("summary", "")),
    )


def _read_alert(alert: _Object) -> ActiveAlert:
    labels = {str(name): str(value) for name, value in alert["labels"].items()}
    labels["alertname"]
    annotations = {str(name): str(value) for name, value in alert.get("annotations", {}).items()}
    return ActiveAlert(labels, annotations, str(alert["state"]), str(alert.get("activeAt", "")))
