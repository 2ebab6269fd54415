"""The text of the messages that a real Alertmanager sends to each channel."""

import json
import re
import urllib.parse
from html.parser import HTMLParser

import pytest

from tests.support.alertmanager_process import AlertmanagerProcess
from tests.support.mailserver import MailServer
from tests.support.webhooks import WebhookReceiver
from trainvitals.alerting.configfile import write_configuration

STARTS, ENDS = "2024-05-03T14:03:00Z", "2024-05-03T15:15:20Z"
HOSTILE = "<b>x</b>&amp;*_~`|[a](http://b)#1\"'"
GRAFANA, RUNBOOKS = "https://g.example.org", "https://w.example.org/r"
# Alertmanager needs this response from Telegram; for the other channels any response will do.
ANSWER = json.dumps({"ok": True, "result": {"message_id": 1, "chat": {"id": 5}}}).encode()


def alert(instance, number=0, *, name="GPUHighTemperature", summary="GPU is too hot", **more):
    """Return an alert as Prometheus posts it."""
    labels = {
        "alertname": name,
        "severity": "critical",
        "component": "accelerator",
        "instance": instance,
        "device": str(number),
        **more.get("labels", {}),
    }
    return {
        "labels": labels,
        "annotations": {
            "summary": summary,
            "description": f"GPU {number} on {instance} is 1 °C from slowing down. Check the fans.",
            "runbook_url": f"http://localhost:9200/runbooks/{name}",
            "dashboard_url": "http://localhost:3000/d/trainvitals-accelerators?var-instance="
            + urllib.parse.quote_plus(instance),
            **more.get("annotations", {}),
        },
        "startsAt": STARTS,
        "endsAt": more.get("ends", "2100-01-01T00:00:00Z"),
    }


def hostile(number=0, instance="hostile", length=1):
    """Return an alert whose texts contain the special characters of every channel."""
    name = HOSTILE * length
    return alert(
        instance,
        number,
        labels={"run": name},
        annotations={
            "description": f"Run {name} on {instance} stands still.",
            "dashboard_url": "http://localhost:3000/d/trainvitals-run?var-instance=a+b&var-run="
            + urllib.parse.quote_plus(name),
        },
    )


class Sent:
    """The received messages, by channel and scene.

    Alertmanager sends a group of alerts that began long ago as soon as the first of them arrives,
    so the first message of a scene may lack alerts that arrive a moment later. The next message has
    all of them. Therefore a test names the number of alerts for which it waits.
    """

    def __init__(self, receiver, mailbox):
        self.receiver, self.mailbox = receiver, mailbox

    def find(self, channel, words, *, over=False):
        """Wait for a scene's message in a channel, and return the message as JSON."""
        word = "Resolved: " if over else "Critical: "
        message = self.receiver.wait_for(
            lambda each: (
                each.path.startswith(f"/{channel}")
                and word in json.dumps(each.json)
                and words in json.dumps(each.json)
            ),
        )
        return message.json


def gone(**times):
    """Return an alert whose labels and texts all have special characters, and which can end."""
    names = dict.fromkeys(("run", "name", "mountpoint"), HOSTILE)
    return alert("gone", summary=HOSTILE, labels=names, annotations={"resolved": HOSTILE}, **times)


@pytest.fixture(scope="module")
def sent(alertmanager, version, quick_routes, tmp_path_factory):
    """Send all scenes to all channels, and yield the received messages."""
    directory = tmp_path_factory.mktemp("messages")
    with WebhookReceiver(answer=ANSWER) as receiver, MailServer() as mailbox:
        config = write_configuration(
            {
                "SLACK_WEBHOOK_URL": receiver.url("/slack"),
                "SLACK_CHANNEL": "#training",
                "DISCORD_WEBHOOK_URL": receiver.url("/discord"),
                "TEAMS_WEBHOOK_URL": receiver.url("/teams"),
                "PAGERDUTY_ROUTING_KEY": "k" * 32,
                "PAGERDUTY_URL": receiver.url("/pagerduty"),
                "TELEGRAM_BOT_TOKEN": "123:abc",
                "TELEGRAM_CHAT_ID": "-1001",
                "TELEGRAM_API_URL": receiver.url("/telegram"),
                "SMTP_SMARTHOST": mailbox.address,
                "SMTP_FROM": "trainvitals@example.org",
                "SMTP_TO": "ada@example.org, bob@example.org",
                "SMTP_REQUIRE_TLS": "false",
                "WEBHOOK_URL": receiver.url("/webhook"),
                "WEBHOOK_TOKEN": "t0ken",
                "GRAFANA_URL": GRAFANA,
                "RUNBOOK_URL": RUNBOOKS,
            },
            directory / "config",
            shipped=quick_routes,
            version=version,
        ).path
        with AlertmanagerProcess(alertmanager, config, directory) as process:
            over = {"resolved": "The card is below its limit again."}
            scenes = [
                alert("one"),
                hostile(),
                alert("yaml", annotations={"description": "x: '{{ .ExternalURL }}'\n..."}),
                *(alert("many", number) for number in range(6)),
                *(
                    alert("many", number, name="HostDiskFull", summary="A disk is full")
                    for number in range(6)
                ),
                *(hostile(number, "huge", 12) for number in range(11)),
                *(hostile(number, "two", 12) for number in range(2)),
                *(alert("mixed", number, annotations=over) for number in range(2)),
                alert("over", annotations=over),
                gone(),
            ]
            process.ask("POST", "/api/v2/alerts", json.dumps(scenes))
            found = Sent(receiver, mailbox)
            for words in ("(2 alerts) on mixed", "on over", "on gone"):
                found.find("slack", words)
            ended = [
                alert("mixed", 1, annotations=over, ends=ENDS),
                alert("over", annotations=over, ends=ENDS),
                gone(ends=ENDS),
            ]
            process.ask("POST", "/api/v2/alerts", json.dumps(ended))
            for words in ("on over", "on gone"):
                found.find("telegram", words, over=True)
            found.find("slack", "Resolved after")
            yield found


LINKS_OF_ONE = (
    "https://w.example.org/r/GPUHighTemperature",
    "https://g.example.org/d/trainvitals-accelerators?var-instance=one",
)


def test_slack(sent):
    """A Slack message is a red attachment with the title, description, start time and two links."""
    message = sent.find("slack", "on one")
    (attachment,) = message["attachments"]
    runbook, dashboard = LINKS_OF_ONE
    assert message["channel"] == "#training"
    assert attachment["title"] == "Critical: GPU is too hot on one"
    assert attachment["title_link"] == dashboard
    assert attachment["color"] == "danger"
    assert attachment["text"] == (
        "GPU 0 on one is 1 °C from slowing down. Check the fans.\n"
        f"Since 3 May 14:03 UTC · <{runbook}|runbook> · <{dashboard}|dashboard>"
    )


def test_discord(sent):
    """A Discord message is an embed with the title, description, start time and Markdown links."""
    (embed,) = sent.find("discord", "on one")["embeds"]
    runbook, dashboard = LINKS_OF_ONE
    assert embed["title"] == "Critical: GPU is too hot on one"
    assert embed["description"] == (
        "GPU 0 on one is 1 °C from slowing down. Check the fans.\n"
        f"Since 3 May 14:03 UTC · [runbook]({runbook}) · [dashboard]({dashboard})"
    )


def test_telegram(sent):
    """A Telegram message is HTML with the title, description, start time and two links."""
    message = sent.find("telegram", "on one")
    runbook, dashboard = LINKS_OF_ONE
    assert (message["chat_id"], message["parse_mode"]) == ("-1001", "HTML")
    assert message["text"] == (
        "<b>Critical: GPU is too hot on one</b>\n"
        "GPU 0 on one is 1 °C from slowing down. Check the fans.\n"
        f'Since 3 May 14:03 UTC · <a href="{runbook}">runbook</a>'
        f' · <a href="{dashboard}">dashboard</a>'
    )


def test_pagerduty(sent):
    """A PagerDuty event has fields for severity, component and machine, and a text as details."""
    event = sent.find("pagerduty", "on one")
    runbook, dashboard = LINKS_OF_ONE
    assert event["event_action"] == "trigger"
    assert re.fullmatch(r"[0-9a-f]{64}", event["dedup_key"])
    details = event["payload"].pop("custom_details")
    assert event["payload"] == {
        "summary": "Critical: GPU is too hot on one",
        "source": "one",
        "severity": "critical",
        "class": "GPUHighTemperature",
        "component": "accelerator",
        "group": "one",
    }
    assert set(details) == {"firing", "resolved", "num_firing", "num_resolved"}
    assert details["firing"].strip() == (
        "GPU 0 on one is 1 °C from slowing down. Check the fans.\n"
        f"Since 3 May 14:03 UTC\nRunbook: {runbook}\nDashboard: {dashboard}"
    )
    assert not details["resolved"]
    assert event["links"] == [
        {"href": runbook, "text": "Runbook"},
        {"href": dashboard, "text": "Dashboard"},
    ]


def test_pagerduty_resolves_what_it_triggered(sent):
    """The PagerDuty event that resolves an alert has the key of the event that triggered it."""
    first = sent.find("pagerduty", "on over")
    last = sent.find("pagerduty", "on over", over=True)
    assert (last["event_action"], last["dedup_key"]) == ("resolve", first["dedup_key"])
    assert last["payload"]["custom_details"]["resolved"].strip() == (
        "Resolved after 1h12m20s: GPU is too hot, device 0. The card is below its limit again."
    )


def test_hostile_names_in_pagerduty(sent):
    """In PagerDuty's details, a text that looks like YAML and like a template stays unchanged."""
    details = sent.find("pagerduty", "on yaml")["payload"]["custom_details"]
    assert details["firing"].strip().splitlines()[0] == "x: '{{ .ExternalURL }}'"


def test_email(sent):
    """A mail to all addresses has the title as subject, and the text both plain and as HTML."""
    mail = sent.mailbox.wait_for("on one")
    runbook, dashboard = LINKS_OF_ONE
    assert (mail["Subject"], mail["To"]) == (
        "Critical: GPU is too hot on one",
        "ada@example.org, bob@example.org",
    )
    plain = mail.get_body(("plain",)).get_content().replace("\r\n", "\n")
    assert plain.strip() == (
        "GPU 0 on one is 1 °C from slowing down. Check the fans.\n"
        f"Since 3 May 14:03 UTC\nRunbook: {runbook}\nDashboard: {dashboard}"
    )
    html = mail.get_body(("html",)).get_content()
    assert "<h2" in html
    assert ">Critical: GPU is too hot on one</h2>" in html
    assert "<p>GPU 0 on one is 1 °C from slowing down. Check the fans.<br>" in html
    assert f'<a href="{dashboard}">dashboard</a>' in html


def test_webhook(sent):
    """A webhook receives Alertmanager's own JSON, with the token in the Authorization header."""
    message = sent.receiver.wait_for(
        lambda each: each.path == "/webhook" and '"instance":"one"' in each.body.decode(),
    )
    assert message.headers["authorization"] == "Bearer t0ken"
    assert message.json["version"] == "4"
    assert message.names == ["GPUHighTemperature"]


def test_teams(sent, version):
    """A Teams message is a card with title and text, if this Alertmanager supports Teams."""
    if version < (0, 28):
        assert not [each for each in sent.receiver.messages if each.path == "/teams"]
        return
    runbook, dashboard = LINKS_OF_ONE
    (attachment,) = sent.find("teams", "on one")["attachments"]
    title, text = (block["text"] for block in attachment["content"]["body"])
    assert title == "Critical: GPU is too hot on one"
    assert text == (
        "GPU 0 on one is 1 °C from slowing down. Check the fans.\n\n"
        f"Since 3 May 14:03 UTC · [runbook]({runbook}) · [dashboard]({dashboard})"
    )


def test_the_end_in_one_line(sent):
    """The text of a resolved alert is one line with its duration and `resolved` annotation."""
    text = "Resolved after 1h12m20s: GPU is too hot, device 0. The card is below its limit again."
    (attachment,) = sent.find("slack", "on over", over=True)["attachments"]
    assert attachment["title"] == "Resolved: GPU is too hot on over"
    assert (attachment["color"], attachment["text"]) == ("good", text)
    (embed,) = sent.find("discord", "on over", over=True)["embeds"]
    assert embed["description"] == text
    telegram = sent.find("telegram", "on over", over=True)["text"]
    assert telegram == f"<b>Resolved: GPU is too hot on over</b>\n{text}"
    mail = sent.mailbox.wait_for("Resolved: GPU is too hot on over")
    assert mail.get_body(("plain",)).get_content().strip() == text
    assert f"<p>{text}</p>" in mail.get_body(("html",)).get_content()


def test_one_goes_on_and_one_is_over(sent):
    """A message with firing and resolved alerts ends with one line for each resolved alert."""
    message = sent.receiver.wait_for(
        lambda each: (
            each.path == "/slack"
            and "on mixed" in each.body.decode()
            and "Resolved after" in each.body.decode()
        ),
    ).json
    (attachment,) = message["attachments"]
    assert attachment["title"] == "Critical: GPU is too hot on mixed"
    lines = attachment["text"].splitlines()
    assert lines[0] == "GPU 0 on mixed is 1 °C from slowing down. Check the fans."
    assert lines[2:] == [
        "",
        "Resolved after 1h12m20s: GPU is too hot, device 1. The card is below its limit again.",
    ]


def test_many_alerts(sent):
    """A message about twelve alerts of two names lists ten alerts and the number of the others."""
    (attachment,) = sent.find("slack", "12 alerts on many")["attachments"]
    assert attachment["title"] == "Critical: 12 alerts on many"
    texts = attachment["text"].split("\n\n")
    assert len(texts) == 11
    assert sorted({text.splitlines()[0] for text in texts[:10]}) == [
        "*A disk is full*",
        "*GPU is too hot*",
    ]
    assert texts[10] == "… and 2 more"
    discord = sent.find("discord", "12 alerts on many")["embeds"][0]["description"].splitlines()
    assert len(discord) == 12
    assert discord[0].startswith("**")
    assert discord[10] == "… and 2 more"
    assert discord[11].startswith("Since 3 May 14:03 UTC · [runbook](")
    telegram = sent.find("telegram", "12 alerts on many")["text"].splitlines()
    assert telegram[0] == "<b>Critical: 12 alerts on many</b>"
    assert telegram[11] == "… and 2 more"


def test_hostile_names_in_slack(sent):
    """Slack's three special characters are escaped in the title, text and link of a message."""
    (attachment,) = sent.find("slack", "on hostile")["attachments"]
    escaped = "&lt;b&gt;x&lt;/b&gt;&amp;amp;*_~`|[a](http://b)#1\"'"
    assert attachment["title"] == f"Critical: GPU is too hot on hostile, run {escaped}"
    assert attachment["text"].splitlines()[0] == f"Run {escaped} on hostile stands still."
    assert (
        "<https://g.example.org/d/trainvitals-run?var-instance=a%20b&amp;var-run=%3Cb%3Ex%3C%2Fb%3E"
        "%26amp%3B%2A_~%60%7C%5Ba%5D%28http%3A%2F%2Fb%29%231%22%27|dashboard>" in attachment["text"]
    )


def test_hostile_names_in_discord(sent):
    """In a Discord message, each Markdown character of a name is escaped by a backslash."""
    (embed,) = sent.find("discord", "on hostile")["embeds"]
    assert embed["description"].splitlines()[0] == (
        r"Run \<b\>x\</b\>&amp;\*\_\~\`\|\[a\](http://b)\#1" + "\"' on hostile stands still."
    )


def test_an_end_is_escaped_like_a_beginning(sent, version):
    """Names in a message about a resolved alert are escaped as in one about a firing alert."""
    (attachment,) = sent.find("slack", "on gone", over=True)["attachments"]
    assert attachment["text"].count("&lt;b&gt;x&lt;/b&gt;&amp;amp;") == 4
    assert not re.search(r"<|>|&(?!(amp|lt|gt);)", attachment["text"])
    (embed,) = sent.find("discord", "on gone", over=True)["embeds"]
    texts = [embed["title"].partition(" on gone")[2], embed["description"]]
    if version >= (0, 28):
        (card,) = sent.find("teams", "on gone", over=True)["attachments"]
        title, text = (block["text"] for block in card["content"]["body"])
        texts += [title.partition(" on gone")[2], text]
    for text in texts:
        assert r"\<b\>x\</b\>&amp;\*\_" in text
        assert not re.search(r"(^|[^\\])(\\\\)*[*_~`|<>\[\]#]", text)


def test_hostile_names_in_telegram(sent):
    """In a Telegram message, a name that looks like HTML is escaped."""
    lines = sent.find("telegram", "on hostile")["text"].splitlines()
    escaped = "&lt;b&gt;x&lt;/b&gt;&amp;amp;*_~`|[a](http://b)#1&#34;&#39;"
    assert lines[1] == f"Run {escaped} on hostile stands still."
    assert lines[0].startswith("<b>Critical: GPU is too hot on hostile, run &lt;b&gt;x")


def test_hostile_names_in_mail(sent):
    """A name that looks like HTML is escaped in a mail's body, and unchanged in its subject."""
    mail = sent.mailbox.wait_for("on hostile")
    assert mail["Subject"] == f"Critical: GPU is too hot on hostile, run {HOSTILE}"
    html = mail.get_body(("html",)).get_content()
    assert "Run &lt;b&gt;x&lt;/b&gt;&amp;amp;*_~`|[a](http://b)#1&#34;&#39; on hostile" in html


class Tags(HTMLParser):
    """A parser that records which tags are open, and which occurred."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        """Record an opened tag, and check that links have only the attribute `href`."""
        assert [name for name, _ in attrs] == (["href"] if tag == "a" else [])
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        """Check that the closed tag is the one that was opened last."""
        assert self.open.pop() == tag


@pytest.mark.parametrize("scene", ["(11 alerts) on huge", "(2 alerts) on two"])
def test_the_longest_messages_fit(sent, scene):
    """Messages with long names of special characters fit the limits of Telegram and Discord."""
    text = sent.find("telegram", scene)["text"]
    assert 500 < len(text) <= 4096
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.seen == {"a", "b"}
    (embed,) = sent.find("discord", scene)["embeds"]
    assert 200 < len(embed["title"]) + len(embed["description"]) <= 2000
    assert not re.search(r"(^|[^\\])(\\\\)*[*_`|]", embed["description"].split("\nSince")[0])
