"""Checks API keys and tokens by sending them to their issuers.

A token is sent only to its issuer, redirects are not followed, and tokens are never printed.
Requests that fail temporarily, because of a busy server or a lost connection, are retried with
backoff.
"""

from __future__ import annotations

import base64
import json
import netrc
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay
from tenacity.wait import wait_exponential, wait_random

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.sources.http_client import build_opener

_TIMEOUT_SECONDS = 1.5
_TRIES = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 0.5
_REFUSED = frozenset({401, 403})
_MOST_BYTES = 1 << 16
_YES = frozenset({"1", "on", "true", "yes"})


@dataclass(frozen=True, slots=True)
class Issuer:
    """A service that issues tokens.

    Attributes:
        name: The name of the issuer.
        variables: The environment variables that may contain the token, in order of precedence.
        base: The base URL of the issuer's API.
        base_variable: The environment variable that overrides the base URL, for example for a
            mirror.
        path: The API path that returns the owner of a token.
        has_password: Whether the token is sent as the password for the user `api` instead of as a
            bearer token.
        body: The body of the POST request; if the body is empty, a GET request is sent.
        find_name: Returns the token's owner from the response, or an empty string if the issuer
            does not accept the token.
        login: The shell command that creates a new token.
        offline: The environment variables that disable the use of the service.
    """

    name: str
    variables: tuple[str, ...]
    base: str
    base_variable: str
    path: str
    has_password: bool
    body: str
    find_name: Callable[[Mapping[str, object]], str]
    login: str
    offline: tuple[str, ...] = ()


def _find_hub_user(answer: Mapping[str, object]) -> str:
    return str(answer.get("name") or "")


def _find_viewer(answer: Mapping[str, object]) -> str:
    data = answer.get("data")
    viewer = data.get("viewer") if isinstance(data, dict) else None
    return str(viewer.get("username") or viewer.get("id") or "") if isinstance(viewer, dict) else ""


def _find_rate(answer: Mapping[str, object]) -> str:
    return "GitHub user" if "rate" in answer else ""


HUGGING_FACE = Issuer(
    "Hugging Face",
    ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    "https://huggingface.co",
    "HF_ENDPOINT",
    "/api/whoami-v2",
    has_password=False,
    body="",
    find_name=_find_hub_user,
    login="hf auth login",
    offline=("HF_HUB_OFFLINE",),
)
WANDB = Issuer(
    "Weights & Biases",
    ("WANDB_API_KEY",),
    "https://api.wandb.ai",
    "WANDB_BASE_URL",
    "/graphql",
    has_password=True,
    body='{"query": "query { viewer { id username } }"}',
    find_name=_find_viewer,
    login="wandb login --relogin",
    offline=("WANDB_DISABLED",),
)
GITHUB = Issuer(
    "GitHub",
    ("GH_TOKEN", "GITHUB_TOKEN"),
    "https://api.github.com",
    "GITHUB_API_URL",
    "/rate_limit",
    has_password=False,
    body="",
    find_name=_find_rate,
    login="gh auth login",
)


class _TemporaryError(Exception):
    """A request to an issuer failed temporarily."""


class _RefusedError(Exception):
    """An issuer does not accept the token."""


def _examine(issuer: Issuer, facts: Facts) -> Finding:
    environ = facts.machine.environ
    if any(environ.get(name, "").lower() in _YES for name in issuer.offline) or (
        issuer is WANDB and environ.get("WANDB_MODE") in {"offline", "disabled", "dryrun"}
    ):
        return skip("the environment sets the run offline")
    where, token = _find_token(issuer, facts)
    if not token:
        return skip(f"{issuer.variables[0]} is not set")
    if not token.isascii() or not token.isprintable() or " " in token:
        return fail(
            f"{where} contains a space, a line break or a character that no token has",
            issuer.login,
            advice="something else was pasted with it",
        )
    base = (environ.get(issuer.base_variable) or issuer.base).rstrip("/")
    host = urlsplit(base).hostname or base
    try:
        name = _ask(issuer, base, token, facts)
    except _RefusedError as error:
        return fail(f"{host} does not accept {where} ({error})", issuer.login)
    except _TemporaryError as error:
        return warn(f"{where} was not checked; {host}: {error}")
    return ok(f"{host} accepts {where}, of {name}")


def _find_token(issuer: Issuer, facts: Facts) -> tuple[str, str]:
    """Return where the issuer's libraries find the token, and the value of the token.

    The value is empty if no token is set.
    """
    environ = facts.machine.environ
    for variable in issuer.variables:
        if token := environ.get(variable, "").strip("\r\n"):
            return variable, token
    home = _find_home(environ)
    if issuer is HUGGING_FACE:
        cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
        folder = Path(environ.get("HF_HOME") or cache / "huggingface")
        file = Path(environ.get("HF_TOKEN_PATH") or folder / "token")
        return str(file), _read(file)
    if issuer is WANDB:
        file = Path(environ.get("NETRC") or home / ".netrc")
        return str(file), _read_netrc(file, environ.get(issuer.base_variable) or issuer.base)
    return "", ""


def _find_home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:  # the user has no passwd entry
        return Path(os.devnull)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""


def _read_netrc(file: Path, base: str) -> str:
    try:
        found = netrc.netrc(str(file)).authenticators(urlsplit(base).hostname or "")
    except (OSError, UnicodeError, netrc.NetrcParseError):
        return ""
    return (found[2] or "") if found else ""


def _ask(issuer: Issuer, base: str, token: str, facts: Facts) -> str:
    """Request the name of a token's owner, with retries.

    Raises:
        _RefusedError: The token is not accepted.
        _TemporaryError: The issuer cannot be reached, or its response is invalid.
    """
    budget = facts.seconds_left
    for attempt in Retrying(
        retry=retry_if_exception_type(_TemporaryError),
        stop=stop_after_attempt(_TRIES) | stop_after_delay(max(budget - _TIMEOUT_SECONDS, 0)),
        wait=wait_exponential(multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS)
        + wait_random(0, _FIRST_PAUSE_SECONDS),
        reraise=True,
    ):
        with attempt:
            return _ask_once(issuer, base, token, min(_TIMEOUT_SECONDS, budget))
    raise AssertionError  # this line is never reached, because the last error is raised


def _ask_once(issuer: Issuer, base: str, token: str, timeout_seconds: float) -> str:
    secret = base64.b64encode(f"api:{token}".encode()).decode() if issuer.has_password else token
    request = urllib.request.Request(  # noqa: S310 - the URL of the issuer, or one that the user set
        base + issuer.path,
        data=issuer.body.encode() or None,
        headers={
            "Authorization": f"{'Basic' if issuer.has_password else 'Bearer'} {secret}",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "trainvitals",
        },
    )
    opener = build_opener(uses_proxy=True)
    try:
        with opener.open(request, timeout=timeout_seconds) as answer:
            body = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _REFUSED:
            raise _RefusedError(f"status {error.code}") from None
        raise _TemporaryError(f"status {error.code}") from None
    except (OSError, ValueError) as error:
        raise _TemporaryError(_explain(error)) from None
    return _understand(issuer, body)


def _understand(issuer: Issuer, body: bytes) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise _TemporaryError("the response is not JSON, as if from a proxy") from None
    name = issuer.find_name(answer) if isinstance(answer, dict) else ""
    if not name:
        raise _RefusedError("the response names no user")
    return name


def _explain(error: OSError | ValueError) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message}); check the clock"
    if isinstance(reason, socket.gaierror):
        return "the name cannot be resolved"
    if isinstance(reason, TimeoutError):
        return "no answer"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return type(reason).__name__  # the error's text may contain the token


def _check_needed(facts: Facts) -> Finding:
    needed = facts.options.needed
    if not needed:
        return skip("no variable in --need")
    environ = facts.machine.environ
    missing = [name for name in needed if not environ.get(name, "").strip()]
    if missing:
        return fail(
            f"not set: {', '.join(missing)}",
            f"read -rs {missing[0]} && export {missing[0]}",
            advice="typed this way, it is not in the shell's history",
        )
    return ok(f"set: {', '.join(needed)}")


_SUBJECT = "credentials"
CHECKS = (
    Check(
        "needed-variables",
        _SUBJECT,
        "a variable of `--need` that is not set, or empty",
        "the run fails when it reads it, which may be hours from now",
        _check_needed,
    ),
    Check(
        "huggingface-token",
        _SUBJECT,
        "an `HF_TOKEN` (or the token that `hf auth login` saved) that huggingface.co does not "
        "accept; a warning if that cannot be checked",
        "gated and private models and data sets are refused (401)",
        partial(_examine, HUGGING_FACE),
    ),
    Check(
        "wandb-key",
        _SUBJECT,
        "a `WANDB_API_KEY` (or the key that `wandb login` saved) that api.wandb.ai does not "
        "accept; a warning if that cannot be checked",
        "wandb.init ends the run, or waits for input",
        partial(_examine, WANDB),
    ),
    Check(
        "github-token",
        _SUBJECT,
        "a `GH_TOKEN` or `GITHUB_TOKEN` that api.github.com does not accept; a warning if that "
        "cannot be checked",
        "packages in private repositories cannot be installed",
        partial(_examine, GITHUB),
    ),
)
