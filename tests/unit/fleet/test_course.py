"""Tests for the demo's simulated values and scripts."""

import pytest

from fleet.course import Total, daylight, ramp, ripple
from fleet.script import Script, Stage

ROUND = (Stage("train", 60), Stage("save", 15), Stage("train", 30), Stage("dead", 45))


def test_a_total_is_the_same_whoever_asks():
    """A total depends only on the time, not on earlier calls, and never decreases."""
    asked_often = Total(lambda now: now % 7, 1000.0)
    often = [asked_often.at(1000 + second) for second in range(300)]
    assert often == sorted(often)
    assert Total(lambda now: now % 7, 1000.0).at(1299) == often[-1]
    assert asked_often.at(1010) == often[10]


def test_a_total_grows_with_its_rate():
    """A total grows by its rate per second, from its value at the start."""
    total = Total(lambda now: 2.0 if now < 130 else 0.0, 100.0, 5.0)
    assert [total.at(now) for now in (40, 100, 107.5, 130, 500)] == [5, 5, 20, 65, 65]


def test_a_script_tells_its_stage():
    """A script returns the stage at a time, and repeats its stages in rounds."""
    script = Script(ROUND, 1000.0)
    scenes = [script.at(now) for now in (1000, 1059, 1060, 1080, 1105, 1150)]
    assert [scene.name for scene in scenes] == ["train", "train", "save", "train", "dead", "train"]
    assert [scene.start for scene in scenes] == [1000, 1000, 1060, 1075, 1105, 1150]
    assert [scene.round for scene in scenes] == [0, 0, 0, 0, 0, 1]


def test_a_script_tells_how_long_it_was_in_a_stage():
    """The time spent in a stage includes all stages of this name in all rounds."""
    script = Script(ROUND, 1000.0)
    spent = [script.spent("train", now) for now in (990, 1000, 1070, 1085, 1150, 1160)]
    assert spent == [0, 0, 60, 70, 90, 100]


def test_a_script_tells_when_a_stage_last_ended():
    """The last end of a stage may be in the previous round."""
    script = Script(ROUND, 1000.0)
    assert [script.last_end("save", now) for now in (1074, 1075, 1149, 1160)] == [
        *(None, 1075, 1075, 1075)
    ]
    assert [script.count_ends("train", now) for now in (1059, 1060, 1105, 1210)] == [0, 1, 2, 3]
    assert script.begin_last("train") == 75


@pytest.mark.parametrize("seed", range(5))
def test_a_ripple_stays_within_its_bounds(seed):
    """A ripple stays between -1 and 1 and has a mean of about 0."""
    values = [ripple(seed, now) for now in range(0, 60_000, 7)]
    assert -1 <= min(values) < -0.5
    assert 0.5 < max(values) <= 1
    assert abs(sum(values) / len(values)) < 0.02


def test_a_day_has_its_night():
    """The daylight function has its minimum at 02:24 UTC and its maximum 12 hours later."""
    assert daylight(2.4 * 3600) == pytest.approx(0)
    assert daylight(14.4 * 3600) == pytest.approx(1)
    assert [ramp(now, 10, 20) for now in (0, 15, 99)] == [0, 0.5, 1]
