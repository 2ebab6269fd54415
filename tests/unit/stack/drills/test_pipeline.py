"""Tests for the preparation of a drill."""

from pathlib import Path

import pytest
import yaml

from trainvitals.errors import StackError, TrainvitalsError
from trainvitals.stack.drills import FAULTS, find_fault, fit_speed
from trainvitals.stack.drills.drill import find_rule
from trainvitals.stack.drills.pipeline import LEAST_SCRAPE_SECONDS, Plan, make_plan
from trainvitals.stack.drills.speed import read_duration
from trainvitals.stack.settings import Settings

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("has_amtool", [True, False])
@pytest.mark.parametrize(
    "text", ["", "route: [1]\nreceivers: 3\n", "route: {receiver: a\n {", "- a\n", "a: '\n"]
)
def test_routes_that_cannot_be_are_one_line(
    tmp_path, prometheus, alertmanager, amtool, text, has_amtool
):
    """The error for an invalid Alertmanager configuration is one line that names the file."""
    mine = tmp_path / "mine.yml"
    mine.write_text(text, encoding="utf-8")
    programs = {"prometheus": prometheus, "prometheus-alertmanager": alertmanager}
    if has_amtool:
        programs["amtool"] = amtool

    def find(name):
        if name not in programs:
            raise StackError(f"no {name} here")
        return programs[name]

    settings = Settings(tmp_path / "state", variables={"ALERTMANAGER_CONFIG": str(mine)})
    with pytest.raises(TrainvitalsError) as caught:
        make_plan(settings, tmp_path / "drill", speed=60, find=find)
    assert str(mine) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def plan_with(tmp_path, prometheus, alertmanager):
    """Return a function that plans a drill of a stack with the given text as its rules."""

    def plan(text):
        rules = tmp_path / "state/config/prometheus/rules"
        rules.mkdir(parents=True)
        (rules / "mine.yml").write_text(text, encoding="utf-8")
        programs = {"prometheus": prometheus, "prometheus-alertmanager": alertmanager}

        def find(name):
            if name not in programs:
                raise StackError(f"no {name} here")
            return programs[name]

        return make_plan(Settings(tmp_path / "state"), tmp_path / "drill", speed=60, find=find)

    return plan


def plan_shipped(speed):
    """Return the plan of a drill of the shipped rules, without programs."""
    files = (ROOT / "prometheus/rules").glob("*.yml")
    rules = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    return Plan(speed, rules, {}, Path("prometheus"), (), Path("directory"))


@pytest.mark.parametrize("alert", [fault.alert for fault in FAULTS if fault.is_silent])
@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_silence_is_judged_by_several_scrapes_at_every_speed(alert, speed):
    """At any speed, a target must miss several scrapes before it counts as silent."""
    plan = fit_speed(find_fault(alert), plan_shipped(speed))
    waits = read_duration(find_rule(alert, plan)["for"]) / plan.speed
    assert waits >= 3 * LEAST_SCRAPE_SECONDS
    assert 1 <= plan.speed <= speed


def test_other_faults_keep_their_speed():
    """A fault other than silence does not change the speed of the plan."""
    plan = plan_shipped(60.0)
    assert fit_speed(find_fault("HPUHighTemperature"), plan) is plan


def test_the_rules_of_the_stack_are_drilled(plan_with):
    """The drill uses the rules of the stack instead of the shipped rules."""
    text = "groups: [{name: g, rules: [{alert: Mine, expr: up == 0}]}]"
    plan = plan_with(text)
    assert list(plan.rules) == ["mine.yml"]
    assert plan.rules["mine.yml"]["groups"][0]["rules"][0]["alert"] == "Mine"


@pytest.mark.parametrize(
    "text",
    ["", "a", "groups: 3", "groups: [3]", "groups: [{rules: [3]}]", "groups: [{rules: [{}]}]"],
)
def test_rules_that_are_none_are_one_line(plan_with, text):
    """The error for an invalid rule file is one line that names the file."""
    with pytest.raises(StackError, match=r"mine\.yml has no groups of rules: correct it$"):
        plan_with(text)
