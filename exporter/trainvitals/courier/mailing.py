"""One mail, by SMTP: TLS from the start on port 465, STARTTLS on every other where TLS is required."""

from __future__ import annotations

import smtplib
import ssl
from contextlib import suppress
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from trainvitals.courier.destinations import Email
from trainvitals.courier.failures import DeliveryError
from trainvitals.courier.message import Message, cut, write_line
from trainvitals.courier.payloads import write_body, write_title
from trainvitals.masking import MASK, mask_text

_TLS_PORT = 465
_OURSELVES = "localhost"  # asking for our own full name may wait for a name server
_FIRST_PERMANENT = 500
_MOST_SUBJECT, _MOST_ANSWER = 200, 120


def make_mail(message: Message, destination: Email) -> EmailMessage:
    """Write the mail.

    Raises:
        ValueError: An address is none.
    """
    mail = EmailMessage()
    mail["Subject"] = cut(f"[{message.severity}] {write_title(message)}", _MOST_SUBJECT)
    mail["From"], mail["To"] = destination.sender, destination.to
    mail["Date"] = formatdate(message.time)
    mail["Message-ID"] = make_msgid(domain="trainvitals.localhost")
    mail["Auto-Submitted"] = "auto-generated"  # nobody's holiday reply is wanted
    mail.set_content(write_body(message) + "\n")
    if message.html is not None:
        mail.add_alternative(message.html.encode("utf-8", "replace").decode(), subtype="html")
    return mail


def send_mail(message: Message, destination: Email, *, timeout_seconds: float = 10.0) -> None:
    """Send a mail.

    Args:
        message: What to send.
        destination: Where to.
        timeout_seconds: How long the connection may be silent.

    Raises:
        DeliveryError: It was not taken, or not for everybody.
    """
    host, _, port = destination.smarthost.rpartition(":")
    try:
        mail = make_mail(message, destination)
        server = _connect(host.strip("[]"), int(port), destination, timeout_seconds)
        try:
            if destination.username is not None and destination.password is not None:
                server.login(destination.username, destination.password)
            refused = server.send_message(mail)
        finally:
            _hang_up(server)
    except smtplib.SMTPResponseException as error:
        answer = _hide(f"{error.smtp_code} {_decode(error.smtp_error)}", destination)
        is_passing = error.smtp_code < _FIRST_PERMANENT
        raise DeliveryError(f"{host} answered {answer}", is_passing=is_passing) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise _describe_refused(host, error.recipients, destination) from None
    except smtplib.SMTPNotSupportedError as error:
        words = _hide(str(error), destination)
        raise DeliveryError(f"{host}: {words}: see SMTP_REQUIRE_TLS", is_passing=False) from None
    except OSError as error:  # SMTPException is one
        words = _hide(str(error), destination) or type(error).__name__
        raise DeliveryError(f"{host} cannot be reached: {words}", is_passing=True) from None
    except (ValueError, MessageError) as error:
        words = _hide(str(error), destination)
        raise DeliveryError(f"no mail can be made: {words}", is_passing=False) from None
    if refused:
        raise _describe_refused(host, refused, destination, others="; the others have it")


def _connect(host: str, port: int, destination: Email, timeout_seconds: float) -> smtplib.SMTP:
    if port == _TLS_PORT:
        return smtplib.SMTP_SSL(
            host, port, _OURSELVES, timeout=timeout_seconds, context=ssl.create_default_context()
        )
    server = smtplib.SMTP(host, port, _OURSELVES, timeout=timeout_seconds)
    if destination.requires_tls:
        try:
            server.starttls(context=ssl.create_default_context())
        except OSError:
            server.close()
            raise
    return server


def _hang_up(server: smtplib.SMTP) -> None:
    # Whatever is answered to QUIT, the mail was taken before.
    with suppress(OSError):
        server.quit()
    server.close()


def _describe_refused(
    host: str, refused: dict[str, tuple[int, bytes]], destination: Email, *, others: str = ""
) -> DeliveryError:
    names = ", ".join(
        f"{address}: {code} {_decode(answer)}" for address, (code, answer) in refused.items()
    )
    is_passing = not others and all(code < _FIRST_PERMANENT for code, _ in refused.values())
    return DeliveryError(
        f"{host} refused {_hide(names, destination)}{others}", is_passing=is_passing
    )


def _decode(answer: bytes | str) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def _hide(text: str, destination: Email) -> str:
    if destination.password:
        text = text.replace(destination.password, MASK)
    return cut(write_line(mask_text(text)), _MOST_ANSWER)
