"""Reads the default alert receivers and the teams' receivers from the variables in `.env`.

The channels' variables are defined in `channels`. `TEAM_VISION_SLACK_WEBHOOK_URL` sets the Slack
channel for the alerts with the label `team="vision"`; the other variables accept the same prefix. A
team can share the bot or the mail server of the default channels by setting only its own
TELEGRAM_CHAT_ID or SMTP_TO. DEADMAN_URL sets the dead man's switch, which all teams share. With
NOTIFY_INFO=1, the channels for warnings also receive alerts with severity info.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.alerting.channels import (
    CHANNELS,
    Channel,
    advise_variables,
    read_channels,
)
from trainvitals.alerting.variables import list_variables, parse_switch, parse_url, read_variable
from trainvitals.sources.external_program import Version

# The names of the shipped receivers for critical alerts, warnings and information.
PAGE, CHAT, INFO = "page", "chat", "info"
# The oldest supported Alertmanager version (Debian 12), which is assumed if the version is unknown.
ASSUMED_VERSION: Version = (0, 25)
SEVERITIES = {"critical": PAGE, "warning": CHAT, "info": INFO}

_NAMES = tuple(each.name for kind in CHANNELS for each in list_variables(kind))
_FIRST_WORDS = sorted({name.split("_")[0] for name in _NAMES} | {"DEADMAN"})
# The environment may contain unrelated names that begin with TEAM_, so only these suffixes are
# used.
_TEAM = re.compile(rf"TEAM_([A-Z0-9]+(?:_[A-Z0-9]+)*?)_({'|'.join(_NAMES)})")


@dataclass(frozen=True, slots=True)
class Receivers:
    """The receivers of alerts: the default channels and the teams' channels.

    Attributes:
        channels: The channels for alerts without a team and for alerts of teams without channels.
        teams: Each team's channels, by the team's name in lower case.
        takes_info: Whether alerts with severity info are sent.
        deadman_url: The URL that is pinged every minute; None if no dead man's switch is set.
        remarks: Warnings about variables that have no effect, one line each.
    """

    channels: tuple[Channel, ...] = ()
    teams: Mapping[str, tuple[Channel, ...]] = field(default_factory=dict)
    takes_info: bool = False
    deadman_url: str | None = field(default=None, repr=False)
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the shipped receivers that have channels."""
        return (PAGE, CHAT, INFO) if self.takes_info else (PAGE, CHAT)


def read_receivers(variables: Mapping[str, str]) -> Receivers:
    """Return the alert receivers whose variables are set.

    Args:
        variables: The variables in the environment and in `.env`; an empty value counts as not set.

    Raises:
        ConfigurationError: A required variable is missing, or a value is invalid. The error message
            names the variable but does not contain the value.
    """
    names = {match[1] for name in variables if (match := _TEAM.fullmatch(name))}
    teams = {name.lower(): _read_team(name, variables) for name in sorted(names)}
    return Receivers(
        channels=read_channels(variables, CHANNELS),
        teams={name: channels for name, channels in teams.items() if channels},
        takes_info=bool(read_variable(variables, "NOTIFY_INFO", parse_switch)),
        deadman_url=read_variable(variables, "DEADMAN_URL", parse_url),
        remarks=tuple(
            f"{name} has no effect: there is no such variable of a team; see .env.example, and write "
            "the name of the team in capitals"
            for name in sorted(variables)
            if _is_almost_team(name) and not _TEAM.fullmatch(name)
        ),
    )


def _is_almost_team(name: str) -> bool:
    """Return whether a name resembles a team variable, even with a wrong ending or wrong case."""
    rest = name.removeprefix("TEAM_")
    inner = rest[1:-1]  # at least one letter must precede and follow the match
    return rest != name and any(f"_{word}_" in inner for word in _FIRST_WORDS)


def _read_team(team: str, variables: Mapping[str, str]) -> tuple[Channel, ...]:
    prefix = f"TEAM_{team}_"
    values = dict(variables)
    for kind in CHANNELS:
        names = list_variables(kind)
        if any(each.is_address and variables.get(prefix + each.name) for each in names):
            shared = (each.name for each in names if not each.is_address)
            for name in shared:
                values[prefix + name] = variables.get(prefix + name) or variables.get(name, "")
    return read_channels(values, CHANNELS, prefix=prefix)


def choose_channels(
    channels: Sequence[Channel], version: Version, receiver: str
) -> tuple[Channel, ...]:
    """Return the supported channels of a receiver, whose name is `page`, `chat` or `info`."""
    return tuple(
        channel
        for channel in channels
        if channel.integrations[0][1] <= version and (receiver == PAGE or channel.takes_warnings)
    )


def find_unsupported(receivers: Receivers, version: Version | None) -> tuple[str, ...]:
    """Return a warning for each channel that an Alertmanager version does not support."""
    version = version or ASSUMED_VERSION
    channels = [*receivers.channels, *(each for team in receivers.teams.values() for each in team)]
    needs = {channel.title: channel.integrations[0][1] for channel in channels}
    return tuple(
        f"{title} is left out: it needs Alertmanager {_show(needed)} or newer, and this is "
        f"{_show(version)}"
        for title, needed in needs.items()
        if version < needed
    )


def _show(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


@dataclass(frozen=True, slots=True)
class Destination:
    """The channels of a team, or the default channels, for alerts with one severity.

    Attributes:
        severity: The severity of the alerts: `critical`, `warning` or `info`.
        team: The name of the team; None for the default channels.
        channels: The titles of the channels, such as `Slack`; empty if no channel receives the
            alerts.
    """

    severity: str
    team: str | None
    channels: tuple[str, ...]

    def __str__(self) -> str:
        """Return the severity and any team as text: `critical`, or `critical of team vision`."""
        return self.severity if self.team is None else f"{self.severity} of team {self.team}"


@dataclass(frozen=True, slots=True)
class Destinations:
    """The channels to which alerts of each severity and team are sent.

    Attributes:
        by_severity: The destinations for each severity. The default channels come first and are
            followed by each team's channels.
        has_deadman: Whether a dead man's switch is set.
        written_by_hand: The path of the manually edited configuration file that defines the
            channels; None if the channels are defined in `.env`.
    """

    by_severity: tuple[Destination, ...] = ()
    has_deadman: bool = False
    written_by_hand: Path | None = None

    @property
    def is_nowhere(self) -> bool:
        """Whether no channel is configured."""
        return self.written_by_hand is None and not any(
            destination.channels for destination in self.by_severity
        )

    def describe(self) -> tuple[str, ...]:
        """Return one line for each severity and team, such as `critical: Slack, PagerDuty`."""
        if self.written_by_hand is not None:
            return (f"the receivers in {self.written_by_hand}, which was edited by hand",)
        return (*self._describe_severities(), self.describe_deadman())

    def describe_deadman(self) -> str:
        """Return one line that describes the dead man's switch."""
        if self.has_deadman:
            return "dead man's switch: a ping every minute"
        return "dead man's switch: none; set DEADMAN_URL to be notified when alerting itself fails"

    def _describe_severities(self) -> Iterator[str]:
        if self.is_nowhere:
            yield f"no one, as no channel is configured: {advise_variables()} in .env"
            return
        for each in self.by_severity:
            yield f"{each}: {', '.join(each.channels) or 'no one'}"


def find_destinations(receivers: Receivers, version: Version | None) -> Destinations:
    """Return the destinations of alerts, for these receivers and an Alertmanager version."""
    found = []
    for team, channels in ((None, receivers.channels), *receivers.teams.items()):
        for severity, name in SEVERITIES.items():
            if name not in receivers.names:
                continue
            chosen = choose_channels(channels, version or ASSUMED_VERSION, name)
            if chosen or team is None:
                found.append(Destination(severity, team, tuple(each.title for each in chosen)))
    return Destinations(tuple(found), has_deadman=receivers.deadman_url is not None)
