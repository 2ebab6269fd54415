"""Tests for the payloads for each channel, whose texts must not mention any person or group."""

import json
from dataclasses import replace

from trainvitals.alerting.message import (
    Message,
    make_discord_payload,
    make_slack_payload,
    make_webhook_payload,
)

LONG = Message("t" * 900, "x" * 50_000, "info", "k", fields=(("n" * 300, "v" * 2000),) * 40)


def test_slack(message):
    """Slack mark-up is escaped, so that the name of a run cannot notify a whole channel."""
    payload = make_slack_payload(message, "#training")
    assert payload["channel"] == "#training"
    assert payload["text"] == (
        "🟠 *bert: GPU hot Bcc: eve@example.org*\n"
        "GPU 0: 92 °C\n&lt;!channel&gt; &amp; @everyone  ?\n\nrun: bert\nhost: gpu 01"
    )
    assert "channel" not in make_slack_payload(message, None)
    assert len(make_slack_payload(LONG, None)["text"]) == 12_000


def test_discord(message):
    """A Discord payload disables mentions and respects Discord's length limits."""
    payload = make_discord_payload(message)
    assert payload["allowed_mentions"] == {"parse": []}
    (embed,) = make_discord_payload(LONG)["embeds"]
    assert (len(embed["title"]), len(embed["description"])) == (256, 4096)
    sizes = [len(field["name"]) + len(field["value"]) for field in embed["fields"]]
    assert len(embed["title"]) + len(embed["description"]) + sum(sizes) <= 6000
    (over,) = make_discord_payload(replace(message, is_over=True))["embeds"]
    assert over["title"].startswith("🟢 Over: bert")


def test_webhook(message):
    """A webhook payload has the format of Alertmanager, for firing and for resolved messages."""
    payload = make_webhook_payload(message)
    (alert,) = payload["alerts"]
    assert (payload["version"], payload["status"], alert["status"]) == ("4", "firing", "firing")
    assert alert["startsAt"] == "2023-11-14T22:13:20.000+00:00"
    assert alert["endsAt"] == "0001-01-01T00:00:00Z"
    assert alert["labels"] == {
        "alertname": "bert: GPU hot Bcc: eve@example.org",
        "severity": "warning",
        "run": "bert",
        "host": "gpu 01",
    }
    over = make_webhook_payload(replace(message, is_over=True, time=None), clock=lambda: 0.0)
    assert (over["status"], over["alerts"][0]["endsAt"]) == (
        "resolved",
        "1970-01-01T00:00:00.000+00:00",
    )


def test_all_of_them_are_json(message):
    """Every payload can be encoded as JSON, whatever the message contains."""
    for each in (message, LONG):
        for payload in (
            make_slack_payload(each, None),
            make_discord_payload(each),
            make_webhook_payload(each),
        ):
            json.dumps(payload).encode()
