"""The bottleneck of a run, over ten simulated minutes."""

from __future__ import annotations

import math

import pytest

from tests.unit.sources.runs.rows import NOON
from tests.unit.verdicts.ranks import dead, living
from trainvitals.runfile import Phase
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Measurements,
)
from trainvitals.sources.accelerators.row import THROTTLE_REASONS
from trainvitals.sources.runs.reading import RunReading, RunsReading
from trainvitals.sources.runs.stragglers import Slowness
from trainvitals.verdicts.thresholds import read_thresholds
from trainvitals.views.machine.accelerators import Accelerators
from trainvitals.views.machine.runs import Runs, add_runs

UUID = "GPU-1"
MINUTES_10 = 600


def read_device(seconds, busy=0.9, hot=0.0, kind="gpu", **measured):
    """Return a device that was busy and thermally throttled for these shares of the time."""
    throttled = [0.0] * len(THROTTLE_REASONS)
    throttled[THROTTLE_REASONS.index("hw_thermal")] = hot * seconds
    numbers = {"busy_seconds_total": busy * seconds, "processes": 1, **measured}
    return AcceleratorsReading(
        (
            AcceleratorReading(
                Identity(kind, 0, UUID, "H100", "", "550"),
                "ok",
                NOON + seconds,
                Measurements(throttle_seconds_total=tuple(throttled), **numbers),
            ),
        )
    )


def judge(make_ranks, seconds=MINUTES_10, **device):
    """Return the bottleneck after this many seconds of readings every 10 s.

    Args:
        make_ranks: Returns the ranks at this many seconds after noon.
        seconds: The duration.
        device: The measurements of the accelerator.
    """
    accelerators, runs = Accelerators(), Runs()
    for at in range(0, seconds + 1, 10):
        reading = read_device(at, **device)
        told = RunsReading(tuple(make_ranks(at)), (RunReading("llama", "client"),))
        accelerators.note(reading, NOON + at)
        runs.note(told, NOON + at)
    work = add_runs(accelerators.measure(reading, NOON + seconds), told, runs.measure())
    drawn = runs.draw(told, reading.devices, work, NOON + seconds, read_thresholds())
    return drawn[0].bound


def train(waiting=0.0, phase=Phase.FORWARD, **more):
    """Return a function that makes a rank which waits for data for this share of its steps."""

    def make(at):
        words = {"train_seconds": float(at), "total_data_wait": waiting * at, "loss": 2.0}
        return [living(phase=phase, uuids=(UUID,), **{**words, **more})]

    return make


def test_a_busy_accelerator_is_bound_by_computing():
    """A run whose accelerator is busy for 90% of the time is `compute-bound`."""
    assert judge(train()) == "compute-bound"


def test_too_little_is_known_at_first():
    """Before nine minutes of readings, a run has no bottleneck by utilization."""
    assert judge(train(), seconds=500) is None


@pytest.mark.parametrize(("waiting", "verdict"), [(0.29, "compute-bound"), (0.31, "input-bound")])
def test_waiting_for_data(waiting, verdict):
    """A run that waits for data for more than 30% of its step time is `input-bound`."""
    assert judge(train(waiting)) == verdict


def test_waiting_for_data_is_told_at_once():
    """A run that waits for data is reported as `input-bound` after 20 s."""
    assert judge(train(0.5), seconds=20) == "input-bound"


@pytest.mark.parametrize(("hot", "verdict"), [(0.09, "compute-bound"), (0.11, "throttled")])
def test_heat(hot, verdict):
    """A run is `throttled` if heat slows its accelerator for more than 10% of the time."""
    assert judge(train(), hot=hot) == verdict


@pytest.mark.parametrize(("busy", "verdict"), [(0.49, "underused"), (0.51, "compute-bound")])
def test_an_accelerator_that_hardly_works(busy, verdict):
    """A run is `underused` if its GPU is busy for less than half of ten minutes."""
    assert judge(train(), busy=busy) == verdict


def test_a_gaudi_card_may_work_less():
    """A run on Gaudi cards is `underused` only below 20% utilization, as in the alert."""
    assert judge(train(), busy=0.25, kind="hpu") == "compute-bound"
    assert judge(train(), busy=0.15, kind="hpu") == "underused"


def test_an_accelerator_that_nobody_uses_does_not_starve():
    """A run on an accelerator without a process is not `underused`."""
    assert judge(train(), busy=0.0, processes=0) is None


def test_time_outside_of_training_counts_as_work():
    """Time in validation counts as work in the utilization limit."""

    def make(at):
        phase = Phase.VALIDATION if at > MINUTES_10 * 0.6 else Phase.FORWARD
        return train(phase=phase)(at)

    assert judge(make, busy=0.45) == "compute-bound"


def test_a_run_that_mostly_does_something_else():
    """A run that spends more than half of its time outside steps is `not in steps`."""
    assert judge(train(phase=Phase.CHECKPOINT), busy=0.0) == "not in steps"


def test_a_straggler():
    """The bottleneck of a run with a straggler is `slow rank`."""
    slowness = Slowness((None, None, 1.9, None), is_straggler=True)
    assert judge(
        lambda at: [living(uuids=(UUID,), slowness=slowness, train_seconds=float(at))]
    ) == ("slow rank")


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number(loss):
    """A NaN or infinite loss takes precedence over all other verdicts."""
    assert judge(train(0.9, loss=loss)) == "loss is NaN"


def test_a_run_that_is_over_loses_nothing():
    """A run that ended or stalled has no bottleneck."""
    assert judge(lambda _: [dead("finished", code=0)]) is None
    assert judge(lambda _: [living(cause="no_progress")]) is None
