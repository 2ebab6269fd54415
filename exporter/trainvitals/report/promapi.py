"""Asking a Prometheus over its HTTP API.

`/api/v1/query`, `/api/v1/query_range` and `/api/v1/rules`, by POST where a question may be long.
VictoriaMetrics, Thanos and Mimir answer the same questions.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

from trainvitals.errors import ConfigurationError, StackError, TrainvitalsError

_MOST_BYTES = 64_000_000
_LONGEST_WORDS = 300
_UNAUTHORIZED, _FORBIDDEN, _MOVED, _BAD = 401, 403, 300, 400

Labels = Mapping[str, str]


class _Told(TypedDict, total=False):
    metric: dict[str, str]
    value: tuple[float, str]
    values: list[tuple[float, str]]


class _Answer(TypedDict):
    result: list[_Told]


class _Rule(TypedDict, total=False):
    name: str
    annotations: dict[str, str]


class _Group(TypedDict):
    rules: list[_Rule]


class _Rules(TypedDict):
    groups: list[_Group]


class RefusedError(TrainvitalsError):
    """Prometheus answers, but not this question."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer.

    Attributes:
        labels: Its labels.
        points: Moments, seconds since 1970, and values; the oldest first.
    """

    labels: Labels
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """Its newest value."""
        return self.points[-1][1]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow nobody: a password must not go anywhere else."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus.

    Attributes:
        url: Its address, as `http://127.0.0.1:9090`, without user or password.
        timeout_seconds: How long one answer may take.
        authorization: What is sent as `Authorization`; empty for nothing.
    """

    url: str
    timeout_seconds: float = 60.0
    authorization: str = field(default="", repr=False)

    def ask(self, query: str, at: float) -> tuple[Series, ...]:
        """Ask for one moment.

        Raises:
            RefusedError: It does not answer this question.
            StackError: It does not answer.
        """
        return _read_series(self._fetch("query", {"query": query, "time": f"{at:.3f}"}))

    def ask_over(
        self, query: str, begin: float, end: float, step_seconds: float
    ) -> tuple[Series, ...]:
        """Ask for a moment each `step_seconds` from `begin` to `end`, both included.

        Raises:
            RefusedError: It does not answer this question.
            StackError: It does not answer.
        """
        words = {"query": query, "start": f"{begin:.3f}", "end": f"{end:.3f}"}
        return _read_series(self._fetch("query_range", {**words, "step": f"{step_seconds:g}"}))

    def list_summaries(self) -> dict[str, str]:
        """Give the summary of each alerting rule, by the alert's name.

        Raises:
            RefusedError: It knows no rules, as a mere store.
            StackError: It does not answer.
        """
        told = cast("_Rules", self._fetch("rules?type=alert", None))
        try:
            rules = [rule for group in told["groups"] for rule in group["rules"]]
            return {rule["name"]: rule.get("annotations", {}).get("summary", "") for rule in rules}
        except (AttributeError, KeyError, TypeError) as error:
            raise RefusedError("its list of rules has a form of its own") from error

    def _fetch(self, path: str, words: Mapping[str, str] | None) -> object:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            f"{self.url}/api/v1/{path}",
            data=urllib.parse.urlencode(words).encode() if words is not None else None,
            headers={"Accept": "application/json"},
        )
        if self.authorization:
            request.add_unredirected_header("Authorization", self.authorization)
        return _take_data(self._read(request), self.url)

    def _read(self, request: urllib.request.Request) -> bytes:
        try:
            with _build_opener(self.url).open(request, timeout=self.timeout_seconds) as answer:
                page: bytes = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _judge(error, self.url) from error
        except (OSError, http.client.HTTPException) as error:
            raise _tell_silence(error, self) from error
        if len(page) > _MOST_BYTES:
            raise RefusedError("the answer is larger than 64 MB; choose machines with --instance")
        return page


def find_prometheus(
    url: str,
    *,
    timeout_seconds: float = 60.0,
    token_file: Path | None = None,
    login_file: Path | None = None,
) -> Prometheus:
    """Make out where to ask, and as whom.

    Args:
        url: Its address; `/prometheus` and the like may follow the port.
        timeout_seconds: How long one answer may take.
        token_file: A file that holds a bearer token.
        login_file: A file that holds `USER:PASSWORD` for basic authentication.

    Raises:
        ConfigurationError: The address is none, or a file cannot be used.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname)
        parts.port  # noqa: B018 - it raises for a port that is none
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ConfigurationError("--prometheus is no URL: write it as http://127.0.0.1:9090")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError(
            "--prometheus: leave out user, password and what follows ? or #; a login is read from "
            "a file, with --login-file"
        )
    if token_file is not None and login_file is not None:
        raise ConfigurationError("--token-file and --login-file: give one of them")
    authorization = ""
    if token_file is not None:
        authorization = f"Bearer {_read_secret(token_file, '--token-file')}"
    elif login_file is not None:
        login = _read_secret(login_file, "--login-file")
        if ":" not in login:
            raise ConfigurationError(f"--login-file={login_file}: write USER:PASSWORD into it")
        authorization = "Basic " + base64.b64encode(login.encode()).decode()
    return Prometheus(url.rstrip("/"), timeout_seconds, authorization)


def _read_secret(path: Path, flag: str) -> str:
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigurationError(f"{flag}={path}: cannot be read: {why}") from error
    if not secret or not secret.isprintable():
        raise ConfigurationError(f"{flag}={path}: it must hold one line of text")
    return secret


def _build_opener(url: str) -> urllib.request.OpenerDirector:
    """Make what asks: past any proxy where Prometheus is on this machine."""
    host = urllib.parse.urlsplit(url).hostname or ""
    proxies = [urllib.request.ProxyHandler({})] if _is_local(host) else []
    return urllib.request.build_opener(_NoRedirect, *proxies)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _judge(error: urllib.error.HTTPError, url: str) -> TrainvitalsError:
    """Make an error of an answer that is none."""
    if error.code in {_UNAUTHORIZED, _FORBIDDEN}:
        return StackError(
            f"{url} lets nobody in without a login ({error.code}): give --login-file or --token-file"
        )
    if _MOVED <= error.code < _BAD:
        return StackError(f"{url} sends elsewhere ({error.code}): give the address itself")
    told = _read_complaint(error)
    if told:
        return RefusedError(told)
    return StackError(f"what answers at {url} is no Prometheus (HTTP {error.code} {error.reason})")


def _read_complaint(error: urllib.error.HTTPError) -> str:
    """Give what Prometheus says of a question that it refuses; empty where it is no Prometheus."""
    try:
        told = json.loads(error.read(_MOST_BYTES))["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return ""
    return " ".join(str(told).split())[:_LONGEST_WORDS]


def _tell_silence(error: Exception, prometheus: Prometheus) -> StackError:
    """Make an error of no answer."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return StackError(
            f"{prometheus.url} gave no answer within {prometheus.timeout_seconds:g} s: choose machines "
            "with --instance, or give it longer with --timeout"
        )
    why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    if isinstance(cause, socket.gaierror):
        why = "nobody knows that host"
    return StackError(
        f"no Prometheus answers at {prometheus.url}: {why}; start it with `trainvitals up`, or name "
        "another with --prometheus URL"
    )


def _take_data(page: bytes, url: str) -> object:
    try:
        return json.loads(page)["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StackError(
            f"what answers at {url} is no Prometheus: its answer is not that of an API; see --prometheus"
        ) from error


def _read_series(data: object) -> tuple[Series, ...]:
    try:
        return tuple(_read_one(each) for each in cast("_Answer", data)["result"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RefusedError("its answer has a form of its own") from error


def _read_one(told: _Told) -> Series:
    points = told["values"] if "values" in told else [told["value"]]
    return Series(
        {str(name): str(value) for name, value in told["metric"].items()},
        tuple((float(moment), float(value)) for moment, value in points),
    )
