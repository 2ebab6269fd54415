"""How many deaths of the world are judged right, and that it does not become fewer."""

import pytest

from tests.support.world_deaths import judge_logs_alone, judge_world
from trainvitals.verdicts.causes.judge import REASONS

# Of each folder: at least right, and right by the log alone; at most innocents that are accused, and
# verdicts that are wrong with high confidence.
FLOORS = {"seen": (431, 364, 0, 0)}


@pytest.mark.untraced
@pytest.mark.parametrize("folder", FLOORS)
def test_no_fewer_deaths_of_the_world_are_judged_right(folder):
    """The names of those that are not are left out, since those held out must not be looked at."""
    right, right_alone, _, _ = FLOORS[folder]
    assert sum(each.is_right for each in judge_world(folder) if not each.is_innocent) >= right
    alone = [each for each in judge_logs_alone(folder) if not each.is_innocent]
    assert sum(each.is_right for each in alone) >= right_alone


@pytest.mark.parametrize("judge_folder", [judge_world, judge_logs_alone])
@pytest.mark.parametrize("folder", FLOORS)
def test_innocents_are_not_accused_and_what_is_wrong_is_not_sure(folder, judge_folder):
    """Less evidence means less confidence, never another story."""
    _, _, accused, wrong = FLOORS[folder]
    found = judge_folder(folder)
    assert sum(each.is_wrong and each.confidence == "high" for each in found) <= wrong
    assert sum(each.is_wrong for each in found if each.is_innocent) <= accused


def test_every_verdict_is_a_known_reason():
    """The trial compares words that the product has."""
    assert {each.reason for each in judge_world("seen")} <= {*REASONS, ""}
