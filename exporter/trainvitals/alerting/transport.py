"""Makes one attempt to send JSON over HTTP, or an e-mail over SMTP.

Redirects are not followed, because a redirect could lose the body and send the token to another
host. SMTP uses implicit TLS on port 465, and STARTTLS on other ports if TLS is required.
"""

from __future__ import annotations

import json
import math
import smtplib
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from email.errors import MessageError
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request

from trainvitals.alerting.message import Message, make_mail, write_line
from trainvitals.errors import TrainvitalsError
from trainvitals.foreign_numbers import read_duration
from trainvitals.masking import MASK, mask_text
from trainvitals.sources.http_client import build_opener

_TEMPORARY = frozenset({408, 425, 429})
_FIRST_SERVER_ERROR = 500
_ADVICE = {
    400: "it rejects this message",
    401: "the URL or the token is wrong: correct it",
    403: "the URL or the token is wrong: correct it",
    404: "the URL is wrong or revoked: create a new one",
    410: "the URL was revoked: create a new one",
    413: "the message is too long",
}
_MOVED = "it redirects, which is not followed: use the URL that it redirects to"
_MOST_ANSWER_BYTES = 2000
_MOST_ANSWER = 120
_SHORTEST_SECRET = 8
_TLS_PORT = 465
# Without a local name, smtplib calls socket.getfqdn(). Its reverse lookup may block for a minute if
# there is no name server.
_LOCAL_NAME = "localhost"
_FIRST_PERMANENT = 500


class DeliveryError(TrainvitalsError):
    """A channel did not accept a message; the error's text contains neither a URL nor a token.

    Attributes:
        is_temporary: Whether a retry may succeed.
        retry_after_seconds: The wait that the channel requested, in seconds; None if the channel
            requested no wait.
    """

    def __init__(
        self, text: str, *, is_temporary: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(text)
        self.is_temporary = is_temporary
        self.retry_after_seconds = retry_after_seconds


def post_json(
    url: str,
    payload: Mapping[str, object],
    *,
    token: str | None = None,
    timeout_seconds: float = 10.0,
) -> None:
    """Post JSON to a URL, through a proxy if the environment defines a proxy.

    Args:
        url: The URL, which is treated as a secret.
        payload: The request body, which is encoded as JSON.
        token: The bearer token; None if the request contains no token.
        timeout_seconds: The timeout of each socket operation, in seconds.

    Raises:
        DeliveryError: The server did not accept the message. The error's text contains only the
            host of the URL.
    """
    host = _find_host(url)
    headers = {"Content-Type": "application/json", "User-Agent": "trainvitals"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    parts = (url, urlsplit(url).path, urlsplit(url).query, token or "")
    secrets = [part for part in parts if len(part) >= _SHORTEST_SECRET]
    try:
        body = json.dumps(payload).encode()
        request = Request(url, body, headers, method="POST")  # noqa: S310 - see _find_host
        with build_opener(uses_proxy=True).open(request, timeout=timeout_seconds) as response:
            response.read(_MOST_ANSWER_BYTES)
    except HTTPError as error:
        raise _describe_refusal(host, error, secrets) from None
    except (OSError, HTTPException, UnicodeError) as error:
        raise _describe_unreachable(host, getattr(error, "reason", "") or error, secrets) from None
    except ValueError:
        raise _refuse_address() from None


def parse_retry_after(text: str | None, *, clock: Callable[[], float] = time.time) -> float | None:
    """Parse a `Retry-After` header, which contains seconds or a date.

    Returns:
        The number of seconds from now, at least 0; None if the header is missing or invalid.
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
    return None if math.isnan(seconds) else read_duration(max(0.0, seconds))


def send_mail(
    message: Message,
    smarthost: str,
    *,
    sender: str,
    to: str,
    login: tuple[str, str] | None = None,
    requires_tls: bool = True,
    timeout_seconds: float = 10.0,
) -> None:
    """Make one attempt to send an e-mail over SMTP.

    Args:
        message: The e-mail to send.
        smarthost: The address of the mail server, `HOST:PORT`.
        sender: The e-mail address of the sender.
        to: One or more recipient addresses, separated by commas.
        login: The user name and the password; None if no authentication is used.
        requires_tls: Whether to refuse a server without STARTTLS.
        timeout_seconds: The timeout of each socket operation, in seconds.

    Raises:
        DeliveryError: The server refused the message for some or all recipients.
    """
    host, _, port = smarthost.rpartition(":")
    secrets = [login[1]] if login else []
    try:
        mail = make_mail(message, sender, to)
        server = _connect(host.strip("[]"), int(port), requires_tls, timeout_seconds)
        try:
            if login is not None:
                server.login(*login)
            refused = server.send_message(mail)
        finally:
            _hang_up(server)
    except smtplib.SMTPResponseException as error:
        answer = _hide(f"{error.smtp_code} {_decode(error.smtp_error)}", secrets)
        is_temporary = error.smtp_code < _FIRST_PERMANENT
        raise DeliveryError(f"{host} answered {answer}", is_temporary=is_temporary) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise _describe_refused(host, error.recipients, secrets) from None
    except smtplib.SMTPNotSupportedError as error:
        words = f"{host}: {_hide(str(error), secrets)}; see SMTP_REQUIRE_TLS"
        raise DeliveryError(words, is_temporary=False) from None
    except OSError as error:  # SMTPException is a subclass of OSError
        raise _describe_unreachable(host, error, secrets) from None
    except (ValueError, MessageError) as error:
        words = f"cannot compose the e-mail: {_hide(str(error), secrets)}"
        raise DeliveryError(words, is_temporary=False) from None
    if refused:
        raise _describe_refused(host, refused, secrets, others="; the other recipients got it")


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
    return DeliveryError("not a URL; write it as https://…", is_temporary=False)


def _describe_unreachable(host: str, reason: object, secrets: Iterable[str]) -> DeliveryError:
    words = _hide(str(reason), secrets) or type(reason).__name__
    return DeliveryError(f"{host} cannot be reached: {words}", is_temporary=True)


def _describe_refusal(host: str, error: HTTPError, secrets: Iterable[str]) -> DeliveryError:
    with error:
        answer = _hide(_read_answer(error), secrets)
    code = error.code
    advice = _MOVED if code < min(_ADVICE) else _ADVICE.get(code, "")
    return DeliveryError(
        ": ".join([f"{host} answered {code}", *filter(None, (answer, advice))]),
        is_temporary=code in _TEMPORARY or code >= _FIRST_SERVER_ERROR,
        retry_after_seconds=parse_retry_after(error.headers.get("Retry-After")),
    )


def _read_answer(error: HTTPError) -> str:
    try:
        return error.read(_MOST_ANSWER_BYTES).decode(errors="replace")
    except (OSError, HTTPException):
        return ""


def _connect(host: str, port: int, requires_tls: bool, timeout_seconds: float) -> smtplib.SMTP:  # noqa: FBT001 - handed through
    if port == _TLS_PORT:
        return smtplib.SMTP_SSL(
            host, port, _LOCAL_NAME, timeout=timeout_seconds, context=ssl.create_default_context()
        )
    server = smtplib.SMTP(host, port, _LOCAL_NAME, timeout=timeout_seconds)
    if requires_tls:
        try:
            server.starttls(context=ssl.create_default_context())
        except OSError:
            server.close()
            raise
    return server


def _hang_up(server: smtplib.SMTP) -> None:
    # The e-mail has already been accepted, so an error in response to QUIT is ignored.
    with suppress(OSError):
        server.quit()
    server.close()


def _describe_refused(
    host: str, refused: dict[str, tuple[int, bytes]], secrets: Iterable[str], *, others: str = ""
) -> DeliveryError:
    names = ", ".join(
        f"{address}: {code} {_decode(answer)}" for address, (code, answer) in refused.items()
    )
    is_temporary = not others and all(code < _FIRST_PERMANENT for code, _ in refused.values())
    return DeliveryError(
        f"{host} refused {_hide(names, secrets)}{others}", is_temporary=is_temporary
    )


def _decode(answer: bytes | str) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def _hide(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return write_line(mask_text(text), _MOST_ANSWER)
