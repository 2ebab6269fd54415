"""One POST of JSON: no redirect is followed, for it would lose the body and show a token elsewhere."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trainvitals.courier.failures import DeliveryError
from trainvitals.courier.message import cut, write_line
from trainvitals.masking import MASK, mask_text

_PASSING = frozenset({408, 425, 429})
_FIRST_SERVER_ERROR = 500
_ADVICE = {
    400: "it does not take this message",
    401: "its address or token is wrong: correct it",
    403: "its address or token is wrong: correct it",
    404: "its address is wrong, or was taken back: make a new one",
    410: "its address was taken back: make a new one",
    413: "the message is too long for it",
}
_MOVED = "it leads elsewhere: give the address that answers"
_MOST_ANSWER_BYTES = 2000
_MOST_ANSWER = 120
_SHORTEST_SECRET = 8


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow none."""


def post(
    url: str,
    payload: Mapping[str, object],
    *,
    token: str | None = None,
    timeout_seconds: float = 10.0,
) -> None:
    """Send JSON, through the proxy that the environment names.

    Args:
        url: Where to; it is a secret.
        payload: What to send.
        token: What to send as a bearer token; None for none.
        timeout_seconds: How long the connection may be silent.

    Raises:
        DeliveryError: It was not taken. The text names the host alone.
    """
    host = _find_host(url)
    headers = {"Content-Type": "application/json", "User-Agent": "trainvitals"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    secrets = (url, urlsplit(url).path, urlsplit(url).query, token or "")
    try:
        # Built by hand for http and https alone, as _find_host makes sure.
        request = Request(url, json.dumps(payload).encode(), headers, method="POST")  # noqa: S310
        with build_opener(_NoRedirect).open(request, timeout=timeout_seconds) as response:
            response.read(_MOST_ANSWER_BYTES)
    except HTTPError as error:
        raise _describe_refusal(host, error, secrets) from None
    except (OSError, HTTPException, UnicodeError) as error:
        reason = _hide(str(getattr(error, "reason", "") or error), secrets)
        words = reason or type(error).__name__
        raise DeliveryError(f"{host} cannot be reached: {words}", is_passing=True) from None
    except ValueError:
        raise _refuse_address() from None


def parse_retry_after(text: str | None, *, clock: Callable[[], float] = time.time) -> float | None:
    """Read the header Retry-After: seconds, or a date.

    Returns:
        Seconds from now, 0 or more; None where it is missing or makes no sense.
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - clock()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _find_host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise _refuse_address() from None
    if parts.scheme not in {"http", "https"} or not host:
        raise _refuse_address()
    return host


def _refuse_address() -> DeliveryError:
    return DeliveryError("its address is no URL: give it as https://…", is_passing=False)


def _describe_refusal(host: str, error: HTTPError, secrets: tuple[str, ...]) -> DeliveryError:
    with error:
        answer = _hide(_read_answer(error), secrets)
    code = error.code
    is_passing = code in _PASSING or code >= _FIRST_SERVER_ERROR
    advice = _MOVED if code < min(_ADVICE) else _ADVICE.get(code, "")
    words = [f"{host} answered {code}", *filter(None, (answer, advice))]
    return DeliveryError(
        ": ".join(words),
        is_passing=is_passing,
        retry_after_seconds=parse_retry_after(error.headers.get("Retry-After")),
    )


def _read_answer(error: HTTPError) -> str:
    try:
        return error.read(_MOST_ANSWER_BYTES).decode(errors="replace")
    except (OSError, HTTPException):
        return ""


def _hide(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return cut(write_line(mask_text(text)), _MOST_ANSWER)
