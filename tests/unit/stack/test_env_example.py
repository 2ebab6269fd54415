"""`.env.example` and the programs that read `.env`: the same names, defaults and forms."""

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

# What `up` finds out by itself and hands to the programs that it starts.
HANDED_ON = {
    *("ALERTMANAGER_CONFIG_DIR", "TARGETS_DIR", "SECRETS_DIR", "DASHBOARDS_PATH"),
    *("ALERTMANAGER_URL", "PROMETHEUS_URL", "DOCKER_SOCKET", "DOCKER_GID"),
    *("BUILDKIT_PROGRESS", "DEBIAN_FRONTEND", "NEEDRESTART_MODE", "LC_ALL"),
    *("PROMETHEUS_CONFIG_DIR", "PROMETHEUS_RETENTION_FLAGS"),
}
# What is read of the environment alone.
INHERITED = {"XDG_STATE_HOME", "XDG_CACHE_HOME", "SUPERVISOR_PROCESS_NAME", "TRAINVITALS_STACK"}
# Whose values in the file are examples; every other value is the default.
REQUIRED = {"PAGERDUTY_ROUTING_KEY": "k" * 32, "TELEGRAM_BOT_TOKEN": "123456:abc"}


def list_read():
    """Name the variables of which the stack, the alerting and Compose files read."""
    found = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE))
    for path in (ROOT / "exporter/trainvitals").rglob("*.py"):
        if path.relative_to(ROOT / "exporter/trainvitals").parts[0] in {"stack", "alerting"}:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            found |= {text for text in texts if isinstance(text, str) and NAME.fullmatch(text)}
    return {name for name in found if not name.startswith("GF_")} - HANDED_ON - INHERITED


def test_the_example_sets_nothing():
    """Every line of .env.example is empty or a comment, so that a copy changes nothing."""
    assert [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")] == []
    assert len(VALUES) == len(ASSIGNMENT.findall(EXAMPLE))


def test_the_example_has_what_is_read_and_nothing_else():
    """A variable of a team is one of the others behind TEAM_ and the name of the team."""
    teams = {name for name in VALUES if name.startswith("TEAM_")}
    assert {name.removeprefix("TEAM_VISION_") for name in teams} == {"SLACK_WEBHOOK_URL"}
    assert set(VALUES) - teams == list_read()


@pytest.mark.parametrize("name", sorted(VALUES.keys() & DEFAULTS.keys()))
def test_a_value_that_compose_has_a_default_for_is_the_default(name):
    """So that uncommenting a line changes nothing; a name, an address or an image is another one."""
    is_other = name.endswith(("_ALLOWED_HOST", "_IMAGE", "_URL"))
    assert (VALUES[name] == DEFAULTS[name]) != is_other


def test_every_value_is_accepted(tmp_path):
    """With all lines uncommented the stack starts on its defaults, and every channel is complete."""
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
