"""The receiver of each alert, according to `amtool config routes test`."""

import subprocess

import pytest

from tests.unit.alerting.conftest import SHIPPED
from trainvitals.alerting.configfile import write_configuration

HOOK = "http://127.0.0.1:9/"
TEAMS = {
    "WEBHOOK_URL": HOOK,
    "TEAM_VISION_LAB_WEBHOOK_URL": HOOK,
    "TEAM_NLP_PAGERDUTY_ROUTING_KEY": "k" * 32,
}
ROUTES = [
    ({"severity": "critical"}, "page"),
    ({"severity": "warning"}, "chat"),
    ({"severity": "info"}, "info"),
    ({"severity": "none"}, "null"),
    ({}, "null"),
    ({"alertname": "Watchdog", "severity": "none"}, "deadman"),
    ({"alertname": "Watchdog", "severity": "critical"}, "deadman"),
    ({"alertname": "TestMessage", "severity": "critical"}, "page"),
    ({"alertname": "TestMessage", "severity": "warning"}, "chat"),
]
TEAM_ROUTES = [
    *ROUTES,
    ({"severity": "critical", "team": "vision_lab"}, "page-vision_lab"),
    ({"severity": "critical", "team": "Vision-Lab"}, "page-vision_lab"),
    ({"severity": "critical", "team": "vision lab"}, "page-vision_lab"),
    ({"severity": "critical", "team": "vision_labs"}, "page"),
    ({"severity": "warning", "team": "vision.lab"}, "chat-vision_lab"),
    ({"severity": "info", "team": "vision_lab"}, "info"),
    ({"severity": "critical", "team": "nlp"}, "page-nlp"),
    ({"severity": "warning", "team": "nlp"}, "chat"),
    ({"severity": "critical", "team": "audio"}, "page"),
    ({"severity": "warning", "team": "audio"}, "chat"),
    ({"alertname": "Watchdog", "severity": "none", "team": "vision_lab"}, "deadman"),
    (
        {"alertname": "TestMessage", "severity": "critical", "team": "vision_lab"},
        "page-vision_lab",
    ),
]


def route(amtool, config, labels):
    """Return the receiver of an alert with these labels, according to amtool."""
    words = [f"{name}={value}" for name, value in labels.items()]
    asked = (amtool, "config", "routes", "test", f"--config.file={config}", *words)
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return said.splitlines()[-1]


@pytest.mark.parametrize(("labels", "receiver"), ROUTES, ids=str)
def test_shipped_routes(amtool, labels, receiver):
    """The shipped `alertmanager.yml` routes by severity, and Watchdog to the dead man's switch."""
    assert route(amtool, SHIPPED / "alertmanager.yml", labels) == receiver


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Return a rendered configuration with two teams."""
    return write_configuration(TEAMS, tmp_path_factory.mktemp("teams"), shipped=SHIPPED).path


@pytest.mark.parametrize(("labels", "receiver"), TEAM_ROUTES, ids=str)
def test_routes_of_teams(amtool, config, labels, receiver):
    """A team's alert goes to its own receiver for the severity, or else to the common receiver."""
    assert route(amtool, config, labels) == receiver
