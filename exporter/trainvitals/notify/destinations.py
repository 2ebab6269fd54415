"""Where alerts go, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainvitals.notify.channels import ASSUMED, Version
from trainvitals.notify.receivers import LEADS, Receivers
from trainvitals.notify.rendering import CHAT, PAGE, choose_channels

SEVERITIES = {"critical": PAGE, "warning": CHAT}
NOWHERE = f"set one of {', '.join(LEADS)} in .env"
_NOBODY = f"nobody: no receiver is set in .env ({', '.join(LEADS)})"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the alerts of one severity go.

    Attributes:
        severity: `critical` or `warning`.
        team: Whose alerts; None for those of no team, and of teams without channels of their own.
        channels: The names of the channels, as `Slack`; empty for nobody.
    """

    severity: str
    team: str | None
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where alerts go.

    Attributes:
        by_severity: For everybody first, then for each team that has channels of its own.
        has_deadman: Whether somebody expects a beat every minute.
        written_by_hand: The configuration that says it instead; None where ours does.
    """

    by_severity: tuple[Destination, ...] = ()
    has_deadman: bool = False
    written_by_hand: Path | None = None

    @property
    def is_nowhere(self) -> bool:
        """Whether no alert reaches anybody."""
        return self.written_by_hand is None and not any(
            destination.channels for destination in self.by_severity
        )

    def describe(self) -> tuple[str, ...]:
        """Say it in lines, as `critical: Slack, PagerDuty`."""
        if self.written_by_hand is not None:
            return (f"those that {self.written_by_hand} names, which was written by hand",)
        if self.is_nowhere:
            return (_NOBODY, self._describe_deadman())
        return (*self._describe_severities(), self._describe_deadman())

    def _describe_severities(self) -> Iterator[str]:
        for each in self.by_severity:
            whose = each.severity if each.team is None else f"{each.severity} of team {each.team}"
            yield f"{whose}: {', '.join(each.channels) or 'nobody'}"

    def _describe_deadman(self) -> str:
        if self.has_deadman:
            return "dead man's switch: one beat a minute"
        return "dead man's switch: none; with DEADMAN_URL you hear when alerting itself dies"


def find_destinations(receivers: Receivers, version: Version | None) -> Destinations:
    """Tell where alerts go with these receivers in one version of Alertmanager."""
    version = version or ASSUMED
    found = [
        Destination(
            severity,
            None,
            tuple(each.title for each in choose_channels(receivers.channels, version, name)),
        )
        for severity, name in SEVERITIES.items()
    ]
    for team, channels in receivers.teams.items():
        for severity, name in SEVERITIES.items():
            titles = tuple(each.title for each in choose_channels(channels, version, name))
            if titles:
                found.append(Destination(severity, team, titles))
    return Destinations(tuple(found), has_deadman=receivers.deadman_url is not None)
