"""Tests for the rules with promtool."""

import os
import re
import subprocess

import pytest
import yaml

from tests.support.rule_trial import Trial
from tests.support.rulebook import ROOT, RULES, TESTS, read_rulebook
from tests.support.rulelint.wording import COMPONENTS

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
BOOK = read_rulebook()
NAMES = {
    component: [alert.name for alert in BOOK.alerts if alert.group == component]
    for component in COMPONENTS
}
# The test files of the other alerts are only run unchanged by `make test-long`.
AS_THEY_STAND = (
    "HighMemoryUsage",
    "TrainingRunLost",
    "HostOOMKill",
    "ContainerOOMKilled",
    "Watchdog",
)


def run(*command):
    """Run a command and return its exit status and its output."""
    environ = {**os.environ, "GOGC": "200"}  # fewer garbage collections make promtool faster
    done = subprocess.run(
        command, env=environ, capture_output=True, check=False, text=True, timeout=3000
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_are_valid(promtool):
    """`promtool check rules` reports neither errors nor lint findings."""
    files = sorted(RULES.glob("*.yml"))
    status, said = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", *files)
    assert status == 0, said
    assert said.count("SUCCESS") == len(files) == 7


def test_the_configuration_that_loads_them_is_valid(promtool):
    """`promtool check config` accepts the configuration and reads every rule file."""
    status, said = run(promtool, "check", "config", ROOT / "prometheus/prometheus.yml")
    assert status == 0, said
    assert all(f"prometheus/rules/{path.name}" in said for path in RULES.glob("*.yml"))


@pytest.mark.parametrize("component", COMPONENTS)
def test_alerts_fire_stay_quiet_and_resolve(promtool, component, workshop):
    """`promtool test rules` passes all tests of a group's alerts with the rules that they use."""
    trial = Trial(BOOK, promtool=promtool, directory=workshop)
    assert len(NAMES[component]) > 4
    assert trial.run_whole(NAMES[component]) == {}


@pytest.mark.long
@pytest.mark.timeout(3600 if LONG else 120)
@pytest.mark.parametrize("component", COMPONENTS)
def test_the_test_files_pass_as_they_stand(promtool, component):
    """`promtool test rules tests/rules/<Alert>.yml` passes with all rule files."""
    names = [name for name in NAMES[component] if LONG or name in AS_THEY_STAND]
    status, said = run(promtool, "test", "rules", *(TESTS / f"{name}.yml" for name in names))
    assert status == 0, said
    assert said.count("SUCCESS") == len(names)


def test_a_text_has_no_gap_where_something_is_unknown():
    """No expected annotation has a gap, such as a comma after a colon or a space."""
    files = [yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader) for path in TESTS.glob("*.yml")]
    texts = [
        text
        for file in files
        if isinstance(file, dict)
        for test in file["tests"]
        for asked in test.get("alert_rule_test", ())
        for alert in asked["exp_alerts"]
        for text in alert["exp_annotations"].values()
    ]
    assert len(texts) > 500
    assert [text for text in texts if re.search(r"[:(] ?[,;)]| [,;]|<no value>|%!", text)] == []


HEAT = re.compile(r"temperature|thermal|training_alert_active")


@pytest.mark.parametrize("alert", [each for each in BOOK.alerts if HEAT.search(each.expr)])
def test_a_message_about_heat_names_the_temperature_and_the_limit(alert):
    """At least one test of each alert about heat expects the temperature and the limit."""
    file = yaml.load((TESTS / f"{alert.name}.yml").read_bytes(), Loader=yaml.CSafeLoader)
    texts = [
        expected["exp_annotations"]["description"]
        for test in file["tests"]
        for asked in test.get("alert_rule_test", ())
        for expected in asked["exp_alerts"]
    ]
    temperature, limit = (
        re.compile(r"\bat \d+ °C"),
        re.compile(r"\(\d+(?:\.\d)? °C[ )]|itself down at \d+ °C"),
    )
    assert any(temperature.search(text) and limit.search(text) for text in texts)


def test_a_test_that_expects_something_else_fails(promtool, workshop, tmp_path):
    """If an expected alert does not fire, the trial returns promtool's failure message."""
    text = (TESTS / "HPUHighTemperature.yml").read_text(encoding="utf-8")
    broken = text.replace("../../prometheus/rules", str(RULES)).replace("kind: hpu", "kind: cpu")
    assert broken != text
    (tmp_path / "HPUHighTemperature.yml").write_text(broken, encoding="utf-8")
    trial = Trial(BOOK, promtool=promtool, directory=workshop, tests=tmp_path)
    (said,) = trial.run_whole(["HPUHighTemperature"]).values()
    assert said.startswith("FAILED:")
