"""Who is told: destinations from the variables that `.env.example` names.

    SLACK_WEBHOOK_URL [SLACK_CHANNEL]
    DISCORD_WEBHOOK_URL
    SMTP_SMARTHOST SMTP_FROM SMTP_TO [SMTP_USERNAME SMTP_PASSWORD SMTP_REQUIRE_TLS]
    WEBHOOK_URL [WEBHOOK_TOKEN]

The receivers that Alertmanager is given are read by the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainvitals.courier.variables import Variables
from trainvitals.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Slack:
    """A channel of Slack, by its incoming webhook."""

    title: ClassVar[str] = "Slack"
    url: str = field(repr=False)
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Discord:
    """A channel of Discord, by its webhook."""

    title: ClassVar[str] = "Discord"
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Email:
    """Mail to some addresses; without a user name the server is used without authentication."""

    title: ClassVar[str] = "e-mail"
    smarthost: str
    sender: str
    to: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    requires_tls: bool = True


@dataclass(frozen=True, slots=True)
class Webhook:
    """Anything that takes Alertmanager's own JSON."""

    title: ClassVar[str] = "webhook"
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


Destination = Slack | Discord | Email | Webhook

# One of each kind that alone makes a destination.
LEADS = ("SLACK_WEBHOOK_URL", "DISCORD_WEBHOOK_URL", "SMTP_SMARTHOST", "WEBHOOK_URL")


def read_destinations(values: Mapping[str, str]) -> tuple[Destination, ...]:
    """Give the destinations that have all they need; empty where nothing is set.

    Args:
        values: The environment, or what stands in `.env`; an empty value counts as not set.

    Raises:
        ConfigurationError: Half a destination is set, or a value that cannot be. It names the
            variable and shows no value.
    """
    variables = Variables(values)
    found = (read(variables) for read in (read_slack, read_discord, read_email, read_webhook))
    return tuple(each for each in found if each is not None)


def read_slack(variables: Variables) -> Slack | None:
    """Read a channel of Slack; None where nothing of it is set."""
    channel = variables.take_match(
        "SLACK_CHANNEL", r"[^\s{}]+", "is no channel: give it as #alerts, or leave it out"
    )
    if channel:
        variables.require("SLACK_WEBHOOK_URL", because="SLACK_CHANNEL")
    url = variables.take_url("SLACK_WEBHOOK_URL")
    return Slack(url, channel) if url else None


def read_discord(variables: Variables) -> Discord | None:
    """Read a channel of Discord; None where nothing of it is set."""
    url = variables.take_url("DISCORD_WEBHOOK_URL")
    return Discord(url) if url else None


def read_email(variables: Variables) -> Email | None:
    """Read mail; None where nothing of it is set."""
    names = ("SMTP_TO", "SMTP_FROM", "SMTP_SMARTHOST", "SMTP_USERNAME", "SMTP_PASSWORD")
    known = next((name for name in names if variables.get(name)), None)
    if known is None:
        return None
    for name in ("SMTP_SMARTHOST", "SMTP_FROM", "SMTP_TO"):
        variables.require(name, because=known)
    if variables.has_any("SMTP_USERNAME", "SMTP_PASSWORD"):
        variables.require("SMTP_USERNAME", because="SMTP_PASSWORD")
        variables.require("SMTP_PASSWORD", because="SMTP_USERNAME")
    server = variables.take_server("SMTP_SMARTHOST")
    sender = variables.take_addresses("SMTP_FROM")
    to = variables.take_addresses("SMTP_TO")
    if not (server and sender and to):  # pragma: no cover - required above
        raise ConfigurationError("SMTP_SMARTHOST, SMTP_FROM and SMTP_TO go together: set all three")
    return Email(
        server,
        sender,
        to,
        variables.get("SMTP_USERNAME"),
        variables.get("SMTP_PASSWORD"),
        variables.take_switch("SMTP_REQUIRE_TLS", default=True),
    )


def read_webhook(variables: Variables) -> Webhook | None:
    """Read a webhook; None where nothing of it is set."""
    if variables.has_any("WEBHOOK_TOKEN"):
        variables.require("WEBHOOK_URL", because="WEBHOOK_TOKEN")
    url = variables.take_url("WEBHOOK_URL")
    return Webhook(url, variables.get("WEBHOOK_TOKEN")) if url else None
