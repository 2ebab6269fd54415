"""Means and spikes of the loss, and the progress of evaluations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.training.losses import EvaluationWatch, LossWatch, spike_limit


def watch_of(*losses: float) -> LossWatch:
    """Return a watch that has seen these losses."""
    watch = LossWatch()
    for loss in losses:
        watch.see(loss)
    return watch


def test_there_is_no_mean_before_the_first_loss():
    """Before the first loss, the mean is None."""
    assert LossWatch().ema is None


def test_the_mean_is_corrected_for_its_start():
    """The first loss is the first mean, and a loss weighs 0.98 to the power of its age."""
    assert watch_of(4.0).ema == 4.0
    assert watch_of(1.0, 2.0).ema == pytest.approx(2.98 / 1.98)
    assert watch_of(1.0, 2.0, 4.0).ema == pytest.approx(6.9204 / 2.9404)


def test_in_the_long_run_the_newest_loss_weighs_two_hundredths():
    """After thousands of losses of 1, a loss of 2 moves the mean by 0.02."""
    assert watch_of(*[1.0] * 3000, 2.0).ema == pytest.approx(1.02, abs=1e-6)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_apart(loss: float):
    """NaN and infinite losses are counted and affect neither the mean nor the spikes."""
    watch = watch_of(*[1.0] * 60, *[loss] * 10)
    assert watch.nonfinite == 10
    assert watch.ema == 1.0
    assert not watch.is_spiking


@pytest.mark.parametrize(
    ("ordered", "limit"),
    [
        ([1.0, 2.0, 3.0, 4.0], 14.5),  # median 2.5, deviation 1.5
        ([10.0, 10.0, 10.1, 10.1], 20.1),  # twice the median of 10.05
        ([-3.0, -2.0, -1.0, 0.0], 10.5),  # median -1.5: twice that is no limit
        ([0.0, 0.0, 0.0, 0.0], 8e-7),
        ([-1024.0, -1024.0], -992.0),  # eight times 1024 / 256 above
        ([1.0, 1.0, 1.0, 100.0], 2.0),
    ],
)
def test_the_limit_of_a_spike(ordered: list[float], limit: float):
    """The spike limit is twice the median or eight deviations above it, whichever is higher."""
    assert spike_limit(ordered) == pytest.approx(limit)


def test_a_spike_is_five_losses_in_a_row():
    """The fifth loss above twice the median begins the spike, which counts once."""
    watch = watch_of(*[1.0, 1.2] * 25, *[2.3] * 4)
    assert not watch.is_spiking
    watch.see(2.3)
    assert watch.is_spiking
    for _ in range(20):
        watch.see(2.3)
    assert watch.spikes == 1


def test_four_losses_above_the_limit_are_no_spike():
    """A normal loss resets the count of losses above the limit."""
    watch = watch_of(*[1.0, 1.2] * 25, *[2.3] * 4, 1.1, *[2.3] * 4)
    assert watch.spikes == 0


def test_a_loss_that_is_nan_does_not_end_the_row():
    """A NaN between five high losses does not prevent a spike."""
    watch = watch_of(*[1.0, 1.2] * 25, 2.3, 2.3, math.nan, 2.3, 2.3, 2.3)
    assert watch.is_spiking


def test_a_spike_ends_with_the_first_normal_loss():
    """The first normal loss ends a spike, and the next five high losses are a second spike."""
    watch = watch_of(*[1.0, 1.2] * 25, *[9.0] * 90, 1.1)
    assert not watch.is_spiking
    for _ in range(5):
        watch.see(9.0)
    assert watch.is_spiking
    assert watch.spikes == 2


def test_a_hundred_high_losses_are_the_new_normal():
    """After 100 high losses the spike ends, and the new level is the normal one."""
    watch = watch_of(*[1.0, 1.2] * 25, *[9.0] * 99)
    assert watch.is_spiking
    watch.see(9.0)
    assert not watch.is_spiking
    for _ in range(10):
        watch.see(17.9)
    assert not watch.is_spiking
    for _ in range(5):
        watch.see(18.1)
    assert watch.is_spiking
    assert watch.spikes == 2


def test_there_is_no_verdict_before_fifty_losses():
    """No spike is counted before 50 losses, as the normal level is not yet known."""
    assert watch_of(*[1.0] * 44, *[50.0] * 5).spikes == 0
    assert watch_of(*[1.0] * 50, *[50.0] * 5).spikes == 1


def test_what_is_normal_follows_a_falling_loss():
    """The spike limit follows a falling loss, so that old high losses do not hide a spike."""
    watch = watch_of(*[10.0] * 50, *[1.0] * 100, *[5.0] * 5)
    assert watch.is_spiking


@pytest.mark.parametrize(
    ("normal", "rounded"),
    [(0.0, 1.2e-7), (1e-12, 9e-8), (-1000.0, -999.99), (-2.0, -1.984375)],
)
def test_rounding_is_no_spike(normal: float, rounded: float):
    """If all losses are nearly equal, rounding of a float32 or bfloat16 causes no spike."""
    assert watch_of(*[normal] * 100, *[rounded] * 50).spikes == 0


def test_a_negative_loss_can_spike():
    """A log likelihood that jumps from -1000 to -900 counts as a spike."""
    assert watch_of(*[-1000.0] * 100, *[-900.0] * 5).spikes == 1


@given(st.lists(st.floats(width=32), max_size=300))
def test_the_mean_stays_between_the_losses(losses: list[float]):
    """The mean of any losses lies between the lowest and the highest finite loss."""
    watch = watch_of(*losses)
    finite = [loss for loss in losses if math.isfinite(loss)]
    assert watch.nonfinite == len(losses) - len(finite)
    if not finite:
        assert watch.ema is None
        return
    assert watch.ema is not None
    slack = 1e-9 * max(map(abs, finite))
    assert min(finite) - slack <= watch.ema <= max(finite) + slack


@given(
    st.lists(st.sampled_from([1.0, 1.1, 1.2, 1.3, 5.0, 9.0, math.nan, math.inf]), max_size=400),
    st.lists(st.integers(1, 90), max_size=20),
)
def test_many_losses_at_once_are_judged_as_one_by_one(losses: list[float], sizes: list[int]):
    """Losses passed in groups give the same results as losses passed one at a time."""
    one_by_one, at_once = watch_of(*losses), LossWatch()
    rest = losses
    for size in [*sizes, len(losses)]:
        at_once.see(*rest[:size])
        rest = rest[size:]
    for name in ("ema", "nonfinite", "is_spiking", "spikes"):
        assert getattr(at_once, name) == getattr(one_by_one, name)


def test_the_loss_of_a_spike_is_kept():
    """The recorded loss of a spike is the fifth loss above the limit."""
    assert math.isnan(watch_of(1.0).spike_loss)
    watch = LossWatch()
    watch.see(*[1.0, 1.2] * 25, 3.0, 3.0, 3.0, 3.0, 7.0, 8.0, 1.0)
    assert (watch.spikes, watch.spike_loss, watch.is_spiking) == (1, 7.0, False)


def test_no_evaluation_has_no_best():
    """Before the first evaluation, the best value is None."""
    watch = EvaluationWatch("min")
    assert (watch.best, watch.evaluations, watch.since_improvement) == (None, 0, 0)


def test_a_lower_loss_is_an_improvement():
    """In the mode "min", a lower value is an improvement and an equal value is not."""
    watch = EvaluationWatch("min")
    for value in (3.0, 2.0, 2.0, 2.5):
        watch.see(value)
    assert (watch.best, watch.evaluations, watch.since_improvement) == (2.0, 4, 2)


def test_a_higher_accuracy_is_an_improvement():
    """In the mode "max", a higher value is an improvement."""
    watch = EvaluationWatch("max")
    for value in (0.1, 0.4, 0.3):
        watch.see(value)
    assert (watch.best, watch.since_improvement) == (0.4, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_improvement(value: float):
    """An evaluation with a NaN or infinite value counts as one without improvement."""
    watch = EvaluationWatch("max")
    watch.see(value)
    assert (watch.best, watch.since_improvement) == (None, 1)
    watch.see(0.5)
    watch.see(value)
    assert (watch.best, watch.evaluations, watch.since_improvement) == (0.5, 3, 1)
