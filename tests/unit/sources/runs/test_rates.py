"""Tests for a run's training rates, progress and expected end."""

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
    """Return the record of a run that executes four steps of 32 samples per second."""
    return write_record(phase, **{**WINDOW, **words})


def test_samples_and_tokens_of_the_window_are_counted_per_second():
    """A window of 10 s with 1280 samples and 655360 tokens gives their rates per second."""
    rates = measure_rates(train(), at(0.1))
    assert rates.samples_per_second == pytest.approx(128)
    assert rates.tokens_per_second == pytest.approx(65_536)
    assert (rates.flops_per_second, rates.flops_utilization_ratio) == (None, None)


def test_a_run_that_hangs_slows_down():
    """The rates fall as the time since the last due step grows."""
    assert measure_rates(train(), at(10.25)).samples_per_second == pytest.approx(64)
    assert measure_rates(train(), at(1270.25)).samples_per_second == pytest.approx(1)


def test_a_step_that_is_not_late_changes_nothing():
    """Within a step of ordinary length, the rates stay the same."""
    assert measure_rates(train(), at(0.01)) == measure_rates(train(), at(0.24))


def test_a_record_that_is_published_now_and_then_is_not_late_while_marks_come():
    """A phase mark after the last record shows progress, so the rates do not fall."""
    record = train(live=(5.0, Phase.BACKWARD))
    assert measure_rates(record, at(5.1)).samples_per_second == pytest.approx(128)


@pytest.mark.parametrize("phase", [Phase.VALIDATION, Phase.CHECKPOINT, Phase.IDLE, Phase.INIT])
def test_outside_of_training_there_is_no_rate(phase: Phase):
    """In phases other than training, no rates are reported."""
    assert measure_rates(train(phase), at(0.1)) == Rates()


def test_before_the_first_step_of_a_window_there_is_no_rate():
    """A run without a step in its window, or without a window, has no rates."""
    assert measure_rates(train(window_steps=1040, window_train_seconds=260), at(1)) == Rates()
    assert measure_rates(train(window_steps=ABSENT), at(1)) == Rates()
    assert measure_rates(write_record(), at(1)) == Rates()


def test_a_run_that_is_over_has_no_rate():
    """A run that recorded its end has no rates."""
    assert measure_rates(train(state=float(State.FINISHED)), at(0.1)) == Rates()


def test_the_first_step_of_a_session_took_time_too():
    """The first step, which was not timed, counts with the mean time of the other steps."""
    words = {"steps": 5, "samples": 160, "train_seconds": 1, "step_bucket_4": 4}
    words |= {f"step_bucket_{index}": 0 for index in range(11) if index != 4}
    words |= {"window_steps": 0, "window_samples": 0, "window_train_seconds": 0}
    assert measure_rates(train(**words), at(0.1)).samples_per_second == pytest.approx(128)


def test_a_run_without_tokens_has_samples_alone():
    """A run that does not count tokens has only a rate of samples."""
    rates = measure_rates(train(tokens=ABSENT, window_tokens=ABSENT), at(0.1))
    assert rates.samples_per_second == pytest.approx(128)
    assert rates.tokens_per_second is None


def test_flops_come_from_tokens_or_samples():
    """The rate of FLOPs follows from the rate of tokens or samples, and its ratio from the peak."""
    rates = measure_rates(train(flops_per_token=6e9, peak_flops=989e12), at(0.1))
    assert rates.flops_per_second == pytest.approx(393.216e12)
    assert rates.flops_utilization_ratio == pytest.approx(0.3976, abs=1e-4)
    rates = measure_rates(train(flops_per_sample=1e12), at(0.1))
    assert rates.flops_per_second == pytest.approx(128e12)
    assert rates.flops_utilization_ratio is None


def test_progress_is_a_share_of_all_steps_and_of_the_epochs():
    """The ratios follow from the step and the total steps, of the run and of the epoch."""
    record = train(global_step=2080, total_steps=8000, epoch_step=80, epoch_steps=1000)
    progress = measure_progress(record, is_alive=True)
    assert progress.ratio == pytest.approx(0.26)
    assert progress.epoch_ratio == pytest.approx(0.08)


def test_epochs_and_their_steps_are_as_good_as_a_total():
    """If the total steps are unknown, they follow from the epochs and the steps per epoch."""
    record = train(global_step=2080, total_epochs=8, epoch_steps=1000)
    assert measure_progress(record, is_alive=True).ratio == pytest.approx(0.26)


def test_a_young_run_ends_at_the_pace_of_its_window():
    """The end of a young run is estimated from the window, as its first steps are slow."""
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
    """The end of an old run is estimated from all steps of its session."""
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
    """The estimated end includes the mean time of validations and checkpoints per step."""
    record = train(global_step=1000, total_steps=2000, total_validation=104, total_checkpoint=52)
    assert measure_progress(record, is_alive=True).end_timestamp_seconds == pytest.approx(
        NOON + 1000 * (0.25 + 0.15)
    )


def test_a_resumed_run_is_paced_by_its_own_steps():
    """Steps from before a resume count as done, but not in the mean time of a step."""
    record = train(global_step=901_040, first_global_step=900_000, total_steps=902_040)
    end = measure_progress(record, is_alive=True).end_timestamp_seconds
    assert end == pytest.approx(NOON + 250)


def test_the_end_does_not_move_while_a_run_hangs():
    """The end is estimated from the time of the last record, so it may be in the past."""
    record = train(global_step=1000, total_steps=2000)
    assert measure_progress(record, is_alive=True).end_timestamp_seconds == NOON + 250


def test_a_run_past_its_last_step_ends_at_its_last_record():
    """A run beyond its total steps has a ratio of 1 and ends at the time of its last record."""
    record = train(global_step=2500, total_steps=2000)
    assert measure_progress(record, is_alive=True) == Progress(1.0, None, NOON)


def test_nobody_knows_the_end_of_a_run_without_a_total_or_one_that_is_over():
    """Without a total, or for a run that has ended, no end is estimated."""
    assert measure_progress(train(global_step=9), is_alive=True) == Progress()
    assert measure_progress(train(global_step=9, total_epochs=3), is_alive=True) == Progress()
    finished = train(global_step=9, total_steps=9, state=float(State.FINISHED))
    assert measure_progress(finished, is_alive=True) == Progress(1.0, None, None)
    dead = train(global_step=3, total_steps=6)
    assert measure_progress(dead, is_alive=False) == Progress(0.5, None, None)


def test_nobody_knows_the_end_before_the_first_step():
    """Before the first step, there is no mean step time from which to estimate the end."""
    record = write_record(global_step=0, total_steps=100, steps=0, train_seconds=0)
    assert measure_progress(record, is_alive=True) == Progress(0.0, None, None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_numbers_that_make_no_sense_do_no_harm(value: float):
    """Invalid numbers in a record, which any user may write, give no negative rate or progress."""
    for word in [*WINDOW, "global_step", "total_steps", "epoch_step", "epoch_steps"]:
        record = train(**{"global_step": 5, "total_steps": 10, word: value})
        rates = measure_rates(record, at(1))
        progress = measure_progress(record, is_alive=True)
        known = [each for each in (*astuple(rates), *astuple(progress)) if each is not None]
        assert not any(each < 0 for each in known), (word, rates, progress)
