"""A channel in the words of Alertmanager's configuration, for one version of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainvitals.courier.destinations import Discord, Email, Slack, Webhook
from trainvitals.notify.receivers import Channel, PagerDuty, Teams, Telegram

Version = tuple[int, int]
# A piece of the configuration: what YAML has for it.
Block = dict[str, object]

# The oldest that is still about (Debian 12), assumed where the version is not known.
ASSUMED: Version = (0, 25)
_TITLE = '{{ template "trainvitals.title" . }}'
_FIRST_DASHBOARD = (
    "{{ with index .Alerts 0 }}{{ with .Annotations.dashboard_url }}"
    '{{ template "trainvitals.dashboard.url" . }}{{ end }}{{ end }}'
)
_FIRST_RUNBOOK = (
    "{{ with index .Alerts 0 }}{{ with .Annotations.runbook_url }}"
    '{{ template "trainvitals.runbook.url" . }}{{ end }}{{ end }}'
)
_SINCE: Mapping[str, Version] = {"Telegram": (0, 24), "Discord": (0, 25), "Teams": (0, 26)}
_TEAMS_WORKFLOWS: Version = (0, 28)
_PAGERDUTY_SOURCE: Version = (0, 26)
_PAGERDUTY_READS_DETAILS: Version = (0, 30)


def find_missing_version(channel: Channel, version: Version) -> Version | None:
    """Give the version that a channel needs; None where this one has it."""
    since = _SINCE.get(channel.title)
    return since if since is not None and version < since else None


def describe_channels(channels: Sequence[Channel], version: Version) -> Block:
    """Give the lists of a receiver, as `slack_configs`; channels that the version lacks are left out."""
    blocks: dict[str, object] = {}
    for channel in channels:
        if find_missing_version(channel, version) is None:
            key, block = _describe(channel, version)
            blocks[key] = [block]
    return blocks


def describe_deadman(url: str) -> Block:
    """Give the lists of the receiver that hears the dead man's switch."""
    return {"webhook_configs": [{"url": url, "send_resolved": False, "max_alerts": 1}]}


def _describe(channel: Channel, version: Version) -> tuple[str, Block]:
    match channel:
        case Slack():
            named = "slack_configs", _describe_slack(channel)
        case Discord():
            named = "discord_configs", _describe_discord(channel)
        case Teams():
            key = "msteamsv2_configs" if version >= _TEAMS_WORKFLOWS else "msteams_configs"
            named = key, _describe_teams(channel)
        case PagerDuty():
            named = "pagerduty_configs", _describe_pagerduty(channel, version)
        case Telegram():
            named = "telegram_configs", _describe_telegram(channel)
        case Email():
            named = "email_configs", _describe_email(channel)
        case Webhook():
            named = "webhook_configs", _describe_webhook(channel)
    return named


def _describe_slack(channel: Slack) -> Block:
    block: Block = {
        "api_url": channel.url,
        "send_resolved": True,
        "color": '{{ template "trainvitals.slack.color" . }}',
        "title": '{{ template "trainvitals.slack.title" . }}',
        "title_link": _FIRST_DASHBOARD,
        "text": '{{ template "trainvitals.slack.text" . }}',
        "fallback": '{{ template "trainvitals.slack.title" . }}',
    }
    if channel.channel:
        block["channel"] = channel.channel
    return block


def _describe_discord(channel: Discord) -> Block:
    return {
        "webhook_url": channel.url,
        "send_resolved": True,
        "title": _TITLE,
        "message": '{{ template "trainvitals.discord.text" . }}',
    }


def _describe_teams(channel: Teams) -> Block:
    return {
        "webhook_url": channel.url,
        "send_resolved": True,
        "title": _TITLE,
        "text": '{{ template "trainvitals.teams.text" . }}',
    }


def _describe_pagerduty(channel: PagerDuty, version: Version) -> Block:
    # Newer versions read a detail as YAML where they can, and what they find there as a template.
    # A tab cannot begin YAML.
    guard = '{{ "\\t" }}' if version >= _PAGERDUTY_READS_DETAILS else ""
    block: Block = {
        "routing_key": channel.routing_key,
        "send_resolved": True,
        "description": _TITLE,
        "severity": '{{ template "trainvitals.pagerduty.severity" . }}',
        "class": '{{ template "trainvitals.pagerduty.class" . }}',
        "component": "{{ .CommonLabels.component }}",
        "group": '{{ template "trainvitals.pagerduty.group" . }}',
        "client_url": _FIRST_DASHBOARD,
        "details": {
            "firing": guard + '{{ template "trainvitals.plain.firing" . }}',
            "resolved": "{{ if .Alerts.Resolved }}"
            + guard
            + '{{ template "trainvitals.plain.resolved" . }}{{ end }}',
        },
        "links": [
            {"href": _FIRST_RUNBOOK, "text": "Runbook"},
            {"href": _FIRST_DASHBOARD, "text": "Dashboard"},
        ],
    }
    # Where there is no source, the client's name is sent for it.
    if version >= _PAGERDUTY_SOURCE:
        block |= {"client": "trainvitals", "source": "{{ .CommonLabels.instance }}"}
    else:
        block["client"] = "{{ or .CommonLabels.instance `trainvitals` }}"
    if channel.url:
        block["url"] = channel.url
    return block


def _describe_telegram(channel: Telegram) -> Block:
    block: Block = {
        "bot_token": channel.bot_token,
        "chat_id": channel.chat_id,
        "send_resolved": True,
        "parse_mode": "HTML",
        "message": '{{ template "trainvitals.telegram.text" . }}',
    }
    if channel.api_url:
        block["api_url"] = channel.api_url
    return block


def _describe_email(channel: Email) -> Block:
    block: Block = {
        "smarthost": channel.smarthost,
        "from": channel.sender,
        "to": channel.to,
        "send_resolved": True,
        "require_tls": channel.requires_tls,
        "headers": {"Subject": _TITLE},
        "text": '{{ template "trainvitals.plain.text" . }}',
        "html": '{{ template "trainvitals.email.html" . }}',
    }
    if channel.username and channel.password:
        block |= {"auth_username": channel.username, "auth_password": channel.password}
    return block


def _describe_webhook(channel: Webhook) -> Block:
    block: Block = {"url": channel.url, "send_resolved": True}
    if channel.token:
        block["http_config"] = {"authorization": {"credentials": channel.token}}
    return block
