"""Notification channels: one class per channel, and a list of the classes.

Each class completely defines a channel: the variables in `.env`, which of these variables are
secret, which Alertmanager versions support the channel, and the names in Alertmanager's
configuration. A `DirectChannel` also defines how to send a message without Alertmanager. To add a
channel, write a class, add the class to `CHANNELS`, and document the variables in `.env.example`
and docs/alerting.md.

Each variable is a field of the class (see the module `variables`). A variable is secret if the
field is excluded from `repr`, and required if the field has no default. If no channel is
configured, the error message suggests the first variable of each channel.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from trainvitals.alerting.message import (
    Message,
    make_discord_payload,
    make_slack_payload,
    make_webhook_payload,
)
from trainvitals.alerting.transport import post_json, send_mail
from trainvitals.alerting.variables import (
    from_variable,
    list_variables,
    parse_addresses,
    parse_match,
    parse_server,
    parse_switch,
    parse_url,
    read_fields,
)
from trainvitals.sources.external_program import Version

# A part of Alertmanager's configuration as parsed YAML.
Block = dict[str, object]

_TITLE = '{{ template "trainvitals.title" . }}'
_MARKDOWN_TITLE = '{{ template "trainvitals.markdown.title" . }}'
_FIRST_DASHBOARD = (
    "{{ with index .Alerts 0 }}{{ with .Annotations.dashboard_url }}"
    '{{ template "trainvitals.dashboard.url" . }}{{ end }}{{ end }}'
)
_FIRST_RUNBOOK = (
    "{{ with index .Alerts 0 }}{{ with .Annotations.runbook_url }}"
    '{{ template "trainvitals.runbook.url" . }}{{ end }}{{ end }}'
)


def _parse_chat_id(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise ValueError("is not a number; write the ID of the chat, such as -1001234567890")
    return int(text)


@dataclass(frozen=True, slots=True)
class Channel(ABC):
    """A service to which notifications are sent.

    Attributes:
        title: The display name of the channel.
        integrations: The channel's integration names in Alertmanager, and the first Alertmanager
            version that supports each name.
        takes_warnings: Whether the channel receives warnings as well as critical alerts.
    """

    title: ClassVar[str]
    integrations: ClassVar[tuple[tuple[str, Version], ...]]
    takes_warnings: ClassVar[bool] = True

    @abstractmethod
    def make_block(self, version: Version) -> Block:
        """Return the channel's configuration within an Alertmanager receiver."""


@dataclass(frozen=True, slots=True)
class DirectChannel(Channel):
    """A channel to which messages can be sent without Alertmanager."""

    @abstractmethod
    def send(self, message: Message, timeout_seconds: float) -> None:
        """Make one attempt to send a message to the channel.

        Raises:
            DeliveryError: The service did not accept the message.
        """


@dataclass(frozen=True, slots=True)
class Slack(DirectChannel):
    """A Slack channel, reached through an incoming webhook."""

    title = "Slack"
    integrations = (("slack", (0, 0)),)
    url: str = field(repr=False, metadata=from_variable("SLACK_WEBHOOK_URL", parse_url))
    channel: str | None = field(
        default=None,
        metadata=from_variable(
            "SLACK_CHANNEL",
            parse_match(r"[^\s{}]+", "is not a channel; write it as #alerts, or leave it out"),
        ),
    )

    def make_block(self, version: Version) -> Block:  # noqa: ARG002 - the same for all versions
        """Return the Slack configuration for an Alertmanager receiver."""
        return {
            "api_url": self.url,
            "send_resolved": True,
            "color": '{{ template "trainvitals.slack.color" . }}',
            "title": '{{ template "trainvitals.slack.title" . }}',
            "title_link": _FIRST_DASHBOARD,
            "text": '{{ template "trainvitals.slack.text" . }}',
            "fallback": '{{ template "trainvitals.slack.title" . }}',
        } | ({"channel": self.channel} if self.channel else {})

    def send(self, message: Message, timeout_seconds: float) -> None:
        """Make one attempt to send a message to the Slack channel."""
        payload = make_slack_payload(message, self.channel)
        post_json(self.url, payload, timeout_seconds=timeout_seconds)


@dataclass(frozen=True, slots=True)
class Discord(DirectChannel):
    """A Discord channel, reached through the channel's webhook."""

    title = "Discord"
    integrations = (("discord", (0, 25)),)
    url: str = field(repr=False, metadata=from_variable("DISCORD_WEBHOOK_URL", parse_url))

    def make_block(self, version: Version) -> Block:  # noqa: ARG002 - the same for all versions
        """Return the Discord configuration for an Alertmanager receiver."""
        return {
            "webhook_url": self.url,
            "send_resolved": True,
            "title": _MARKDOWN_TITLE,
            "message": '{{ template "trainvitals.discord.text" . }}',
        }

    def send(self, message: Message, timeout_seconds: float) -> None:
        """Make one attempt to send a message to the Discord channel."""
        post_json(self.url, make_discord_payload(message), timeout_seconds=timeout_seconds)


@dataclass(frozen=True, slots=True)
class Teams(Channel):
    """A Microsoft Teams channel, reached through the URL of a workflow or a legacy connector."""

    title = "Teams"
    integrations = (("msteams", (0, 26)), ("msteamsv2", (0, 28)))
    url: str = field(repr=False, metadata=from_variable("TEAMS_WEBHOOK_URL", parse_url))

    def make_block(self, version: Version) -> Block:  # noqa: ARG002 - the same for all versions
        """Return the Teams configuration for an Alertmanager receiver."""
        return {
            "webhook_url": self.url,
            "send_resolved": True,
            "title": _MARKDOWN_TITLE,
            "text": '{{ template "trainvitals.teams.text" . }}',
        }


@dataclass(frozen=True, slots=True)
class PagerDuty(Channel):
    """A PagerDuty service; the field `url` is None for the public Events API."""

    title = "PagerDuty"
    integrations = (("pagerduty", (0, 0)),)
    takes_warnings = False
    routing_key: str = field(
        repr=False,
        metadata=from_variable(
            "PAGERDUTY_ROUTING_KEY",
            parse_match(
                r"[A-Za-z0-9_-]{16,64}",
                "is not an integration key; write the 32 characters of an Events API v2 integration",
            ),
        ),
    )
    url: str | None = field(default=None, metadata=from_variable("PAGERDUTY_URL", parse_url))

    def make_block(self, version: Version) -> Block:
        """Return the PagerDuty configuration for an Alertmanager receiver."""
        # Since 0.30, Alertmanager parses a detail as YAML if possible, and expands the values in
        # the detail. A leading tab is invalid YAML, so the text is kept unchanged.
        guard = '{{ "\\t" }}' if version >= (0, 30) else ""
        resolved = guard + '{{ template "trainvitals.plain.resolved" . }}'
        block: Block = {
            "routing_key": self.routing_key,
            "send_resolved": True,
            "description": _TITLE,
            "severity": '{{ template "trainvitals.pagerduty.severity" . }}',
            "class": '{{ template "trainvitals.pagerduty.class" . }}',
            "component": "{{ .CommonLabels.component }}",
            "group": '{{ template "trainvitals.pagerduty.group" . }}',
            "client_url": _FIRST_DASHBOARD,
            "details": {
                "firing": guard + '{{ template "trainvitals.plain.firing" . }}',
                "resolved": f"{{{{ if .Alerts.Resolved }}}}{resolved}{{{{ end }}}}",
            },
            "links": [
                {"href": _FIRST_RUNBOOK, "text": "Runbook"},
                {"href": _FIRST_DASHBOARD, "text": "Dashboard"},
            ],
        }
        if version >= (0, 26):
            block |= {"client": "trainvitals", "source": "{{ .CommonLabels.instance }}"}
        else:  # Alertmanager sends the client's name if the source is empty.
            block["client"] = "{{ or .CommonLabels.instance `trainvitals` }}"
        return block | ({"url": self.url} if self.url else {})


@dataclass(frozen=True, slots=True)
class Telegram(Channel):
    """A Telegram chat; the field `api_url` is None for the public Bot API."""

    title = "Telegram"
    integrations = (("telegram", (0, 24)),)
    bot_token: str = field(
        repr=False,
        metadata=from_variable(
            "TELEGRAM_BOT_TOKEN",
            parse_match(
                r"\d+:[\w-]+", "is not a bot token; write the whole token, such as 123456:ABC…"
            ),
        ),
    )
    chat_id: int = field(
        metadata=from_variable("TELEGRAM_CHAT_ID", _parse_chat_id, is_address=True)
    )
    api_url: str | None = field(default=None, metadata=from_variable("TELEGRAM_API_URL", parse_url))

    def make_block(self, version: Version) -> Block:  # noqa: ARG002 - the same for all versions
        """Return the Telegram configuration for an Alertmanager receiver."""
        return {
            "bot_token": self.bot_token,
            "chat_id": self.chat_id,
            "send_resolved": True,
            "parse_mode": "HTML",
            "message": '{{ template "trainvitals.telegram.text" . }}',
        } | ({"api_url": self.api_url} if self.api_url else {})


@dataclass(frozen=True, slots=True)
class Email(DirectChannel):
    """E-mail to one or more addresses, without authentication if no user name is set."""

    title = "e-mail"
    integrations = (("email", (0, 0)),)
    smarthost: str = field(metadata=from_variable("SMTP_SMARTHOST", parse_server))
    sender: str = field(metadata=from_variable("SMTP_FROM", parse_addresses))
    to: str = field(metadata=from_variable("SMTP_TO", parse_addresses, is_address=True))
    username: str | None = field(
        default=None, metadata=from_variable("SMTP_USERNAME", needs="SMTP_PASSWORD")
    )
    password: str | None = field(
        default=None, repr=False, metadata=from_variable("SMTP_PASSWORD", needs="SMTP_USERNAME")
    )
    requires_tls: bool = field(
        default=True, metadata=from_variable("SMTP_REQUIRE_TLS", parse_switch)
    )

    def make_block(self, version: Version) -> Block:  # noqa: ARG002 - the same for all versions
        """Return the e-mail configuration for an Alertmanager receiver."""
        block: Block = {
            "smarthost": self.smarthost,
            "from": self.sender,
            "to": self.to,
            "send_resolved": True,
            "require_tls": self.requires_tls,
            "headers": {"Subject": _TITLE},
            "text": '{{ template "trainvitals.plain.text" . }}',
            "html": '{{ template "trainvitals.email.html" . }}',
        }
        if self.username and self.password:
            block |= {"auth_username": self.username, "auth_password": self.password}
        return block

    def send(self, message: Message, timeout_seconds: float) -> None:
        """Make one attempt to send a message to the e-mail addresses."""
        send_mail(
            message,
            self.smarthost,
            sender=self.sender,
            to=self.to,
            login=(self.username, self.password) if self.username and self.password else None,
            requires_tls=self.requires_tls,
            timeout_seconds=timeout_seconds,
        )


@dataclass(frozen=True, slots=True)
class Webhook(DirectChannel):
    """A service that accepts the JSON format of Alertmanager's webhooks."""

    title = "webhook"
    integrations = (("webhook", (0, 0)),)
    url: str = field(repr=False, metadata=from_variable("WEBHOOK_URL", parse_url))
    token: str | None = field(default=None, repr=False, metadata=from_variable("WEBHOOK_TOKEN"))

    def make_block(self, version: Version) -> Block:  # noqa: ARG002 - the same for all versions
        """Return the webhook configuration for an Alertmanager receiver."""
        block: Block = {"url": self.url, "send_resolved": True}
        if self.token:
            block["http_config"] = {"authorization": {"credentials": self.token}}
        return block

    def send(self, message: Message, timeout_seconds: float) -> None:
        """Make one attempt to send a message to the webhook."""
        payload = make_webhook_payload(message)
        post_json(self.url, payload, token=self.token, timeout_seconds=timeout_seconds)


CHANNELS: tuple[type[Channel], ...] = (
    Slack,
    Discord,
    Teams,
    PagerDuty,
    Telegram,
    Email,
    Webhook,
)
DIRECT_CHANNELS = tuple(kind for kind in CHANNELS if issubclass(kind, DirectChannel))

Kind = TypeVar("Kind", bound=Channel)


def advise_variables(kinds: Iterable[type[Channel]] = CHANNELS) -> str:
    """Return a hint that names each channel's variable: `set one of SLACK_WEBHOOK_URL, …`."""
    return f"set one of {', '.join(list_variables(kind)[0].name for kind in kinds)}"


def read_channels(
    variables: Mapping[str, str], kinds: Sequence[type[Kind]], *, prefix: str = ""
) -> tuple[Kind, ...]:
    """Return the channels whose variables are set; an empty tuple if no variables are set.

    Args:
        variables: The environment, or the variables in `.env`; an empty value counts as not set.
        kinds: The channel classes whose variables are read.
        prefix: The prefix of each variable, such as `TEAM_VISION_`; empty for the default channels.

    Raises:
        ConfigurationError: A required variable is missing, or a value is invalid. The error message
            names the variable but does not contain the value.
    """
    found = (read_fields(kind, variables, prefix=prefix) for kind in kinds)
    return tuple(each for each in found if each is not None)


def read_direct_channels(variables: Mapping[str, str]) -> tuple[DirectChannel, ...]:
    """Return the channels whose variables are set and that do not require Alertmanager.

    Raises:
        ConfigurationError: A required variable is missing, or a value is invalid.
    """
    return read_channels(variables, DIRECT_CHANNELS)
