"""What the documents say about notifications."""

import re

import pytest
import yaml

from trainvitals.notify.receivers import LEADS, TEAM_VARIABLES

from .conftest import ROOT, SHIPPED

PAGE = (ROOT / "docs/alerting.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
OTHERS = ("DEADMAN_URL", "GRAFANA_URL", "RUNBOOK_URL", "ALERTMANAGER_CONFIG")


@pytest.mark.parametrize("name", [*TEAM_VARIABLES, *OTHERS])
def test_every_variable_is_explained(name):
    """Each variable stands in the page and, commented out, in .env.example."""
    assert re.search(rf"`{name}[`=]", PAGE)
    assert re.search(rf"^#{name}=", EXAMPLE, re.MULTILINE)


def test_the_example_sets_nothing():
    """Every line of .env.example is empty or a comment, so that a copy changes nothing."""
    assert [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")] == []


def test_every_variable_of_compose_is_in_the_example():
    """What docker-compose.yml reads for a person to set has its line."""
    text = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docker-compose*.yml"))
    named = set(re.findall(r"\$\{([A-Z_]+_(?:IMAGE|PORT|ADDR|URL|TIME|SIZE))\b", text))
    assert named
    assert {name for name in named if not re.search(rf"^#{name}=", EXAMPLE, re.MULTILINE)} == set()


def test_waiting_times_are_those_of_the_file():
    """What the page says about waiting and repeating stands in the shipped routes."""
    route = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text(encoding="utf-8"))["route"]
    deadman, page, chat = route["routes"]
    assert (page["group_wait"], route["group_wait"]) == ("10s", "30s")
    assert (page["repeat_interval"], route["repeat_interval"]) == ("4h", "12h")
    assert (route["group_interval"], deadman["group_interval"]) == ("5m", "1m")
    assert "repeat_interval" not in chat
    for words in ("waits 10 seconds (critical) or 30", "every 4 hours, warnings every 12"):
        assert words in PAGE


def test_every_alert_that_is_named_exists():
    """A name in a silencing rule is that of an alert in the rules."""
    rules = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "prometheus/rules").glob("*.yml")
    )
    known = set(re.findall(r"- alert: (\w+)", rules)) | {"TestMessage"}
    config = (SHIPPED / "alertmanager.yml").read_text(encoding="utf-8")
    matchers = re.findall(r'alertname=~?"([^"]+)"', config)
    named = {name for matcher in matchers for name in matcher.split("|")}
    assert len(named) > 30
    assert named - known == set()


def test_what_is_offered_is_known():
    """The variables that a person is told to set are among those of receivers."""
    assert set(LEADS) <= set(TEAM_VARIABLES)
