"""Tests for the receivers that are read from variables."""

import pytest

from trainvitals.alerting.channels import (
    Discord,
    Email,
    PagerDuty,
    Slack,
    Teams,
    Telegram,
    Webhook,
)
from trainvitals.alerting.receivers import read_receivers
from trainvitals.errors import ConfigurationError

SECRET = "hush" * 8
TELEGRAM = {"TELEGRAM_BOT_TOKEN": f"123:{SECRET}", "TELEGRAM_CHAT_ID": "-1001"}
MAIL = {
    "SMTP_SMARTHOST": "smtp.example.org:587",
    "SMTP_FROM": "trainvitals@example.org",
    "SMTP_TO": "ada@example.org",
}


def test_nothing_is_set():
    """Without variables, or with only empty values, no channel is configured."""
    receivers = read_receivers({"SLACK_WEBHOOK_URL": "", "DEADMAN_URL": " ", "PATH": "/bin"})
    assert (receivers.channels, receivers.teams, receivers.deadman_url) == ((), {}, None)


@pytest.mark.parametrize(
    ("variables", "channel"),
    [
        (
            {"SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/T/B/x"},
            Slack("https://hooks.slack.com/services/T/B/x"),
        ),
        (
            {"SLACK_WEBHOOK_URL": "https://slack.example.org/x", "SLACK_CHANNEL": "#ml"},
            Slack("https://slack.example.org/x", "#ml"),
        ),
        ({"DISCORD_WEBHOOK_URL": "https://discord.com/x"}, Discord("https://discord.com/x")),
        (
            {"TEAMS_WEBHOOK_URL": "https://a.example.org:443/x?s=1&t=%2F"},
            Teams("https://a.example.org:443/x?s=1&t=%2F"),
        ),
        ({"PAGERDUTY_ROUTING_KEY": SECRET}, PagerDuty(SECRET)),
        (
            {"PAGERDUTY_ROUTING_KEY": SECRET, "PAGERDUTY_URL": "https://eu.example.org/v2"},
            PagerDuty(SECRET, "https://eu.example.org/v2"),
        ),
        (TELEGRAM, Telegram(f"123:{SECRET}", -1001)),
        (
            {**TELEGRAM, "TELEGRAM_API_URL": "http://bots.example.org"},
            Telegram(f"123:{SECRET}", -1001, "http://bots.example.org"),
        ),
        (MAIL, Email("smtp.example.org:587", "trainvitals@example.org", "ada@example.org")),
        (
            {
                **MAIL,
                "SMTP_TO": "ada@example.org,bob@example.org",
                "SMTP_USERNAME": "ada",
                "SMTP_PASSWORD": SECRET,
                "SMTP_REQUIRE_TLS": "False",
            },
            Email(
                "smtp.example.org:587",
                "trainvitals@example.org",
                "ada@example.org, bob@example.org",
                "ada",
                SECRET,
                requires_tls=False,
            ),
        ),
        (
            {**MAIL, "SMTP_SMARTHOST": "[::1]:25"},
            Email("[::1]:25", "trainvitals@example.org", "ada@example.org"),
        ),
        ({"WEBHOOK_URL": "http://[::1]:8080/a"}, Webhook("http://[::1]:8080/a")),
        (
            {"WEBHOOK_URL": "http://a.example.org", "WEBHOOK_TOKEN": SECRET},
            Webhook("http://a.example.org", SECRET),
        ),
    ],
)
def test_a_whole_receiver(variables, channel):
    """A receiver with all its required variables yields one channel."""
    assert read_receivers(variables).channels == (channel,)


@pytest.mark.parametrize(
    ("variables", "set_one", "missing"),
    [
        ({"SLACK_CHANNEL": "#ml"}, "SLACK_CHANNEL", "SLACK_WEBHOOK_URL"),
        ({"PAGERDUTY_URL": "https://e.example"}, "PAGERDUTY_URL", "PAGERDUTY_ROUTING_KEY"),
        ({"TELEGRAM_BOT_TOKEN": f"1:{SECRET}"}, "TELEGRAM_BOT_TOKEN", "TELEGRAM_CHAT_ID"),
        ({"TELEGRAM_CHAT_ID": "1"}, "TELEGRAM_CHAT_ID", "TELEGRAM_BOT_TOKEN"),
        ({"TELEGRAM_API_URL": "https://e.example"}, "TELEGRAM_API_URL", "TELEGRAM_BOT_TOKEN"),
        ({"SMTP_SMARTHOST": "s:25", "SMTP_FROM": "a@b"}, "SMTP_FROM", "SMTP_TO"),
        ({"SMTP_TO": "a@b", "SMTP_FROM": "a@b"}, "SMTP_TO", "SMTP_SMARTHOST"),
        ({"SMTP_TO": "a@b", "SMTP_SMARTHOST": "s:25"}, "SMTP_TO", "SMTP_FROM"),
        ({**MAIL, "SMTP_USERNAME": "ada"}, "SMTP_USERNAME", "SMTP_PASSWORD"),
        ({**MAIL, "SMTP_PASSWORD": SECRET}, "SMTP_PASSWORD", "SMTP_USERNAME"),
        ({"SMTP_PASSWORD": SECRET}, "SMTP_PASSWORD", "SMTP_SMARTHOST"),
        ({"WEBHOOK_TOKEN": SECRET}, "WEBHOOK_TOKEN", "WEBHOOK_URL"),
        (
            {"TEAM_ML_TELEGRAM_BOT_TOKEN": f"1:{SECRET}"},
            "TEAM_ML_TELEGRAM_BOT_TOKEN",
            "TEAM_ML_TELEGRAM_CHAT_ID",
        ),
    ],
)
def test_half_a_receiver(variables, set_one, missing):
    """The error for an incomplete receiver names a set and a missing variable, without values."""
    with pytest.raises(ConfigurationError) as caught:
        read_receivers(variables)
    assert str(caught.value) == (
        f"{set_one} is set but {missing} is not; set both in .env, or neither"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLACK_WEBHOOK_URL", SECRET),
        ("SLACK_WEBHOOK_URL", f"ftp://slack.example.org/{SECRET}"),
        ("SLACK_WEBHOOK_URL", f"https:///{SECRET}"),
        ("DISCORD_WEBHOOK_URL", f"https://discord.com:port/{SECRET}"),
        ("DISCORD_WEBHOOK_URL", f"https://discord.com/{SECRET} and more"),
        ("DISCORD_WEBHOOK_URL", f"https://discord.com/{SECRET}%d"),
        ("TEAMS_WEBHOOK_URL", f"https://a.example.org/{{{{{SECRET}}}}}"),
        ("WEBHOOK_URL", f"https://[::1/{SECRET}"),
        ("DEADMAN_URL", f"hc-ping.example.org/{SECRET}"),
        ("PAGERDUTY_ROUTING_KEY", f"{SECRET} {SECRET}"),
        ("PAGERDUTY_ROUTING_KEY", f"{{{{ {SECRET} }}}}"),
        ("TELEGRAM_BOT_TOKEN", SECRET),
        ("TELEGRAM_CHAT_ID", f"@{SECRET}"),
        ("SMTP_SMARTHOST", SECRET),
        ("SMTP_SMARTHOST", f"{SECRET}:0"),
        ("SMTP_SMARTHOST", f"{SECRET}:70000"),
        ("SMTP_TO", SECRET),
        ("SMTP_FROM", f"{SECRET}@"),
        ("SMTP_REQUIRE_TLS", SECRET),
        ("SLACK_CHANNEL", f"{{{{ {SECRET} }}}}"),
        ("TEAM_VISION_SLACK_WEBHOOK_URL", SECRET),
    ],
)
def test_a_value_that_cannot_be(name, value):
    """The error for an invalid value begins with the variable's name and omits the value."""
    whole = {
        **TELEGRAM,
        **MAIL,
        "SLACK_WEBHOOK_URL": "https://slack.example.org/x",
        name: value,
    }
    with pytest.raises(ConfigurationError) as caught:
        read_receivers(whole)
    message = str(caught.value)
    assert message.startswith(f"{name} is n")
    assert SECRET not in message
    assert "; write " in message


def test_no_secret_is_shown():
    """The `repr` of the receivers contains no secret."""
    url = f"https://example.org/{SECRET}"
    receivers = read_receivers(
        {
            **TELEGRAM,
            **MAIL,
            "SMTP_USERNAME": "ada",
            "SMTP_PASSWORD": SECRET,
            "SLACK_WEBHOOK_URL": url,
            "DISCORD_WEBHOOK_URL": url,
            "TEAMS_WEBHOOK_URL": url,
            "PAGERDUTY_ROUTING_KEY": SECRET,
            "WEBHOOK_URL": url,
            "WEBHOOK_TOKEN": SECRET,
            "DEADMAN_URL": url,
        }
    )
    assert len(receivers.channels) == 7
    assert SECRET not in repr(receivers)


def test_teams_have_channels_of_their_own():
    """A variable with the prefix TEAM_<NAME>_ configures a receiver only for that team."""
    receivers = read_receivers(
        {
            "WEBHOOK_URL": "http://all.example.org",
            "TEAM_VISION_WEBHOOK_URL": "http://vision.example.org",
            "TEAM_NLP_LAB_PAGERDUTY_ROUTING_KEY": SECRET,
            "TEAM_EMPTY_WEBHOOK_URL": "",
        }
    )
    assert receivers.channels == (Webhook("http://all.example.org"),)
    assert receivers.teams == {
        "vision": (Webhook("http://vision.example.org"),),
        "nlp_lab": (PagerDuty(SECRET),),
    }


def test_a_team_shares_bot_and_mail_server():
    """A team that sets only a chat ID and mail addresses uses the common bot and mail server."""
    receivers = read_receivers(
        {
            **TELEGRAM,
            **MAIL,
            "SMTP_USERNAME": "ada",
            "SMTP_PASSWORD": SECRET,
            "TEAM_VISION_TELEGRAM_CHAT_ID": "-7",
            "TEAM_VISION_SMTP_TO": "vision@example.org",
            "TEAM_VISION_SMTP_FROM": "gpu@example.org",
        }
    )
    assert receivers.teams["vision"] == (
        Telegram(f"123:{SECRET}", -7),
        Email("smtp.example.org:587", "gpu@example.org", "vision@example.org", "ada", SECRET),
    )


def test_a_team_without_target_inherits_nothing():
    """The common mail server creates no receiver for a team without a mail address."""
    receivers = read_receivers({**MAIL, "TEAM_VISION_WEBHOOK_URL": "http://v.example.org"})
    assert receivers.teams == {"vision": (Webhook("http://v.example.org"),)}


def test_a_mistyped_team_variable_is_remarked():
    """A variable that resembles a team's receiver but is invalid causes a remark."""
    names = ("TEAM_NLP_DEADMAN_URL", "TEAM_VISION_SLACK_URL", "TEAM_vision_WEBHOOK_URL")
    receivers = read_receivers({**dict.fromkeys(names, SECRET), "TEAM_SIZE": "5"})
    assert receivers.remarks == tuple(
        f"{name} has no effect: there is no such variable of a team; see .env.example, and write "
        "the name of the team in capitals"
        for name in names
    )
