"""A message in the form that each destination takes.

- Slack: `text` in its mark-up, in which `&`, `<` and `>` alone have a meaning; 40000 characters.
- Discord: one embed; a title of 256, a description of 4096 and 25 fields of 256 and 1024
  characters, together 6000. `allowed_mentions` keeps a name from calling everyone.
- Webhook: version 4 of what Alertmanager sends, with one alert, since that is what the receivers of
  WEBHOOK_URL understand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from trainvitals.courier.message import Message, cut, write_line, write_text

_SIGNS = {"critical": "🔴", "warning": "🟠", "info": "🔵"}
_COLORS = {"critical": 0xD92D20, "warning": 0xF79009, "info": 0x2E90FA}
_OVER_SIGN, _OVER_COLOR = "🟢", 0x12B76A
_SLACK_TEXT = 12_000  # more than anybody reads, and less than Slack cuts
_DISCORD_TITLE, _DISCORD_TEXT, _DISCORD_FIELDS = 256, 4096, 10
_DISCORD_NAME, _DISCORD_VALUE = 40, 100
_NEVER = "0001-01-01T00:00:00Z"


def write_title(message: Message) -> str:
    """Write the title in one line, and whether it is over."""
    return ("Over: " if message.is_over else "") + write_line(message.title)


def write_body(message: Message) -> str:
    """Write text and fields below each other, in plain text."""
    fields = "\n".join(f"{write_line(name)}: {write_line(value)}" for name, value in message.fields)
    return "\n\n".join(part for part in (write_text(message.text).strip("\n"), fields) if part)


def make_slack_payload(message: Message, channel: str | None) -> Mapping[str, object]:
    """Make what an incoming webhook of Slack takes."""
    title, body = _escape(write_title(message)), _escape(write_body(message))
    text = cut(f"{_choose_sign(message)} *{title}*\n{body}".rstrip(), _SLACK_TEXT)
    payload = {"text": text, "unfurl_links": False, "unfurl_media": False}
    return payload | ({"channel": channel} if channel else {})


def make_discord_payload(message: Message) -> Mapping[str, object]:
    """Make what a webhook of Discord takes."""
    fields = [
        {
            "name": cut(write_line(name), _DISCORD_NAME) or "-",
            "value": cut(write_line(value), _DISCORD_VALUE) or "-",
            "inline": True,
        }
        for name, value in message.fields[:_DISCORD_FIELDS]
    ]
    embed = {
        "title": cut(f"{_choose_sign(message)} {write_title(message)}", _DISCORD_TITLE),
        "description": cut(write_text(message.text), _DISCORD_TEXT),
        "color": _OVER_COLOR if message.is_over else _COLORS[message.severity],
        "fields": fields,
    }
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def make_webhook_payload(
    message: Message, *, clock: Callable[[], float] = time.time
) -> Mapping[str, object]:
    """Make what Alertmanager would send of one alert."""
    at = _write_time(clock() if message.time is None else message.time)
    status = "resolved" if message.is_over else "firing"
    labels = {
        "alertname": write_line(message.title),
        "severity": message.severity,
        **{_write_label(name): write_line(value) for name, value in message.fields},
    }
    annotations = {"summary": write_title(message), "description": write_text(message.text)}
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


def _choose_sign(message: Message) -> str:
    return _OVER_SIGN if message.is_over else _SIGNS[message.severity]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _write_label(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())


def _write_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
