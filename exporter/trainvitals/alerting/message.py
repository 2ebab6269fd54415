"""Defines notifications, and formats them as the payloads of the channels.

- Slack: `text` in Slack's mark-up, in which only `&`, `<` and `>` have a special meaning; at most
  40000 characters.
- Discord: one embed with a title of at most 256 characters, a description of at most 4096
  characters, and at most 25 fields whose names have at most 256 characters and whose values have at
  most 1024; at most 6000 characters in total. `allowed_mentions` prevents names in the text from
  notifying users.
- Webhook: version 4 of Alertmanager's JSON format with one alert, because services at WEBHOOK_URL
  expect this format.
- E-mail: plain text, and also HTML if the message contains HTML.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timezone
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Literal

from trainvitals.foreign_text import clean_lines, clean_text, cut
from trainvitals.units import format_local_iso

Severity = Literal["critical", "warning", "info"]

_SIGNS = {"critical": "🔴", "warning": "🟠", "info": "🔵"}
_COLORS = {"critical": 0xD92D20, "warning": 0xF79009, "info": 0x2E90FA}
_OVER_SIGN, _OVER_COLOR = "🟢", 0x12B76A
_SLACK_TEXT = 12_000  # shorter than the length at which Slack truncates a text
_DISCORD_TITLE, _DISCORD_TEXT, _DISCORD_FIELDS = 256, 4096, 10
_DISCORD_NAME, _DISCORD_VALUE = 40, 100
_MAIL_SUBJECT = 200
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Message:
    """A notification about an event, such as an alert.

    Attributes:
        title: The subject of the message, one line.
        text: The body of the message in plain text, which may be empty.
        severity: The severity of the reported event.
        key: The key for deduplication; repeated messages with the same key are merged.
        html: The body of the message as HTML, for e-mail; None if only plain text is sent.
        fields: Additional pairs of names and values, such as the run and the host.
        is_over: Whether the message resolves the previous message with the same key.
        time: The time of the event in Unix seconds; None for the time at which the message is sent.
    """

    title: str
    text: str
    severity: Severity
    key: str
    html: str | None = None
    fields: tuple[tuple[str, str], ...] = ()
    is_over: bool = False
    time: float | None = None


def write_line(text: str, most: int | None = None) -> str:
    """Return a text as one printable line that is valid in a mail header.

    Args:
        text: The text, which may contain any characters.
        most: The maximum length in characters; a longer text is cut and ends with `…`. None for no
            limit.
    """
    return clean_text(" ".join(clean_text(text).split()), most=most)


def make_slack_payload(message: Message, channel: str | None) -> Mapping[str, object]:
    """Return a message's payload for a Slack incoming webhook."""
    title, body = _escape(_write_title(message)), _escape(_write_body(message))
    text = cut(f"{_choose_sign(message)} *{title}*\n{body}".rstrip(), _SLACK_TEXT)
    payload = {"text": text, "unfurl_links": False, "unfurl_media": False}
    return payload | ({"channel": channel} if channel else {})


def make_discord_payload(message: Message) -> Mapping[str, object]:
    """Return a message's payload for a Discord webhook."""
    fields = [
        {
            "name": write_line(name, _DISCORD_NAME) or "-",
            "value": write_line(value, _DISCORD_VALUE) or "-",
            "inline": True,
        }
        for name, value in message.fields[:_DISCORD_FIELDS]
    ]
    embed = {
        "title": cut(f"{_choose_sign(message)} {_write_title(message)}", _DISCORD_TITLE),
        "description": cut(clean_lines(message.text), _DISCORD_TEXT),
        "color": _OVER_COLOR if message.is_over else _COLORS[message.severity],
        "fields": fields,
    }
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def make_webhook_payload(
    message: Message, *, clock: Callable[[], float] = time.time
) -> Mapping[str, object]:
    """Return a message's payload in the format of an Alertmanager webhook about one alert."""
    # `units.format_iso` is not used because it may return None, and Alertmanager's format requires
    # a time.
    seconds = clock() if message.time is None else message.time
    at = format_local_iso(seconds, timezone.utc)
    status = "resolved" if message.is_over else "firing"
    labels = {
        "alertname": write_line(message.title),
        "severity": message.severity,
        **{_write_label(name): write_line(value) for name, value in message.fields},
    }
    annotations = {"summary": _write_title(message), "description": clean_lines(message.text)}
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": at,
        "endsAt": at if message.is_over else _NEVER,
        "generatorURL": "",
        "fingerprint": "",
    }
    return {
        "version": "4",
        "groupKey": message.key,
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "trainvitals",
        "groupLabels": {},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "",
        "alerts": [alert],
    }


def make_mail(message: Message, sender: str, to: str) -> EmailMessage:
    """Return a notification as an e-mail.

    Raises:
        ValueError: An address is malformed.
    """
    mail = EmailMessage()
    mail["Subject"] = write_line(f"[{message.severity}] {_write_title(message)}", _MAIL_SUBJECT)
    mail["From"], mail["To"] = sender, to
    mail["Date"] = formatdate(message.time)
    mail["Message-ID"] = make_msgid(domain="trainvitals.localhost")
    mail["Auto-Submitted"] = "auto-generated"  # The header suppresses vacation notices (RFC 3834).
    mail.set_content(_write_body(message) + "\n")
    if message.html is not None:
        mail.add_alternative(message.html.encode("utf-8", "replace").decode(), subtype="html")
    return mail


def _write_title(message: Message) -> str:
    return ("Over: " if message.is_over else "") + write_line(message.title)


def _write_body(message: Message) -> str:
    fields = "\n".join(f"{write_line(name)}: {write_line(value)}" for name, value in message.fields)
    text = clean_lines(message.text).strip("\n")
    return "\n\n".join(part for part in (text, fields) if part)


def _choose_sign(message: Message) -> str:
    return _OVER_SIGN if message.is_over else _SIGNS[message.severity]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _write_label(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())
