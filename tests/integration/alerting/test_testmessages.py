"""Test messages through a real Alertmanager."""

import subprocess

import pytest

from tests.support.alertmanager_process import AlertmanagerProcess
from tests.support.webhooks import WebhookReceiver
from tests.unit.alerting.conftest import SHIPPED
from trainvitals.alerting.alertmanager import Alertmanager
from trainvitals.alerting.configfile import write_configuration
from trainvitals.alerting.receivers import Destination, Destinations
from trainvitals.alerting.testmessages import send_test_messages
from trainvitals.errors import StackError
from trainvitals.stack.programs import find_free_ports


@pytest.fixture(scope="module")
def receiver():
    """Yield the receiver of all webhooks."""
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def rendered(receiver, version, tmp_path_factory):
    """Return a configuration with the shipped durations, two channels and a team."""
    return write_configuration(
        {
            "SLACK_WEBHOOK_URL": receiver.url("/slack/secret"),
            "WEBHOOK_URL": receiver.url("/webhook/secret"),
            "DEADMAN_URL": receiver.url("/deadman"),
            "TEAM_VISION_LAB_DISCORD_WEBHOOK_URL": receiver.url("/discord"),
        },
        tmp_path_factory.mktemp("trial") / "config",
        shipped=SHIPPED,
        version=version,
    )


@pytest.fixture(scope="module")
def process(alertmanager, rendered, tmp_path_factory):
    """Yield an Alertmanager that runs with the rendered configuration."""
    with AlertmanagerProcess(
        alertmanager, rendered.path, tmp_path_factory.mktemp("process")
    ) as process:
        yield process


@pytest.fixture(autouse=True)
def _everything_works(receiver):
    receiver.messages.clear()
    receiver.status = 200


def try_out(process, destinations, **arguments):
    """Send test messages, and return the description of each delivery."""
    found = send_test_messages(
        Alertmanager(process.url), destinations, **{"log": process.log, **arguments}
    )
    return [delivery.describe() for delivery in found]


def test_every_channel_is_tried(process, rendered, receiver):
    """Each severity is sent to each of its channels, and the message says that it is a test."""
    assert try_out(process, rendered.destinations) == [
        "critical to Slack: delivered",
        "critical to webhook: delivered",
        "warning to Slack: delivered",
        "warning to webhook: delivered",
        "critical of team vision_lab to Discord: delivered",
        "warning of team vision_lab to Discord: delivered",
    ]
    hooks = [each for each in receiver.messages if each.path.startswith("/webhook")]
    assert [each.alerts[0]["labels"]["severity"] for each in hooks] == ["critical", "warning"]
    slack = next(each for each in receiver.messages if each.path.startswith("/slack"))
    (attachment,) = slack.json["attachments"]
    assert attachment["title"].startswith("Critical: Test message on ")
    assert "Nothing is wrong" in attachment["text"]


def test_a_test_is_over_soon(process, rendered):
    """After the test messages were sent, no test alert is active."""
    try_out(process, rendered.destinations)
    shown = Alertmanager(process.url).find_alerts(alertname="TestMessage")
    assert [each for each in shown if each["status"]["state"] == "active"] == []


def test_a_failure_has_its_reason(process, rendered, receiver):
    """A refused delivery is reported with Alertmanager's reason, which contains no secrets."""
    receiver.status = 404
    said = try_out(process, rendered.destinations)
    assert len(said) == 6
    assert all(": failed: " in line and "unexpected status code 404" in line for line in said)
    assert "secret" not in "".join(said)


def test_an_attempt_that_will_be_repeated_is_a_failure(process, rendered, receiver):
    """A delivery that Alertmanager would retry after status 503 is reported as failed."""
    receiver.status = 503
    said = try_out(process, rendered.destinations)
    assert len(said) == 6
    assert all("unexpected status code 503" in line for line in said)
    assert "secret" not in "".join(said)


def test_without_a_log_a_failure_is_still_reported(process, rendered, receiver):
    """If Alertmanager's log is unknown, a failure is reported with the command to read it."""
    receiver.status = 404
    said = try_out(process, rendered.destinations, log=None)
    assert said[0] == "critical to Slack: failed: see Alertmanager's log: `trainvitals logs`"


def test_a_silence_is_named(process, rendered, amtool):
    """A silenced test message is reported as failed, with the ID of the silence."""
    words = (amtool, f"--alertmanager.url={process.url}", "silence")
    added = subprocess.run(
        (*words, "add", "severity=warning", "--duration=1h", "--comment=x", "--author=x"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    said = try_out(process, rendered.destinations)
    subprocess.run((*words, "expire", added), check=True)
    assert said[0] == "critical to Slack: delivered"
    assert said[2] == (
        f"warning to Slack: failed: silenced by {added}; `amtool silence expire` ends a silence"
    )


def test_a_configuration_by_hand_is_tried_too(alertmanager, tmp_path):
    """With a configuration written by hand, the receiver that its routes choose is tested."""
    config = tmp_path / "mine.yml"
    with WebhookReceiver() as receiver:
        config.write_text(
            "route: {receiver: all, group_wait: 0s}\n"
            "receivers:\n"
            "- name: all\n"
            "  webhook_configs:\n"
            f"  - url: {receiver.url('/one')}\n"
            f"  - url: {receiver.url('/two')}\n",
            encoding="utf-8",
        )
        with AlertmanagerProcess(alertmanager, config, tmp_path) as process:
            said = try_out(process, Destinations(written_by_hand=config))
        assert said == ["critical to webhook: delivered"]
        assert {each.path for each in receiver.messages} == {"/one", "/two"}


def test_a_channel_that_the_running_one_lacks(process):
    """A channel that the running Alertmanager lacks is reported as failed, with the remedy."""
    destinations = Destinations((Destination("warning", None, ("Slack", "Telegram")),))
    *others, telegram = try_out(process, destinations)
    assert others == ["warning to Slack: delivered", "warning to webhook: delivered"]
    assert telegram == (
        "warning to Telegram: failed: the running Alertmanager has no such channel; "
        "`trainvitals up` restarts it"
    )


def test_a_configuration_by_hand_that_sends_nothing(alertmanager, tmp_path):
    """A configuration written by hand without a receiver that sends is reported as a failure."""
    config = tmp_path / "mine.yml"
    config.write_text("route: {receiver: x}\nreceivers: [{name: x}]\n", encoding="utf-8")
    with AlertmanagerProcess(alertmanager, config, tmp_path) as process:
        (said,) = try_out(process, Destinations(written_by_hand=config))
    assert said.startswith("critical to any channel: failed: the running Alertmanager has no such")


def test_without_receivers_nothing_is_sent(process):
    """Without receivers, no test message is sent."""
    assert try_out(process, Destinations()) == []


def test_it_runs_no_more():
    """If no Alertmanager responds, the error has its address, and its version is None."""
    nowhere = Alertmanager(f"http://127.0.0.1:{find_free_ports(1)[0]}")
    assert nowhere.find_version() is None
    with pytest.raises(StackError, match=r"^Alertmanager at http://127.0.0.1:\d+ does not respond"):
        nowhere.reload()


def test_a_reload_that_is_refused(alertmanager, tmp_path):
    """A reload of a broken file fails with a message of one line, and Alertmanager continues."""
    config = tmp_path / "mine.yml"
    config.write_text("route: {receiver: x}\nreceivers: [{name: x}]\n", encoding="utf-8")
    with AlertmanagerProcess(alertmanager, config, tmp_path) as process:
        running = Alertmanager(process.url)
        running.reload()
        config.write_text("route: {receiver: y}\nreceivers: [{name: x}]\n", encoding="utf-8")
        with pytest.raises(StackError, match="undefined receiver") as caught:
            running.reload()
        assert "\n" not in str(caught.value)
        assert running.list_integrations() == {"x": ()}
