"""The number of published deaths with a right verdict, which must not fall."""

import pytest

from tests.support.world_deaths import judge_logs_alone, judge_world
from trainvitals.verdicts.causes.judge import REASONS


@pytest.mark.parametrize(
    ("judge_folder", "least_right"),
    [(judge_world, 431), pytest.param(judge_logs_alone, 364, marks=pytest.mark.untraced)],
)
def test_no_fewer_deaths_of_the_world_are_judged_right(judge_folder, least_right):
    """With all evidence and with the log alone, enough verdicts on published deaths are right.

    Runs without a failure get no cause, no wrong verdict has high confidence, and every verdict is
    a reason in the table. One test asks all of this, because judging all deaths takes seconds.
    """
    found = judge_folder("seen")
    assert sum(each.is_right for each in found if not each.is_innocent) >= least_right
    assert [each for each in found if each.is_wrong and each.confidence == "high"] == []
    assert [each for each in found if each.is_wrong and each.is_innocent] == []
    assert {each.reason for each in found} <= {*REASONS, ""}
