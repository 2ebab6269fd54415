"""Tests for the detection of ranks that slow the other ranks down."""

from __future__ import annotations

import pytest

from tests.unit.sources.runs.rows import NOON, write_record
from trainvitals.runfile import Identity, Record
from trainvitals.sources.runs.stragglers import Slowness, StragglerDetector

# Seconds per step; as ranks wait for the slowest rank in the backward pass, a step takes 1 s.
EVEN = {"data_wait": 0.1, "forward": 0.2, "optimizer": 0.1}
SLOW_LOADER = {"data_wait": 0.3, "forward": 0.2, "optimizer": 0.1}


class Ranks:
    """Ranks of one run that train in step, and a detector that has read their first records."""

    def __init__(self, *pace: dict[str, float]) -> None:
        self.detector = StragglerDetector()
        self.pace = list(pace)
        self.steps = 0
        self.totals: list[dict[str, float]] = [{} for _ in pace]
        self.verdicts()

    def train(self, steps: int) -> None:
        """Let all ranks execute a number of steps of one second each."""
        self.steps += steps
        for totals, pace in zip(self.totals, self.pace, strict=True):
            for phase, seconds in pace.items():
                totals[phase] = totals.get(phase, 0.0) + steps * seconds

    def records(self) -> dict[str, Record]:
        """Return the current record of each rank."""
        return {
            str(rank): write_record(
                steps=self.steps,
                train_seconds=float(self.steps),
                **{f"total_{phase}": seconds for phase, seconds in totals.items()},
            )
            for rank, totals in enumerate(self.totals)
        }

    def verdicts(self) -> dict[str, Slowness]:
        """Return the result of comparing the current records."""
        return dict(self.detector.compare(self.records()))

    def stragglers(self, windows: int) -> list[list[str]]:
        """Train for a number of windows of 40 steps, and return the stragglers of each window."""
        found = []
        for _ in range(windows):
            self.train(40)
            verdicts = self.verdicts()
            found.append([rank for rank, verdict in verdicts.items() if verdict.is_straggler])
        return found


def test_a_rank_that_waits_for_data_is_named_in_the_third_window():
    """A rank whose data wait is three times that of the fastest rank is a straggler."""
    ranks = Ranks(EVEN, EVEN, SLOW_LOADER, EVEN)
    assert ranks.stragglers(4) == [[], [], ["2"], ["2"]]
    verdicts = ranks.verdicts()
    assert verdicts["2"].ratios == (pytest.approx(3), None, 1.0, 1.0)
    assert verdicts["0"].ratios == (1.0, None, 1.0, 1.0)


def test_it_is_cleared_in_the_third_window_that_is_even_again():
    """A straggler is cleared after three even windows, and one slow window does not name it."""
    ranks = Ranks(EVEN, SLOW_LOADER)
    assert ranks.stragglers(3)[-1] == ["1"]
    ranks.pace[1] = EVEN
    assert ranks.stragglers(4) == [["1"], ["1"], [], []]
    ranks.pace[1] = SLOW_LOADER
    assert ranks.stragglers(1) == [[]]


def test_backward_passes_and_steps_are_not_compared():
    """Backward passes are not compared, as they contain the time of waiting for other ranks."""
    ranks = Ranks(EVEN | {"backward": 0.6}, EVEN | {"backward": 0.2})
    assert ranks.stragglers(4) == [[], [], [], []]
    assert ranks.verdicts()["0"].ratios == (1.0, None, 1.0, 1.0)


def test_a_phase_that_hardly_counts_names_nobody():
    """A ratio of ten does not count if the difference is less than 5% of a step."""
    ranks = Ranks(EVEN | {"h2d": 0.001}, EVEN | {"h2d": 0.010})
    assert ranks.stragglers(4) == [[], [], [], []]
    assert ranks.verdicts()["1"].ratios == (1.0, 1.0, 1.0, 1.0)


def test_a_rank_that_never_waits_does_not_make_the_others_infinitely_slow():
    """A rank without data wait counts as waiting for 5% of a step, so the ratio stays finite."""
    ranks = Ranks(EVEN | {"data_wait": 0.0}, SLOW_LOADER)
    ranks.stragglers(2)
    assert ranks.verdicts()["1"].ratios[0] == pytest.approx(6)


def test_a_window_has_32_steps_of_every_rank():
    """There is no result before every rank has executed 32 steps."""
    ranks = Ranks(EVEN, SLOW_LOADER)
    ranks.train(31)
    assert ranks.verdicts() == {}
    ranks.train(1)
    assert set(ranks.verdicts()) == {"0", "1"}


def test_between_two_windows_the_last_verdict_stands():
    """Within a window, the result of the previous window is returned."""
    ranks = Ranks(EVEN, SLOW_LOADER)
    ranks.stragglers(3)
    before = ranks.verdicts()
    ranks.train(5)
    assert ranks.verdicts() == before


def test_a_rank_alone_is_compared_with_nobody():
    """A single rank has no result, because there is no other rank to compare it with."""
    ranks = Ranks(EVEN)
    ranks.stragglers(4)
    assert ranks.verdicts() == {}


def test_a_run_that_was_started_again_is_judged_from_its_new_beginning():
    """Step counts that start from 0 again begin a new window."""
    ranks = Ranks(EVEN, SLOW_LOADER)
    ranks.stragglers(3)
    again = Ranks(EVEN, SLOW_LOADER)
    again.detector = ranks.detector
    again.train(3)
    assert again.verdicts() == {}
    assert again.stragglers(3)[-1] == ["1"]


def test_a_restart_that_caught_up_between_two_readings_is_seen():
    """A window never spans two processes, even if the new process has executed more steps."""
    detector = StragglerDetector()
    words = {"steps": 5.0, "train_seconds": 5.0, "total_forward": 4.0}
    detector.compare({rank: write_record(**words) for rank in ("0", "1")})
    words = {"steps": 45.0, "train_seconds": 45.0, "total_forward": 9.0}
    again = write_record(identity=Identity("llama", created_time=NOON), **words)
    assert detector.compare({"0": again, "1": write_record(**words)}) == {}


def test_a_rank_that_dies_is_no_longer_compared_with():
    """If a rank dies, its result is removed and a new window begins for the other ranks."""
    ranks = Ranks(EVEN, SLOW_LOADER, EVEN)
    ranks.stragglers(3)
    left = ranks.records()
    del left["1"]
    assert ranks.detector.compare(left) == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0])
def test_numbers_that_make_no_sense_do_no_harm(value: float):
    """Invalid numbers in a record name no straggler."""
    detector = StragglerDetector()
    words = {"total_data_wait": value, "train_seconds": value}
    records = [
        {"0": write_record(steps=steps, **words), "1": write_record(steps=steps)}
        for steps in (0, 40, 80, 120)
    ]
    records.append(dict.fromkeys("01", write_record(steps=value)))
    for each in records:
        for verdict in detector.compare(each).values():
            assert not verdict.is_straggler
            assert set(verdict.ratios) == {None}


def test_totals_that_go_back_are_no_time():
    """If totals decrease, all ratios are still at least 1."""
    ranks = Ranks(EVEN, EVEN, EVEN)
    ranks.train(400)
    ranks.verdicts()
    ranks.totals[:2] = [{"forward": 0.0}, {"forward": 40.0}]
    ranks.train(40)
    for verdict in ranks.verdicts().values():
        assert all(ratio is None or ratio >= 1 for ratio in verdict.ratios)
