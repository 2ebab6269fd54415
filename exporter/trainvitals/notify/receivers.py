"""Who is told: receivers from the variables of `.env`, for everybody and for teams.

    SLACK_WEBHOOK_URL [SLACK_CHANNEL]
    DISCORD_WEBHOOK_URL
    TEAMS_WEBHOOK_URL
    PAGERDUTY_ROUTING_KEY [PAGERDUTY_URL]
    TELEGRAM_BOT_TOKEN TELEGRAM_CHAT_ID [TELEGRAM_API_URL]
    SMTP_SMARTHOST SMTP_FROM SMTP_TO [SMTP_USERNAME SMTP_PASSWORD SMTP_REQUIRE_TLS]
    WEBHOOK_URL [WEBHOOK_TOKEN]
    DEADMAN_URL

`TEAM_VISION_SLACK_WEBHOOK_URL` is the Slack channel of the team whose alerts have the label
`team="vision"`, and so on with each of them but DEADMAN_URL. A team may share the bot and the mail
server of everybody: it then gives its own TELEGRAM_CHAT_ID or SMTP_TO only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainvitals.courier.destinations import (
    Discord,
    Email,
    Slack,
    Webhook,
    read_discord,
    read_email,
    read_slack,
    read_webhook,
)
from trainvitals.courier.variables import Variables

# One of each kind that alone makes a receiver, in the order in which they are offered.
LEADS = (
    "SLACK_WEBHOOK_URL",
    "DISCORD_WEBHOOK_URL",
    "TEAMS_WEBHOOK_URL",
    "PAGERDUTY_ROUTING_KEY",
    "TELEGRAM_BOT_TOKEN",
    "SMTP_SMARTHOST",
    "WEBHOOK_URL",
)
TEAM_VARIABLES = (
    "SLACK_WEBHOOK_URL",
    "SLACK_CHANNEL",
    "DISCORD_WEBHOOK_URL",
    "TEAMS_WEBHOOK_URL",
    "PAGERDUTY_ROUTING_KEY",
    "PAGERDUTY_URL",
    "TELEGRAM_BOT_TOKEN",
    "TELEGRAM_CHAT_ID",
    "TELEGRAM_API_URL",
    "SMTP_SMARTHOST",
    "SMTP_FROM",
    "SMTP_TO",
    "SMTP_USERNAME",
    "SMTP_PASSWORD",
    "SMTP_REQUIRE_TLS",
    "WEBHOOK_URL",
    "WEBHOOK_TOKEN",
)
_SHARED = {
    "TELEGRAM_CHAT_ID": ("TELEGRAM_BOT_TOKEN", "TELEGRAM_API_URL"),
    "SMTP_TO": (
        "SMTP_SMARTHOST",
        "SMTP_FROM",
        "SMTP_USERNAME",
        "SMTP_PASSWORD",
        "SMTP_REQUIRE_TLS",
    ),
}
# The environment has names of its own that begin alike (TEAM_…), so only these endings count.
_TEAM = re.compile(rf"TEAM_([A-Z0-9]+(?:_[A-Z0-9]+)*?)_({'|'.join(TEAM_VARIABLES)})")
_ALMOST_TEAM = re.compile(
    r"TEAM_[A-Za-z0-9_]+_(?:SLACK|DISCORD|TEAMS|PAGERDUTY|TELEGRAM|SMTP|WEBHOOK|DEADMAN)_\w+"
)


@dataclass(frozen=True, slots=True)
class Teams:
    """A channel of Microsoft Teams, by the address of its workflow."""

    title: ClassVar[str] = "Teams"
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """A service of PagerDuty; `url` is None for its usual address."""

    title: ClassVar[str] = "PagerDuty"
    routing_key: str = field(repr=False)
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Telegram:
    """A chat of Telegram; `api_url` is None for the public Bot API."""

    title: ClassVar[str] = "Telegram"
    bot_token: str = field(repr=False)
    chat_id: int
    api_url: str | None = None


Channel = Slack | Discord | Teams | PagerDuty | Telegram | Email | Webhook


@dataclass(frozen=True, slots=True)
class Receivers:
    """Who is told.

    Attributes:
        channels: For alerts of no team, and of teams that have none of their own.
        teams: The channels of teams that have some; the label's value as a variable's name has it,
            in lower case.
        deadman_url: What expects a beat every minute; None for no dead man's switch.
        remarks: What a person should know about variables that say nothing, in one line each.
    """

    channels: tuple[Channel, ...] = ()
    teams: Mapping[str, tuple[Channel, ...]] = field(default_factory=dict)
    deadman_url: str | None = field(default=None, repr=False)
    remarks: tuple[str, ...] = ()


def read_receivers(variables: Mapping[str, str]) -> Receivers:
    """Make the receivers that have all they need.

    Args:
        variables: The environment and `.env`; an empty value counts as not set.

    Raises:
        ConfigurationError: Half a receiver is set, or a value that cannot be. It names the
            variable and shows no value.
    """
    own = Variables(variables)
    found = {match[1] for name in variables if (match := _TEAM.fullmatch(name))}
    teams = {team: _read_team(team, variables) for team in sorted(found)}
    return Receivers(
        channels=tuple(_read_channels(own)),
        teams={team.lower(): channels for team, channels in teams.items() if channels},
        deadman_url=own.take_url("DEADMAN_URL"),
        remarks=tuple(_find_remarks(variables)),
    )


def _read_team(team: str, variables: Mapping[str, str]) -> tuple[Channel, ...]:
    prefix = f"TEAM_{team}_"
    values = dict(variables)
    for own, shared in _SHARED.items():
        if variables.get(prefix + own):
            values.update({prefix + name: variables.get(name, "") for name in shared})
    values.update({name: value for name, value in variables.items() if value})
    return tuple(_read_channels(Variables(values, prefix)))


def _find_remarks(variables: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(variables):
        if _ALMOST_TEAM.fullmatch(name) and not _TEAM.fullmatch(name):
            yield (
                f"{name} says nothing: no variable of a team's receiver ends like this, and the "
                "team's name is in capitals"
            )


def _read_channels(variables: Variables) -> Iterator[Channel]:
    readers = (
        read_slack,
        read_discord,
        _read_teams,
        _read_pagerduty,
        _read_telegram,
        read_email,
        read_webhook,
    )
    for read in readers:
        channel = read(variables)
        if channel is not None:
            yield channel


def _read_teams(variables: Variables) -> Teams | None:
    url = variables.take_url("TEAMS_WEBHOOK_URL")
    return Teams(url) if url else None


def _read_pagerduty(variables: Variables) -> PagerDuty | None:
    if variables.has_any("PAGERDUTY_URL"):
        variables.require("PAGERDUTY_ROUTING_KEY", because="PAGERDUTY_URL")
    key = variables.take_match(
        "PAGERDUTY_ROUTING_KEY",
        r"[A-Za-z0-9_-]{16,64}",
        "is no integration key: give the 32 characters of an Events API v2 integration",
    )
    return PagerDuty(key, variables.take_url("PAGERDUTY_URL")) if key else None


def _read_telegram(variables: Variables) -> Telegram | None:
    if not variables.has_any("TELEGRAM_BOT_TOKEN", "TELEGRAM_CHAT_ID", "TELEGRAM_API_URL"):
        return None
    known = "TELEGRAM_CHAT_ID" if variables.get("TELEGRAM_CHAT_ID") else "TELEGRAM_API_URL"
    variables.require("TELEGRAM_BOT_TOKEN", because=known)
    variables.require("TELEGRAM_CHAT_ID", because="TELEGRAM_BOT_TOKEN")
    token = variables.take_match(
        "TELEGRAM_BOT_TOKEN", r"\d+:[\w-]+", "is no bot token: give the whole one, as 123456:ABC…"
    )
    chat = variables.take_match(
        "TELEGRAM_CHAT_ID", r"-?\d{1,18}", "is no number: give the chat's id, as -1001234567890"
    )
    api_url = variables.take_url("TELEGRAM_API_URL")
    return Telegram(token, int(chat), api_url) if token and chat else None
