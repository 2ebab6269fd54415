"""The list of faults, beside the rules."""

from pathlib import Path

import pytest
import yaml

from trainvitals.errors import ConfigurationError
from trainvitals.stack.drills import FAULTS, find_fault
from trainvitals.stack.drills.faults import UNDRILLED

RULES = Path(__file__).parents[4] / "prometheus/rules"


def list_alerts():
    """Return every alert that there is a rule for."""
    groups = [
        group
        for path in RULES.glob("*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    ]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def test_every_alert_has_its_drill_or_a_reason_why_not():
    """Each alert stands exactly once in one of the two lists, and nothing else does."""
    listed = [*(fault.alert for fault in FAULTS), *UNDRILLED]
    assert sorted(listed) == sorted(list_alerts())


def test_a_fault_changes_something():
    """Before and during a fault the machine is not the same."""
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
    """A slip of the pen gets the name that was meant, and an alert without a drill the reason."""
    with pytest.raises(ConfigurationError) as caught:
        find_fault(name)
    assert str(caught.value).endswith(hint)
