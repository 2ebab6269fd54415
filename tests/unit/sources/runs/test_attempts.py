"""Tests for the counts of restarts and of the work that is lost because of restarts."""

from __future__ import annotations

import pytest

from tests.unit.sources.runs.rows import write_record
from trainvitals.runfile import State
from trainvitals.sources.runs.attempts import Attempt, AttemptHistory, Losses


def attempt(
    number: int, *, rank: str = "0", run: str = "llama", is_alive: bool = False, **words: float
) -> Attempt:
    """Return an attempt whose steps took half a second each."""
    words = {"train_seconds": 0.5 * words.get("steps", 0.0), **words}
    return Attempt(
        key=(run, rank, number),
        run=run,
        rank=rank,
        created_time=float(number),
        record=write_record(**words),
        is_alive=is_alive,
    )


def test_the_steps_after_the_last_checkpoint_are_lost():
    """If a run ends at step 1200 and resumes at the checkpoint of step 1000, 200 steps are lost."""
    ledger = AttemptHistory()
    first = attempt(1, steps=1200, global_step=1200, first_global_step=0)
    second = attempt(2, steps=3, global_step=1003, first_global_step=1000, is_alive=True)
    assert ledger.update([second, first]) == {"llama": Losses(1, 200, 100)}
    assert ledger.update([second, first]) == {"llama": Losses(1, 200, 100)}


def test_the_first_attempt_has_lost_nothing():
    """A run with a single living attempt has no restarts and no losses."""
    ledger = AttemptHistory()
    assert ledger.update([attempt(1, steps=9, is_alive=True)]) == {"llama": Losses()}
    assert ledger.update([]) == {}


def test_losses_are_counted_once_the_new_attempt_has_done_a_step():
    """Losses are counted after the new attempt's first step, as it may load a checkpoint before."""
    ledger = AttemptHistory()
    first = attempt(1, steps=1200, global_step=1200, first_global_step=0)
    young = attempt(2, steps=0, global_step=0, first_global_step=0, is_alive=True)
    assert ledger.update([first, young]) == {"llama": Losses(1, 0, 0)}
    resumed = attempt(2, steps=1, global_step=1001, first_global_step=1000, is_alive=True)
    assert ledger.update([first, resumed]) == {"llama": Losses(1, 200, 100)}


def test_an_attempt_that_is_overtaken_counts_when_it_has_died():
    """If the earlier attempt is still alive, its losses are counted only after it has ended."""
    ledger = AttemptHistory()
    old = attempt(1, steps=1200, global_step=1200, first_global_step=0, is_alive=True)
    new = attempt(2, steps=3, global_step=1003, first_global_step=1000, is_alive=True)
    assert ledger.update([old]) == {"llama": Losses()}
    assert ledger.update([old, new]) == {"llama": Losses()}
    dead = attempt(1, steps=1300, global_step=1300, first_global_step=0)
    assert ledger.update([dead, new]) == {"llama": Losses(1, 300, 150)}
    assert ledger.update([dead, new]) == {"llama": Losses(1, 300, 150)}


def test_an_overtaken_attempt_that_dies_before_the_first_step_of_the_next_loses_as_ever():
    """The losses are the same if the earlier attempt ends before its successor's first step."""
    ledger = AttemptHistory()
    old = attempt(1, steps=1200, global_step=1200, first_global_step=0, is_alive=True)
    young = attempt(2, steps=0, global_step=0, first_global_step=0, is_alive=True)
    assert ledger.update([old, young]) == {"llama": Losses()}
    dead = attempt(1, steps=1300, global_step=1300, first_global_step=0)
    assert ledger.update([dead, young]) == {"llama": Losses(1, 0, 0)}
    new = attempt(2, steps=3, global_step=1003, first_global_step=1000, is_alive=True)
    assert ledger.update([new]) == {"llama": Losses(1, 300, 150)}


def test_an_overtaken_attempt_that_finishes_has_lost_nothing():
    """An attempt that finishes after another attempt has started is not counted as a restart."""
    ledger = AttemptHistory()
    old = attempt(1, steps=1200, global_step=1200, first_global_step=0, is_alive=True)
    new = attempt(2, steps=3, global_step=3, first_global_step=0, is_alive=True)
    ledger.update([old])
    ledger.update([old, new])
    finished = attempt(1, steps=1300, global_step=1300, state=float(State.FINISHED))
    assert ledger.update([finished, new]) == {"llama": Losses()}


def test_an_attempt_that_died_before_its_first_step_changes_nothing_but_the_count():
    """If an attempt ends before its first step, the attempt before it determines the lost steps."""
    ledger = AttemptHistory()
    attempts = [
        attempt(1, steps=1200, global_step=1200, first_global_step=0),
        attempt(2, steps=0, global_step=0, first_global_step=0),
        attempt(3, steps=5, global_step=1105, first_global_step=1100, is_alive=True),
    ]
    assert ledger.update(attempts) == {"llama": Losses(2, 100, 50)}


def test_the_losses_of_several_restarts_add_up():
    """The losses of two restarts, 200 steps and 50 steps, are added."""
    ledger = AttemptHistory()
    attempts = [
        attempt(1, steps=1200, global_step=1200, first_global_step=0),
        attempt(2, steps=550, global_step=1550, first_global_step=1000),
        attempt(3, steps=5, global_step=1505, first_global_step=1500, is_alive=True),
    ]
    assert ledger.update(attempts) == {"llama": Losses(2, 250, 125)}


def test_a_run_that_finished_and_is_started_again_has_lost_nothing():
    """If a run that finished is started again from step 0, no steps are lost."""
    ledger = AttemptHistory()
    finished = attempt(1, steps=1200, global_step=1200, state=float(State.FINISHED))
    again = attempt(2, steps=5, global_step=5, first_global_step=0, is_alive=True)
    assert ledger.update([finished, again]) == {"llama": Losses()}


def test_a_run_that_goes_on_where_it_died_has_lost_nothing():
    """A run that resumes after the last step that it reported has lost no steps."""
    ledger = AttemptHistory()
    first = attempt(1, steps=1200, global_step=1200, first_global_step=0)
    second = attempt(2, steps=5, global_step=1210, first_global_step=1205, is_alive=True)
    assert ledger.update([first, second]) == {"llama": Losses(1, 0, 0)}


def test_what_was_lost_stays_counted_when_old_files_go():
    """The losses are counted even if the ended attempt's run file is deleted before the restart."""
    ledger = AttemptHistory()
    first = attempt(1, steps=1200, global_step=1200, first_global_step=0)
    second = attempt(2, steps=5, global_step=1005, first_global_step=1000, is_alive=True)
    ledger.update([first])
    ledger.update([])
    assert ledger.update([second]) == {"llama": Losses(1, 200, 100)}
    assert ledger.update([first, second]) == {"llama": Losses(1, 200, 100)}
    ledger.update([])
    assert ledger.update([second]) == {"llama": Losses(1, 200, 100)}


def test_an_attempt_that_was_last_seen_alive_has_died_when_its_file_is_gone():
    """A living attempt whose run file is gone counts as ended when its successor starts."""
    ledger = AttemptHistory()
    alive = {"steps": 10.0, "global_step": 10.0, "first_global_step": 0.0}
    ledger.update([attempt(1, is_alive=True, **alive)])
    resumed = attempt(2, steps=1, global_step=5, first_global_step=4, is_alive=True)
    assert ledger.update([resumed]) == {"llama": Losses(1, 6, 3)}


def test_two_at_the_same_time_are_no_restart():
    """A second attempt that starts while the first attempt is alive is not a restart."""
    ledger = AttemptHistory()
    both = [attempt(1, is_alive=True, steps=5), attempt(2, is_alive=True, steps=0)]
    assert ledger.update(both)["llama"].restarts == 0


def test_a_run_has_lost_what_its_worst_rank_lost():
    """A run's losses are those of the rank that lost the most, as all ranks restart together."""
    ledger = AttemptHistory()
    died = {"steps": 100.0, "first_global_step": 0.0}
    resumed = {"steps": 1.0, "global_step": 91.0, "first_global_step": 90.0}
    attempts = [
        attempt(1, rank="0", global_step=100, **died),
        attempt(1, rank="1", global_step=99, **died),
        attempt(2, rank="0", is_alive=True, **resumed),
        attempt(2, rank="1", is_alive=True, **resumed),
        attempt(1, run="other", is_alive=True, steps=1),
    ]
    losses = ledger.update(attempts)
    assert losses == {"llama": Losses(1, 10, 5), "other": Losses()}
    assert ledger.update(attempts[3:4]) == {"llama": Losses(1, 10, 5)}


def test_runs_that_are_long_gone_are_forgotten():
    """At most 512 runs are remembered, and the oldest runs are forgotten first."""
    ledger = AttemptHistory()
    for number in range(1100):
        ledger.update([attempt(number, run=f"run{number}", steps=5)])
    assert len(ledger._chains) == 512
    assert len(ledger._worst) == 512
    assert ("run1099", "0") in ledger._chains


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0, 1e300])
def test_numbers_that_make_no_sense_count_for_nothing(value: float):
    """An invalid step number in a record does not change the number of lost steps."""
    first = attempt(1, steps=1200, global_step=value, first_global_step=0)
    second = attempt(2, steps=5, global_step=1005, first_global_step=1000, is_alive=True)
    assert AttemptHistory().update([first, second]) == {"llama": Losses(1, 0, 0)}
    first = attempt(1, steps=1200, global_step=1200, first_global_step=0)
    second = attempt(2, steps=5, global_step=1005, first_global_step=value, is_alive=True)
    assert AttemptHistory().update([first, second]) == {"llama": Losses(1, 0, 0)}
