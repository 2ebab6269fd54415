"""How fast a run trains, and when it will be done."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from tests.unit.sources.runs.rows import NOON, at, write_record
from trainvitals.runfile import ABSENT, Phase, Record, State
from trainvitals.sources.runs.rates import Progress, Rates, measure_progress, measure_rates

# 40 steps of 0.25 s in the window of 10 s, with 32 samples of 512 tokens each.
WINDOW = {
    "steps": 1040.0,
    "samples": 33_280.0,
    "tokens": 17_039_360.0,
    "train_seconds": 260.0,
    "step_seconds": 0.25,
    "window_steps": 1000.0,
    "window_samples": 32_000.0,
    "window_tokens": 16_384_000.0,
    "window_train_seconds": 250.0,
}


def train(phase: Phase = Phase.FORWARD, **words: float) -> Record:
    """Write the record of a run that does four steps of 32 samples a second."""
    return write_record(phase, **{**WINDOW, **words})


def test_samples_and_tokens_of_the_window_are_counted_per_second():
    """1280 samples and 655360 tokens in 10 s."""
    rates = measure_rates(train(), at(0.1))
    assert rates.samples_per_second == pytest.approx(128)
    assert rates.tokens_per_second == pytest.approx(65_536)
    assert (rates.flops_per_second, rates.flops_utilization_ratio) == (None, None)


def test_a_run_that_hangs_slows_down():
    """Ten seconds after a step of 0.25 s was due, the window is twice as long."""
    assert measure_rates(train(), at(10.25)).samples_per_second == pytest.approx(64)
    assert measure_rates(train(), at(1270.25)).samples_per_second == pytest.approx(1)


def test_a_step_that_is_not_late_changes_nothing():
    """The rate is the same throughout a step of ordinary length."""
    assert measure_rates(train(), at(0.01)) == measure_rates(train(), at(0.24))


def test_a_record_that_is_published_now_and_then_is_not_late_while_marks_come():
    """On a disk records come every half second, but every mark of a phase is seen."""
    record = train(live=(5.0, Phase.BACKWARD))
    assert measure_rates(record, at(5.1)).samples_per_second == pytest.approx(128)


@pytest.mark.parametrize("phase", [Phase.VALIDATION, Phase.CHECKPOINT, Phase.IDLE, Phase.INIT])
def test_outside_of_training_there_is_no_rate(phase: Phase):
    """Nobody trains in a validation, so nothing is claimed."""
    assert measure_rates(train(phase), at(0.1)) == Rates()


def test_before_the_first_step_of_a_window_there_is_no_rate():
    """Neither a run that has just begun nor one that tells no window has one."""
    assert measure_rates(train(window_steps=1040, window_train_seconds=260), at(1)) == Rates()
    assert measure_rates(train(window_steps=ABSENT), at(1)) == Rates()
    assert measure_rates(write_record(), at(1)) == Rates()


def test_a_run_that_is_over_has_no_rate():
    """It said so itself."""
    assert measure_rates(train(state=float(State.FINISHED)), at(0.1)) == Rates()


def test_the_first_step_of_a_session_took_time_too():
    """5 steps of which 4 were timed, 1 s together, are 1.25 s."""
    words = {"steps": 5, "samples": 160, "train_seconds": 1, "step_bucket_4": 4}
    words |= {f"step_bucket_{index}": 0 for index in range(11) if index != 4}
    words |= {"window_steps": 0, "window_samples": 0, "window_train_seconds": 0}
    assert measure_rates(train(**words), at(0.1)).samples_per_second == pytest.approx(128)


def test_a_run_without_tokens_has_samples_alone():
    """What is not counted is not known."""
    rates = measure_rates(train(tokens=ABSENT, window_tokens=ABSENT), at(0.1))
    assert rates.samples_per_second == pytest.approx(128)
    assert rates.tokens_per_second is None


def test_flops_come_from_tokens_or_samples():
    """6 GFLOP per token are 393 TFLOP/s, of a peak of 989 TFLOP/s."""
    rates = measure_rates(train(flops_per_token=6e9, peak_flops=989e12), at(0.1))
    assert rates.flops_per_second == pytest.approx(393.216e12)
    assert rates.flops_utilization_ratio == pytest.approx(0.3976, abs=1e-4)
    rates = measure_rates(train(flops_per_sample=1e12), at(0.1))
    assert rates.flops_per_second == pytest.approx(128e12)
    assert rates.flops_utilization_ratio is None


def test_progress_is_a_share_of_all_steps_and_of_the_epochs():
    """2080 of 8000 steps, 80 of 1000 in this epoch."""
    record = train(global_step=2080, total_steps=8000, epoch_step=80, epoch_steps=1000)
    progress = measure_progress(record, is_alive=True)
    assert progress.ratio == pytest.approx(0.26)
    assert progress.epoch_ratio == pytest.approx(0.08)


def test_epochs_and_their_steps_are_as_good_as_a_total():
    """8 epochs of 1000 steps are 8000."""
    record = train(global_step=2080, total_epochs=8, epoch_steps=1000)
    assert measure_progress(record, is_alive=True).ratio == pytest.approx(0.26)


def test_a_young_run_ends_at_the_pace_of_its_window():
    """The first steps took long, and it goes on at 0.25 s: 4000 steps are 1000 s."""
    record = train(
        written=100,
        global_step=4000,
        total_steps=8000,
        train_seconds=860,
        window_train_seconds=850,
    )
    assert measure_progress(record, is_alive=True).end_timestamp_seconds == pytest.approx(
        NOON + 100 + 1000
    )


def test_an_old_run_ends_at_the_pace_of_its_session():
    """7200 s for 10000 steps, whatever the last ones took: 5000 more are 3600 s."""
    record = train(
        global_step=15_000,
        total_steps=20_000,
        steps=10_000,
        train_seconds=7200,
        window_steps=9990,
        window_train_seconds=7100,
    )
    assert measure_progress(record, is_alive=True).end_timestamp_seconds == NOON + 3600


def test_validation_and_checkpoints_take_their_share_until_the_end():
    """1040 steps had 104 s of validation and 52 s of checkpoints, 0.15 s for each step."""
    record = train(global_step=1000, total_steps=2000, total_validation=104, total_checkpoint=52)
    assert measure_progress(record, is_alive=True).end_timestamp_seconds == pytest.approx(
        NOON + 1000 * (0.25 + 0.15)
    )


def test_a_resumed_run_is_paced_by_its_own_steps():
    """The steps before the resume count as done, and not as quickly done."""
    record = train(global_step=901_040, first_global_step=900_000, total_steps=902_040)
    end = measure_progress(record, is_alive=True).end_timestamp_seconds
    assert end == pytest.approx(NOON + 250)


def test_the_end_does_not_move_while_a_run_hangs():
    """It is counted from the last record, so a run can be overdue."""
    record = train(global_step=1000, total_steps=2000)
    assert measure_progress(record, is_alive=True).end_timestamp_seconds == NOON + 250


def test_a_run_past_its_last_step_ends_now():
    """More steps than were foreseen are no progress beyond the whole."""
    record = train(global_step=2500, total_steps=2000)
    assert measure_progress(record, is_alive=True) == Progress(1.0, None, NOON)


def test_nobody_knows_the_end_of_a_run_without_a_total_or_one_that_is_over():
    """Neither a total of steps nor epochs with steps are known, or there is nothing to expect."""
    assert measure_progress(train(global_step=9), is_alive=True) == Progress()
    assert measure_progress(train(global_step=9, total_epochs=3), is_alive=True) == Progress()
    finished = train(global_step=9, total_steps=9, state=float(State.FINISHED))
    assert measure_progress(finished, is_alive=True) == Progress(1.0, None, None)
    dead = train(global_step=3, total_steps=6)
    assert measure_progress(dead, is_alive=False) == Progress(0.5, None, None)


def test_nobody_knows_the_end_before_the_first_step():
    """There is no pace."""
    record = write_record(global_step=0, total_steps=100, steps=0, train_seconds=0)
    assert measure_progress(record, is_alive=True) == Progress(0.0, None, None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_numbers_that_make_no_sense_do_no_harm(value: float):
    """A record may hold any number, for anybody may write one."""
    for word in [*WINDOW, "global_step", "total_steps", "epoch_step", "epoch_steps"]:
        record = train(**{"global_step": 5, "total_steps": 10, word: value})
        rates = measure_rates(record, at(1))
        progress = measure_progress(record, is_alive=True)
        known = [each for each in (*astuple(rates), *astuple(progress)) if each is not None]
        assert not any(each < 0 for each in known), (word, rates, progress)
