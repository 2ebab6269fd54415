"""Tests for Alertmanager's configuration as rendered for each version."""

import pytest
import yaml

from trainvitals.alerting.alertmanager import check_configuration
from trainvitals.alerting.configuration import Links, read_links, render, render_links
from trainvitals.alerting.receivers import find_destinations, find_unsupported, read_receivers
from trainvitals.errors import ConfigurationError

from .conftest import SHIPPED

KEY = "k" * 32
VARIABLES = {
    "SLACK_WEBHOOK_URL": "https://slack.example.org/s1",
    "SLACK_CHANNEL": "#ml",
    "DISCORD_WEBHOOK_URL": "https://discord.example.org/s2",
    "TEAMS_WEBHOOK_URL": "https://teams.example.org/s3",
    "PAGERDUTY_ROUTING_KEY": KEY,
    "PAGERDUTY_URL": "https://events.eu.example.org/v2",
    "TELEGRAM_BOT_TOKEN": "123:s5",
    "TELEGRAM_CHAT_ID": "-1001",
    "TELEGRAM_API_URL": "https://bots.example.org",
    "SMTP_SMARTHOST": "smtp.example.org:587",
    "SMTP_FROM": "trainvitals@example.org",
    "SMTP_TO": "ada@example.org, bob@example.org",
    "SMTP_USERNAME": "ada",
    "SMTP_PASSWORD": 's6: "#',
    "SMTP_REQUIRE_TLS": "no",
    "WEBHOOK_URL": "https://hooks.example.org/s7",
    "WEBHOOK_TOKEN": "s8",
    "DEADMAN_URL": "https://beats.example.org/s9",
    "TEAM_NLP_LAB_PAGERDUTY_ROUTING_KEY": KEY,
    "TEAM_VISION_WEBHOOK_URL": "https://vision.example.org/",
}


def rendered(variables, version=None):
    """Return the rendered configuration as parsed YAML."""
    text = render(read_receivers(variables), base=SHIPPED / "alertmanager.yml", version=version)
    return yaml.safe_load(text)


def kinds(config, name):
    """Return the keys of a receiver, without its name."""
    (receiver,) = [each for each in config["receivers"] if each["name"] == name]
    return sorted(set(receiver) - {"name"})


def test_nothing_is_set():
    """Without receivers the rendered configuration equals the shipped configuration."""
    shipped = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text(encoding="utf-8"))
    assert rendered({}) == shipped


def test_information_is_sent_on_request():
    """With NOTIFY_INFO, alerts of severity info go to the channels of warnings, also for teams."""
    config = rendered({**VARIABLES, "NOTIFY_INFO": "1"}, version=(0, 28))
    assert kinds(config, "info") == kinds(config, "chat") != []
    assert kinds(config, "info-vision") == ["webhook_configs"]
    silent = rendered({**VARIABLES, "NOTIFY_INFO": "0"}, version=(0, 28))
    assert kinds(silent, "info") == []
    lines = find_destinations(
        read_receivers({**VARIABLES, "NOTIFY_INFO": "yes"}), (0, 28)
    ).describe()
    assert any(line.startswith("info: Slack, ") for line in lines)


def test_shipped_file_sends_nothing():
    """The shipped receivers are empty, and the default route goes to the null receiver."""
    shipped = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text(encoding="utf-8"))
    assert shipped["receivers"] == [
        {"name": "null"},
        {"name": "deadman"},
        {"name": "page"},
        {"name": "chat"},
        {"name": "info"},
    ]
    assert shipped["route"]["receiver"] == "null"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((0, 23), "email pagerduty slack webhook"),
        ((0, 24), "email pagerduty slack telegram webhook"),
        ((0, 25), "discord email pagerduty slack telegram webhook"),
        ((0, 27), "discord email msteams pagerduty slack telegram webhook"),
        ((0, 28), "discord email msteamsv2 pagerduty slack telegram webhook"),
    ],
)
def test_a_version_gets_what_it_knows(version, expected):
    """Each version gets only the receivers that it supports, and chat never gets PagerDuty."""
    config = rendered(VARIABLES, version)
    assert kinds(config, "page") == [f"{name}_configs" for name in expected.split()]
    chat = expected.replace("pagerduty ", "").split()
    assert kinds(config, "chat") == [f"{name}_configs" for name in chat]


def test_unknown_version_is_taken_for_debians():
    """For an unknown version, receivers that version 0.25 does not support are omitted."""
    assert rendered(VARIABLES) == rendered(VARIABLES, (0, 25))


def test_what_is_left_out_is_said():
    """An unsupported channel is reported with the first version that supports the channel."""
    receivers = read_receivers(VARIABLES)
    assert find_unsupported(receivers, (0, 25)) == (
        "Teams is left out: it needs Alertmanager 0.26 or newer, and this is 0.25",
    )
    assert find_unsupported(receivers, (0, 28)) == ()


def test_secrets_stand_where_they_belong():
    """Every secret is rendered unchanged, also a secret with special characters of YAML."""
    config = rendered(VARIABLES, (0, 28))
    (page,) = [each for each in config["receivers"] if each["name"] == "page"]
    (mail,) = page["email_configs"]
    assert page["slack_configs"][0]["api_url"] == "https://slack.example.org/s1"
    assert page["slack_configs"][0]["channel"] == "#ml"
    assert page["discord_configs"][0]["webhook_url"] == "https://discord.example.org/s2"
    assert page["msteamsv2_configs"][0]["webhook_url"] == "https://teams.example.org/s3"
    assert page["pagerduty_configs"][0]["routing_key"] == KEY
    assert page["pagerduty_configs"][0]["url"] == "https://events.eu.example.org/v2"
    assert page["telegram_configs"][0]["bot_token"] == "123:s5"
    assert page["telegram_configs"][0]["chat_id"] == -1001
    assert page["telegram_configs"][0]["api_url"] == "https://bots.example.org"
    assert (mail["auth_username"], mail["auth_password"]) == ("ada", 's6: "#')
    assert (mail["to"], mail["require_tls"]) == ("ada@example.org, bob@example.org", False)
    (hook,) = page["webhook_configs"]
    assert hook["url"] == "https://hooks.example.org/s7"
    assert hook["http_config"] == {"authorization": {"credentials": "s8"}}
    (deadman,) = [each for each in config["receivers"] if each["name"] == "deadman"]
    assert deadman["webhook_configs"] == [
        {"url": "https://beats.example.org/s9", "send_resolved": False, "max_alerts": 1}
    ]


def test_every_other_receiver_sends_the_end():
    """All receivers except the dead man's switch also send resolved alerts."""
    config = rendered(VARIABLES, (0, 28))
    blocks = [
        (receiver["name"], block["send_resolved"])
        for receiver in config["receivers"]
        for key, value in receiver.items()
        if key != "name"
        for block in value
    ]
    assert len(blocks) == 17
    assert {name for name, sends in blocks if not sends} == {"deadman"}


def test_it_is_valid(amtool, version, tmp_path):
    """Amtool accepts the shipped configuration and a rendered configuration with all receivers."""
    (tmp_path / "templates").symlink_to(SHIPPED / "templates")
    path = tmp_path / "alertmanager.yml"
    text = render(read_receivers(VARIABLES), base=SHIPPED / "alertmanager.yml", version=version)
    path.write_text(text, encoding="utf-8")
    check_configuration(path, amtool=amtool)
    check_configuration(SHIPPED / "alertmanager.yml", amtool=amtool)


def test_destinations_in_words():
    """The description lists each severity, each team with channels, and the dead man's switch."""
    destinations = find_destinations(read_receivers(VARIABLES), (0, 28))
    assert destinations.describe() == (
        "critical: Slack, Discord, Teams, PagerDuty, Telegram, e-mail, webhook",
        "warning: Slack, Discord, Teams, Telegram, e-mail, webhook",
        "critical of team nlp_lab: PagerDuty",
        "critical of team vision: webhook",
        "warning of team vision: webhook",
        "dead man's switch: a ping every minute",
    )
    assert not destinations.is_nowhere


def test_nobody_in_words():
    """Without a receiver the description says so and names the variables that can be set."""
    destinations = find_destinations(read_receivers({}), None)
    assert destinations.is_nowhere
    nobody, deadman = destinations.describe()
    assert nobody.startswith("no one, as no channel is configured: set one of SLACK_WEBHOOK_URL, ")
    assert (
        deadman
        == "dead man's switch: none; set DEADMAN_URL to be notified when alerting itself fails"
    )


def test_pagerduty_alone_in_words():
    """PagerDuty gets only critical alerts, and the line for warnings says "no one"."""
    destinations = find_destinations(read_receivers({"PAGERDUTY_ROUTING_KEY": KEY}), None)
    assert destinations.describe()[:2] == ("critical: PagerDuty", "warning: no one")
    assert not destinations.is_nowhere


def test_teams_alone_on_an_old_version_is_nobody():
    """A receiver that the version does not support does not count as a destination."""
    receivers = read_receivers({"TEAMS_WEBHOOK_URL": "https://teams.example.org/x"})
    assert find_destinations(receivers, (0, 25)).is_nowhere
    assert not find_destinations(receivers, (0, 26)).is_nowhere


@pytest.mark.parametrize("text", ["{", "route: {}\n", "route: {routes: []}\nreceivers: []\n"])
def test_a_broken_shipped_file_is_named(tmp_path, text):
    """If the shipped file has no routes or receivers, the error names the file."""
    base = tmp_path / "alertmanager.yml"
    base.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"cannot use .*alertmanager\.yml: .*restore"):
        render(read_receivers({}), base=base)


def test_committed_file_has_the_usual_ports():
    """The committed template of links equals the template that is rendered without variables."""
    assert (SHIPPED / "templates/links.tmpl").read_text(encoding="utf-8") == render_links(Links())


def test_variables_win_over_the_default():
    """GRAFANA_URL and RUNBOOK_URL override the stack's URLs; a trailing slash is removed."""
    default = Links("http://localhost:3001", "http://localhost:9201/runbooks")
    assert read_links({}, default) == default
    assert read_links(
        {"GRAFANA_URL": "https://g.example.org/", "RUNBOOK_URL": "https://w.example.org/r/"},
        Links(None),
    ) == Links("https://g.example.org", "https://w.example.org/r")


def test_runbook_url_may_place_the_name():
    """In RUNBOOK_URL, `{alert}` is replaced by the alert's name, and a dollar sign is literal."""
    links = read_links({"RUNBOOK_URL": "https://w.example.org/$1/{alert}.md"})
    assert '"https://w.example.org/$$1/${1}.md"' in render_links(links)


def test_without_grafana_no_link_leads_there():
    """Without Grafana, messages contain no link to a dashboard."""
    text = render_links(Links(grafana_url=None))
    assert "|dashboard>" not in text
    assert '{{ define "trainvitals.dashboard.url" }}{{ end }}' in text


@pytest.mark.parametrize("name", ["GRAFANA_URL", "RUNBOOK_URL"])
@pytest.mark.parametrize("value", ["grafana", 'https://g.example.org/"', "https://g|x", "a {{b}}"])
def test_no_url(name, value):
    """An invalid URL is rejected with the name of its variable."""
    with pytest.raises(ConfigurationError, match=f"{name} is not a URL"):
        read_links({name: value})
