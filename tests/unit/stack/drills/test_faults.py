"""Tests for the faults that drills simulate."""

from pathlib import Path

import pytest
import yaml

from trainvitals.errors import ConfigurationError
from trainvitals.stack.drills import FAULTS, find_fault
from trainvitals.stack.drills.faults import UNDRILLED

RULES = Path(__file__).parents[4] / "prometheus/rules"


def list_alerts():
    """Return the names of all alerts that have a rule."""
    groups = [
        group
        for path in RULES.glob("*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    ]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def test_every_alert_has_its_drill_or_a_reason_why_not():
    """Each alert has a fault or a reason for having no drill, and no other alert is listed."""
    listed = [*(fault.alert for fault in FAULTS), *UNDRILLED]
    assert sorted(listed) == sorted(list_alerts())


def test_a_fault_changes_something():
    """During a fault, the machine differs from the healthy machine."""
    for fault in FAULTS:
        assert fault.healthy != fault.faulty or fault.is_silent or fault.is_failing, fault.alert


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TrainingRunLos", "did you mean TrainingRunLost?"),
        ("x", "see `trainvitals drill --list`"),
        ("Watchdog", "it always fires"),
    ],
)
def test_what_cannot_be_drilled_is_said(name, hint):
    """The error suggests a similar name, or states why the alert has no drill."""
    with pytest.raises(ConfigurationError) as caught:
        find_fault(name)
    assert str(caught.value).endswith(hint)
