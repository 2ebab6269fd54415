"""The number of published deaths with a right verdict, which must not fall."""

import pytest

from tests.support.world_deaths import judge_logs_alone, judge_world
from trainvitals.verdicts.causes.judge import REASONS

# For each folder: the fewest right verdicts, with all evidence and with the log alone, then the most
# runs without a failure that get a cause, and the most wrong verdicts with high confidence.
FLOORS = {"seen": (431, 364, 0, 0)}


@pytest.mark.untraced
@pytest.mark.parametrize("folder", FLOORS)
def test_no_fewer_deaths_of_the_world_are_judged_right(folder):
    """The number of right verdicts on published deaths is at least the recorded number."""
    right, right_alone, _, _ = FLOORS[folder]
    assert sum(each.is_right for each in judge_world(folder) if not each.is_innocent) >= right
    alone = [each for each in judge_logs_alone(folder) if not each.is_innocent]
    assert sum(each.is_right for each in alone) >= right_alone


@pytest.mark.parametrize("judge_folder", [judge_world, judge_logs_alone])
@pytest.mark.parametrize("folder", FLOORS)
def test_innocents_are_not_accused_and_what_is_wrong_is_not_sure(folder, judge_folder):
    """Runs without a failure get no cause, and no wrong verdict has high confidence."""
    _, _, accused, wrong = FLOORS[folder]
    found = judge_folder(folder)
    assert sum(each.is_wrong and each.confidence == "high" for each in found) <= wrong
    assert sum(each.is_wrong for each in found if each.is_innocent) <= accused


def test_every_verdict_is_a_known_reason():
    """Every verdict on a published death is a reason in the table."""
    assert {each.reason for each in judge_world("seen")} <= {*REASONS, ""}
