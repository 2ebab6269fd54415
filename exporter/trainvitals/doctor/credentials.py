"""Whether keys and tokens are there and accepted by who gave them out.

Each is shown to its issuer alone, over a connection that follows no redirection to anybody else,
and is never printed. What passes by itself (a busy server, a lost connection) is tried again, with
growing pauses.
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
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay
from tenacity.wait import wait_exponential, wait_random

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.doctor.issuers import GITHUB, HUGGING_FACE, WANDB, Issuer

_PATIENCE_SECONDS = 1.5
_TRIES = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 0.5
_REFUSED = frozenset({401, 403})
_MOST_BYTES = 1 << 16
_YES = frozenset({"1", "on", "true", "yes"})


class _PassingError(Exception):
    """It may go better the next time."""


class _RefusedError(Exception):
    """The issuer does not accept it."""


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Follows nothing: whoever the issuer sends us to is not to see the token."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""


def _examine(issuer: Issuer, facts: Facts) -> Finding:
    environ = facts.world.environ
    if any(environ.get(name, "").lower() in _YES for name in issuer.offline) or (
        issuer is WANDB and environ.get("WANDB_MODE") in {"offline", "disabled", "dryrun"}
    ):
        return pass_over("the environment says that the run stays offline")
    where, token = _find_token(issuer, facts)
    if not token:
        return pass_over(f"{issuer.variables[0]} is not set")
    if not token.isascii() or not token.isprintable() or " " in token:
        return complain(
            f"{where} holds a blank, a line break or a letter that no token has",
            issuer.login,
            advice="it was pasted with something beside it",
        )
    base = (environ.get(issuer.base_variable) or issuer.base).rstrip("/")
    host = urlsplit(base).hostname or base
    try:
        name = _ask(issuer, base, token, facts)
    except _RefusedError as error:
        return complain(f"{where} is not accepted by {host} ({error})", issuer.login)
    except _PassingError as error:
        return warn(f"{where} is set, and was not checked; {host}: {error}")
    return approve(f"{where} is accepted by {host} as {name}'s")


def _find_token(issuer: Issuer, facts: Facts) -> tuple[str, str]:
    """Find a token where the libraries of its issuer do; empty for none."""
    environ = facts.world.environ
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
    except RuntimeError:  # nobody has this number
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
    """Ask whose token it is, a few times where that may help.

    Raises:
        _RefusedError: It is not accepted.
        _PassingError: The issuer was not reached, or did not answer as it does.
    """
    budget = facts.seconds_left
    for attempt in Retrying(
        retry=retry_if_exception_type(_PassingError),
        stop=stop_after_attempt(_TRIES) | stop_after_delay(max(budget - _PATIENCE_SECONDS, 0)),
        wait=wait_exponential(multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS)
        + wait_random(0, _FIRST_PAUSE_SECONDS),
        reraise=True,
    ):
        with attempt:
            return _ask_once(issuer, base, token, min(_PATIENCE_SECONDS, budget))
    raise AssertionError  # a retrying without a try does not exist


def _ask_once(issuer: Issuer, base: str, token: str, patience: float) -> str:
    secret = base64.b64encode(f"api:{token}".encode()).decode() if issuer.has_password else token
    request = urllib.request.Request(  # noqa: S310 - an address of the issuer's, or of the user's
        base + issuer.path,
        data=issuer.body.encode() or None,
        headers={
            "Authorization": f"{'Basic' if issuer.has_password else 'Bearer'} {secret}",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "trainvitals",
        },
    )
    opener = urllib.request.build_opener(_NoRedirection)
    try:
        with opener.open(request, timeout=patience) as answer:
            body = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _REFUSED:
            raise _RefusedError(f"status {error.code}") from None
        raise _PassingError(f"status {error.code}") from None
    except (OSError, ValueError) as error:
        raise _PassingError(_explain(error)) from None
    return _understand(issuer, body)


def _understand(issuer: Issuer, body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        raise _PassingError("the answer is not JSON; is there a proxy in between?") from None
    name = issuer.find_name(answer) if isinstance(answer, dict) else ""
    if not name:
        raise _RefusedError("it names no user")
    return name


def _explain(error: OSError | ValueError) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message}); look at the clock"
    if isinstance(reason, socket.gaierror):
        return "nobody knows the name"
    if isinstance(reason, TimeoutError):
        return "no answer"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return type(reason).__name__  # what it says may hold what was sent


def _examine_needed(facts: Facts) -> Finding:
    needed = facts.wishes.needed
    if not needed:
        return pass_over("nothing was named with --need")
    environ = facts.world.environ
    missing = [name for name in needed if not environ.get(name, "").strip()]
    if missing:
        return complain(
            f"not set: {', '.join(missing)}",
            f"read -rs {missing[0]} && export {missing[0]}",
            advice="typed so, it is in no history of commands",
        )
    return approve(f"set: {', '.join(needed)}")


_SUBJECT = "credentials"
CHECKS = (
    Check(
        "needed-variables",
        _SUBJECT,
        "a variable of `--need` that is not set or empty",
        "the run fails when it wants it, which may be hours from now",
        _examine_needed,
    ),
    Check(
        "huggingface-token",
        _SUBJECT,
        "an `HF_TOKEN` (or the token that `hf auth login` saved) that huggingface.co does not "
        "accept; a warning where it cannot be asked",
        "gated and private models and data sets are refused with 401",
        partial(_examine, HUGGING_FACE),
    ),
    Check(
        "wandb-key",
        _SUBJECT,
        "a `WANDB_API_KEY` (or the key that `wandb login` saved) that api.wandb.ai does not "
        "accept; a warning where it cannot be asked",
        "wandb.init ends the run, or waits for somebody to type a key",
        partial(_examine, WANDB),
    ),
    Check(
        "github-token",
        _SUBJECT,
        "a `GH_TOKEN` or `GITHUB_TOKEN` that api.github.com does not accept; a warning where it "
        "cannot be asked",
        "private repositories cannot be installed from",
        partial(_examine, GITHUB),
    ),
)
