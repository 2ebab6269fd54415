"""Alertmanager's configuration: the shipped routes, with the receivers that were set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

import yaml

from trainvitals.errors import ConfigurationError
from trainvitals.notify.channels import (
    ASSUMED,
    Version,
    describe_channels,
    describe_deadman,
    find_missing_version,
)
from trainvitals.notify.receivers import Channel, PagerDuty, Receivers

# The shipped receivers, and which channels each of them gets.
PAGE, CHAT, DEADMAN = "page", "chat", "deadman"


class _Route(TypedDict, total=False):
    receiver: str
    matchers: list[str]
    routes: list[_Route]


class _Receiver(TypedDict):
    name: str


class _Configuration(TypedDict):
    route: _Route
    receivers: list[_Receiver]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def render(receivers: Receivers, *, base: Path, version: Version | None = None) -> str:
    """Write the configuration.

    Args:
        receivers: Who is told.
        base: The shipped alertmanager.yml, whose receivers are empty.
        version: Of the Alertmanager that reads it; None for the oldest that is still about.

    Raises:
        ConfigurationError: The shipped file cannot be read or lacks a route or a receiver.
    """
    version = version or ASSUMED
    try:
        config = cast("_Configuration", yaml.safe_load(base.read_text(encoding="utf-8")))
        named = {receiver["name"]: receiver for receiver in config["receivers"]}
        routes = {route["receiver"]: route for route in config["route"]["routes"]}
        _fill(named[PAGE], choose_channels(receivers.channels, version, PAGE), version)
        _fill(named[CHAT], choose_channels(receivers.channels, version, CHAT), version)
        if receivers.deadman_url:
            named[DEADMAN].update(describe_deadman(receivers.deadman_url))  # type: ignore[typeddict-item]
        for team, channels in receivers.teams.items():
            for name in (PAGE, CHAT):
                chosen = choose_channels(channels, version, name)
                if chosen:
                    receiver: _Receiver = {"name": f"{name}-{team}"}
                    _fill(receiver, chosen, version)
                    config["receivers"].append(receiver)
                    _route_team(routes[name], team)
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{base} cannot be used: {error!r}; restore it") from error
    return yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def choose_channels(
    channels: Sequence[Channel], version: Version, receiver: str
) -> tuple[Channel, ...]:
    """Give the channels of `page` or `chat` that a version can send to."""
    return tuple(
        channel
        for channel in channels
        if find_missing_version(channel, version) is None
        and (receiver == PAGE or not isinstance(channel, PagerDuty))
    )


def find_left_out(receivers: Receivers, version: Version | None) -> tuple[str, ...]:
    """Say in one line each which channels a version cannot send to."""
    version = version or ASSUMED
    everyone = [*receivers.channels, *(each for team in receivers.teams.values() for each in team)]
    needs = {channel.title: find_missing_version(channel, version) for channel in everyone}
    return tuple(
        f"{title} is left out: this is Alertmanager {_show(version)}, and {_show(needed)} is the "
        "first that can send there"
        for title, needed in needs.items()
        if needed is not None
    )


def _show(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _fill(receiver: _Receiver, channels: Sequence[Channel], version: Version) -> None:
    receiver.update(describe_channels(channels, version))  # type: ignore[typeddict-item]


def _route_team(parent: _Route, team: str) -> None:
    # A variable's name has neither case nor dashes; the label may have both.
    name = team.replace("_", "[-_ .]")
    inherited = [route for route in parent.get("routes", []) if "receiver" not in route]
    route: _Route = {
        "receiver": f"{parent['receiver']}-{team}",
        "matchers": [f'team=~"(?i){name}"'],
        "routes": inherited,
    }
    parent["routes"] = [route, *parent.get("routes", [])]
