"""Generates Alertmanager's configuration from the shipped routes and the configured receivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

import yaml

from trainvitals.alerting.channels import Block, Channel
from trainvitals.alerting.receivers import ASSUMED_VERSION, Receivers, choose_channels
from trainvitals.alerting.variables import parse_url, read_variable
from trainvitals.errors import ConfigurationError
from trainvitals.sources.external_program import Version

_DEADMAN = "deadman"
# The placeholder URLs in the rules' annotations; the annotations are identical on all machines.
GRAFANA_URL = "http://localhost:3000"
RUNBOOK_URL = "http://localhost:9200/runbooks"
_PLACEHOLDER = "{alert}"
_LINKS_HEAD = """\
{{/* The targets of links in messages; `trainvitals notify` writes this from GRAFANA_URL and
     RUNBOOK_URL. A link that a run's name makes longer than 200 characters is left out. */}}
"""
# The link syntax of each channel; `URL` is replaced by the link's target.
_LINK_FORMS = {
    "slack": " · <URL|{name}>",
    "markdown": " · [{name}](URL)",
    "html": ' · <a href="URL">{name}</a>',
    "plain": '{{{{ "\\n" }}}}{name}: URL',
}


class _Route(TypedDict, total=False):
    receiver: str
    matchers: list[str]
    routes: list[_Route]


class _Configuration(TypedDict):
    route: _Route
    receivers: list[Block]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def render(receivers: Receivers, *, base: Path, version: Version | None = None) -> str:
    """Return Alertmanager's configuration as YAML.

    Args:
        receivers: The default channels and the teams' channels.
        base: The path of the shipped `alertmanager.yml`, in which the receivers have no
            integrations.
        version: The version of the Alertmanager that reads the configuration; None for the oldest
            supported version.

    Raises:
        ConfigurationError: The shipped file cannot be read, or a route or a receiver is missing in
            the file.
    """
    version = version or ASSUMED_VERSION
    try:
        config = cast("_Configuration", yaml.safe_load(base.read_text(encoding="utf-8")))
        named = {receiver["name"]: receiver for receiver in config["receivers"]}
        routes = {route["receiver"]: route for route in config["route"]["routes"]}
        for name in receivers.names:
            named[name].update(_make_blocks(receivers.channels, version, name))
        if receivers.deadman_url:
            block = {"url": receivers.deadman_url, "send_resolved": False, "max_alerts": 1}
            named[_DEADMAN]["webhook_configs"] = [block]
        for team, channels in receivers.teams.items():
            for name in receivers.names:
                blocks = _make_blocks(channels, version, name)
                if blocks:
                    config["receivers"].append({"name": f"{name}-{team}", **blocks})
                    _add_route(routes[name], team)
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"cannot use {base}: {error!r}; restore the shipped file"
        ) from error
    return yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def _make_blocks(channels: Sequence[Channel], version: Version, receiver: str) -> Block:
    """Return the integration sections of a receiver's configuration, such as `slack_configs`."""
    return {
        f"{_choose_integration(channel, version)}_configs": [channel.make_block(version)]
        for channel in choose_channels(channels, version, receiver)
    }


def _choose_integration(channel: Channel, version: Version) -> str:
    return [name for name, since in channel.integrations if since <= version][-1]


def _add_route(parent: _Route, team: str) -> None:
    # A variable name contains only capitals and underscores; a label value may contain other
    # characters.
    name = team.replace("_", "[-_ .]")
    inherited = [route for route in parent.get("routes", []) if "receiver" not in route]
    route: _Route = {
        "receiver": f"{parent['receiver']}-{team}",
        "matchers": [f'team=~"(?i){name}"'],
        "routes": inherited,
    }
    parent["routes"] = [route, *parent.get("routes", [])]


@dataclass(frozen=True, slots=True)
class Links:
    """The base URLs of the links in notifications.

    Attributes:
        grafana_url: The Grafana URL; None if notifications contain no links to dashboards.
        runbook_url: The URL of the directory of the runbooks, or a URL template in which `{alert}`
            stands for the alert's name.
    """

    grafana_url: str | None = GRAFANA_URL
    runbook_url: str = RUNBOOK_URL


def read_links(variables: Mapping[str, str], default: Links | None = None) -> Links:
    """Read the links in notifications from GRAFANA_URL and RUNBOOK_URL.

    Args:
        variables: The variables in the environment and in `.env`.
        default: The links to use if the variables are not set; None for links with the default
            ports.

    Raises:
        ConfigurationError: The value of a variable is not a URL.
    """
    default = default or Links()
    runbook = variables.get("RUNBOOK_URL", "").strip().rstrip("/")
    # The braces of `{alert}` are not valid in a URL.
    read_variable({"RUNBOOK_URL": runbook.replace(_PLACEHOLDER, "alert")}, "RUNBOOK_URL", parse_url)
    grafana = read_variable(variables, "GRAFANA_URL", parse_url)
    return Links(
        grafana_url=grafana.rstrip("/") if grafana else default.grafana_url,
        runbook_url=runbook or default.runbook_url,
    )


def render_links(links: Links) -> str:
    """Return a template file that replaces the URLs in the rules' annotations with other links."""
    runbook = links.runbook_url
    whole = runbook if _PLACEHOLDER in runbook else f"{runbook}/{_PLACEHOLDER}"
    target = "${1}".join(map(_quote, whole.split(_PLACEHOLDER)))
    definitions = {"runbook.url": _replace_base(RUNBOOK_URL + "/", target), "dashboard.url": ""}
    names = ["runbook"]
    if links.grafana_url is not None:
        names.append("dashboard")
        target = _quote(links.grafana_url) + "${1}"
        definitions["dashboard.url"] = _replace_base(GRAFANA_URL, target)
    for channel, form in _LINK_FORMS.items():
        definitions[f"{channel}.links"] = "".join(
            _render_link(name, channel, form) for name in names
        )
    return _LINKS_HEAD + "".join(
        f'\n{{{{ define "trainvitals.{name}" }}}}{text}{{{{ end }}}}\n'
        for name, text in definitions.items()
    )


def _quote(text: str) -> str:
    return text.replace("$", "$$")


def _replace_base(base: str, replacement: str) -> str:
    # A plus sign in a query means a space, and some clients end a link at a plus sign.
    return f'{{{{ . | reReplaceAll "^{base}(.*)$" "{replacement}" | reReplaceAll "\\\\+" "%20" }}}}'


def _render_link(name: str, channel: str, form: str) -> str:
    there = '(reReplaceAll "&" "&amp;" .)' if channel == "slack" else "."
    url = f'{{{{ template "trainvitals.{name}.url" {there} }}}}'
    shown = form.format(name=name.title() if channel == "plain" else name).replace("URL", url)
    return (
        f'{{{{ with .Annotations.{name}_url }}}}{{{{ if not (match ".{{200}}" .) }}}}'
        f"{shown}{{{{ end }}}}{{{{ end }}}}"
    )
