"""Tests for the documentation of notifications."""

import re

import pytest
import yaml

from trainvitals.alerting.channels import CHANNELS
from trainvitals.alerting.variables import list_variables
from trainvitals.stack.drills.speed import read_duration

from .conftest import ROOT, SHIPPED

PAGE = (ROOT / "docs/alerting.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
NAMES = [each.name for kind in CHANNELS for each in list_variables(kind)]
OTHERS = ("DEADMAN_URL", "GRAFANA_URL", "RUNBOOK_URL", "ALERTMANAGER_CONFIG")


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_every_variable_is_explained(name):
    """Each variable occurs in docs/alerting.md and, commented out, in .env.example."""
    assert re.search(rf"`{name}[`=]", PAGE)
    assert re.search(rf"^#{name}=", EXAMPLE, re.MULTILINE)


def test_waiting_times_are_those_of_the_file():
    """The waiting and repeat times on the page are those of the shipped routes."""
    route = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text(encoding="utf-8"))["route"]
    deadman, page, chat, info = route["routes"]
    assert (page["group_wait"], route["group_wait"]) == ("10s", "30s")
    assert (page["repeat_interval"], route["repeat_interval"]) == ("4h", "12h")
    assert route["group_interval"] == "5m"
    assert (deadman["group_interval"], deadman["repeat_interval"]) == ("30s", "45s")
    assert "repeat_interval" not in chat | info
    for words in ("waits 10 seconds (critical) or 30", "every 4 hours, warnings every 12"):
        assert words in PAGE


def walk(route, above):
    """Yield a route and all its subroutes, each with its inherited settings."""
    whole = {**above, **route}
    yield whole
    for below in route.get("routes", ()):
        yield from walk(below, {key: whole[key] for key in ("group_interval", "repeat_interval")})


def test_no_route_repeats_sooner_than_it_flushes():
    """No route has a `repeat_interval` below its `group_interval`, of which Alertmanager warns."""
    config = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text(encoding="utf-8"))
    routes = list(walk(config["route"], {}))
    assert len(routes) > len(config["route"]["routes"])
    for route in routes:
        waits = [read_duration(route[key]) for key in ("group_interval", "repeat_interval")]
        assert waits == sorted(waits), route["receiver"]


def test_every_alert_that_is_named_exists():
    """Every alert name in a matcher of alertmanager.yml is the name of an alert rule."""
    rules = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "prometheus/rules").glob("*.yml")
    )
    known = set(re.findall(r"- alert: (\w+)", rules)) | {"TestMessage"}
    config = (SHIPPED / "alertmanager.yml").read_text(encoding="utf-8")
    matchers = re.findall(r'alertname=~?"([^"]+)"', config)
    named = {name for matcher in matchers for name in matcher.split("|")}
    assert len(named) > 30
    assert named - known == set()
