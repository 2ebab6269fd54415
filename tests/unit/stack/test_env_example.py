"""Tests that `.env.example` contains the variables that programs read, with their defaults."""

import ast
import re
from pathlib import Path

import pytest

from trainvitals.alerting.configuration import read_links
from trainvitals.alerting.receivers import read_receivers
from trainvitals.stack.settings import Settings, read_dotenv, read_settings

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
ASSIGNMENT = re.compile(r"^#([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
VALUES = dict(ASSIGNMENT.findall(EXAMPLE))
COMPOSE = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docker-compose*.yml"))
DEFAULTS = dict(re.findall(r"\$\{([A-Z_]+):-([^}]+)\}", COMPOSE))
NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")

# Variables that `up` determines and passes to the programs that it starts.
HANDED_ON = {
    *("ALERTMANAGER_CONFIG_DIR", "TARGETS_DIR", "SECRETS_DIR", "DASHBOARDS_PATH"),
    *("ALERTMANAGER_URL", "PROMETHEUS_URL", "DOCKER_SOCKET", "DOCKER_GID"),
    *("BUILDKIT_PROGRESS", "DEBIAN_FRONTEND", "NEEDRESTART_MODE", "LC_ALL"),
    *("PROMETHEUS_CONFIG_DIR", "PROMETHEUS_RETENTION_FLAGS"),
}
# Variables that are read only from the environment.
INHERITED = {"XDG_STATE_HOME", "XDG_CACHE_HOME", "SUPERVISOR_PROCESS_NAME", "TRAINVITALS_STACK"}
# Variables that must be set to enable their channel, so their values are only examples.
REQUIRED = {"PAGERDUTY_ROUTING_KEY": "k" * 32, "TELEGRAM_BOT_TOKEN": "123456:abc"}


def list_read():
    """Return the variables that the stack, the alerting and the Compose files read."""
    found = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE))
    for path in (ROOT / "exporter/trainvitals").rglob("*.py"):
        if path.relative_to(ROOT / "exporter/trainvitals").parts[0] in {"stack", "alerting"}:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            found |= {text for text in texts if isinstance(text, str) and NAME.fullmatch(text)}
    return {name for name in found if not name.startswith("GF_")} - HANDED_ON - INHERITED


def test_the_example_sets_nothing():
    """Every line of `.env.example` is empty or a comment, so that a copy changes nothing."""
    assert [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")] == []
    assert len(VALUES) == len(ASSIGNMENT.findall(EXAMPLE))


def test_the_example_has_what_is_read_and_nothing_else():
    """The example has all variables that are read, and variables of teams only as `TEAM_NAME_…`."""
    teams = {name for name in VALUES if name.startswith("TEAM_")}
    assert {name.removeprefix("TEAM_VISION_") for name in teams} == {"SLACK_WEBHOOK_URL"}
    assert set(VALUES) - teams == list_read()


@pytest.mark.parametrize("name", sorted(VALUES.keys() & DEFAULTS.keys()))
def test_a_value_that_compose_has_a_default_for_is_the_default(name):
    """The example has Compose's default, except for host names, addresses and images."""
    is_other = name.endswith(("_ALLOWED_HOST", "_IMAGE", "_URL"))
    assert (VALUES[name] == DEFAULTS[name]) != is_other


def test_every_value_is_accepted(tmp_path):
    """With all lines uncommented, the settings are the defaults and every channel is complete."""
    file = tmp_path / ".env"
    file.write_text(ASSIGNMENT.sub(r"\1=\2", EXAMPLE), encoding="utf-8")
    settings = read_settings({"HOME": "/home/ada"}, file)
    default = Settings(state_dir=settings.state_dir, variables=settings.variables)
    assert settings == default
    receivers = read_receivers({**read_dotenv(file), **REQUIRED})
    assert receivers.takes_info
    assert receivers.deadman_url
    assert list(receivers.teams) == ["vision"]
    assert receivers.remarks == ()
    assert len(receivers.channels) == 7
    assert read_links(settings.variables).runbook_url == VALUES["RUNBOOK_URL"]
