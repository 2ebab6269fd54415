"""The state of a run in one word, as on the dashboards."""

from __future__ import annotations

import pytest

from tests.unit.sources.runs.rows import NOON, write_record
from tests.unit.verdicts.ranks import dead, living, observed
from trainvitals.runfile import Phase, State
from trainvitals.verdicts import runs
from trainvitals.verdicts.run_states import judge_state
from trainvitals.verdicts.thresholds import read_thresholds
from trainvitals.views.machine.runs import TONES

THRESHOLDS = read_thresholds()


def tell_state(ranks, now):
    """Return the state of a run by the shipped thresholds."""
    return judge_state(ranks, now, THRESHOLDS)


def describe_ending(ranks, now):
    """Return the description of a run's end by the shipped thresholds."""
    return runs.describe_ending(ranks, now, THRESHOLDS)


SIGINT, SIGKILL, SIGSEGV, SIGTERM = 2, 9, 11, 15


@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (Phase.INIT, "starting"),
        (Phase.COMPILE, "compiling"),
        (Phase.DATA_WAIT, "training"),
        (Phase.BACKWARD, "training"),
        (Phase.VALIDATION, "evaluating"),
        (Phase.CHECKPOINT, "saving"),
        (Phase.IDLE, "idle"),
    ],
)
def test_a_living_run_is_in_its_phase(phase, word):
    """A running run has the state of its phase, and every phase of a step is `training`."""
    assert tell_state([living(phase=phase)], NOON) == word


def test_of_ranks_in_different_phases_the_least_usual_is_told():
    """If ranks are in different phases, the least usual phase is shown, as on the dashboards."""
    ranks = [living(0), living(1, Phase.CHECKPOINT), living(2, Phase.VALIDATION)]
    assert tell_state(ranks, NOON) == "saving"


def test_one_rank_that_stands_still_stalls_the_run():
    """If one rank stalls, the state of the run is `stalled`."""
    assert tell_state([living(0), living(1, cause="no_progress")], NOON) == "stalled"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (dead("signal", 1, signal=SIGSEGV), "rank 1: killed by SIGSEGV (11)"),
        (dead("exception", 1, code=1, exception="ValueError"), "rank 1: ValueError, exit code 1"),
        (dead("exception", 1, code=3), "rank 1: exit code 3"),
        (dead("oom", 1, signal=SIGKILL), "rank 1: OOM-killed"),
    ],
)
def test_one_rank_that_died_is_the_death_of_the_run(ended, words):
    """If one rank died, the state is `died`, although the other ranks are alive."""
    ranks = [living(0, cause="no_progress"), ended]
    assert tell_state(ranks, NOON + 5) == "died"
    assert describe_ending(ranks, NOON + 5) == words


def test_a_run_that_was_started_again_lives():
    """Dead ranks of an earlier attempt do not affect the state of a restarted run."""
    ranks = [dead("signal", 1, signal=SIGKILL), living(0, start=NOON + 30)]
    assert tell_state(ranks, NOON + 60) == "training"
    assert describe_ending(ranks, NOON + 60) == ""


def test_a_run_that_was_asked_to_end_was_terminated():
    """An end by SIGTERM is `terminated`, but an exception with exit code 143 is `died`."""
    assert tell_state([dead("signal", signal=SIGTERM)], NOON) == "terminated"
    assert tell_state([dead("exception", code=143)], NOON) == "died"


def test_a_launcher_that_ends_the_others_does_not_hide_who_died_first():
    """The rank that raised first is named, not the ranks that the launcher then terminated."""
    ranks = [dead("exception", 3, code=1, exception="CUDAError", time=NOON - 2)]
    ranks += [dead("signal", rank, signal=SIGTERM) for rank in range(3)]
    assert tell_state(ranks, NOON) == "died"
    assert describe_ending(ranks, NOON) == "rank 3: CUDAError, exit code 1"


@pytest.mark.parametrize(
    "ended", [dead("signal", signal=SIGINT), dead("exception", code=130, exception="Interrupt")]
)
def test_ctrl_c_is_no_death(ended):
    """The state of a run that was ended by Ctrl-C is `terminated`, not `died`."""
    assert tell_state([ended], NOON + 60) == "terminated"
    assert describe_ending([ended], NOON + 60) == "ended by Ctrl-C"


def test_how_it_ended_may_take_a_moment_to_be_known():
    """The state of a run with an unknown end is `ended` for 15 s, and `died` after that."""
    ranks = [dead("unknown")]
    assert tell_state(ranks, NOON + 14) == "ended"
    assert tell_state(ranks, NOON + 15) == "died"
    assert describe_ending(ranks, NOON + 15) == "ended for an unknown reason"


def test_a_run_that_finished():
    """The state of a run is `finished` if every rank finished."""
    ranks = [dead("finished", 0, code=0), dead("finished", 1)]
    assert tell_state(ranks, NOON + 60) == "finished"
    assert describe_ending(ranks, NOON + 60) == "finished"


def test_a_monitor_that_switched_itself_off_is_silent():
    """The state of a run whose monitor has switched itself off is `silent`."""
    off = write_record(state=float(State.SWITCHED_OFF))
    assert tell_state([living(record=off)], NOON) == "silent"


def test_a_run_that_only_its_log_tells_of():
    """A run known only by its log has the state `silent` after ten minutes without a line."""
    ranks = [observed(write_record(None))]
    assert tell_state(ranks, NOON + 600) == "training"
    assert tell_state(ranks, NOON + 601) == "silent"
    finished = [observed(write_record(None, state=float(State.FINISHED)))]
    assert tell_state(finished, NOON + 601) == "finished"


def test_every_word_has_a_tone():
    """Every state of a run has a colour tone."""
    words = {tell_state([living(phase=phase)], NOON) for phase in Phase}
    words |= {"stalled", "silent", "finished", "ended", "terminated", "died"}
    assert words == TONES.keys()
