"""The pace of batches and a run's usual values, on a clock that the test advances."""

from itertools import cycle, islice

from trainvitals.training.pace import Baseline, Pace, Stretch, Usual


class Clock:
    """A clock that the test advances."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        """Return the time in seconds."""
        return self.seconds


def train(pace, clock, *, wait, compute, samples=8, steps=1):
    """Complete one batch."""
    clock.seconds += wait
    pace.begin_batch()
    clock.seconds += compute
    pace.end_batch(samples, steps=steps)


def test_a_batch_is_measured_from_the_end_of_the_one_before():
    """Batches of 1 s wait and 3 s work take 4 s a step, of which 25% is data wait."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.wait()
    for _ in range(2):
        train(pace, clock, wait=1, compute=3)
    assert pace.total == Stretch(steps=2, samples=16, seconds=8.0, data_wait_seconds=2.0)
    assert pace.total.step_seconds == 4.0
    assert pace.total.samples_per_second == 2.0
    assert pace.total.data_wait_percent == 25.0


def test_the_first_batch_of_an_epoch_is_left_out():
    """The first batch of an epoch is not measured, because it waits for the workers to start."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.pause()
    train(pace, clock, wait=30, compute=3)
    assert pace.total == Stretch()
    train(pace, clock, wait=1, compute=3)
    assert pace.total == Stretch(1, 8, 4.0, 1.0)


def test_what_goes_by_in_a_pause_does_not_count():
    """The time of a pause is not counted."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.wait()
    train(pace, clock, wait=1, compute=3)
    pace.pause()
    clock.seconds += 100
    pace.wait()
    train(pace, clock, wait=1, compute=3)
    assert pace.total == Stretch(2, 16, 8.0, 2.0)


def test_batches_are_accumulated_for_a_step():
    """A step of four batches of 2 s takes 8 s."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.wait()
    for steps in (0, 0, 0, 1):
        train(pace, clock, wait=0, compute=2, steps=steps)
    assert pace.total.step_seconds == 8.0


def test_between_two_looks_only_what_came_between_counts():
    """The difference of two totals covers the batches between them."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.wait()
    train(pace, clock, wait=5, compute=5)
    seen = pace.total
    train(pace, clock, wait=0, compute=4)
    assert pace.total - seen == Stretch(1, 8, 4.0, 0.0)


def test_nothing_is_known_without_batches():
    """Without batches, the rates are None."""
    assert Stretch().step_seconds is None
    assert Stretch().samples_per_second is None
    assert Stretch().data_wait_percent is None


class Run:
    """A run whose values are compared with the baseline every second."""

    def __init__(self, **settings):
        self.seconds = 0.0
        self.baseline = Baseline(clock=lambda: self.seconds, **settings)

    def look(self, values, name="step_seconds"):
        """Compare each value and return the texts of raised and of cleared findings."""
        told, cleared = [], []
        for value in values:
            self.seconds += 1
            changes = self.baseline.compare(**{name: value})
            told += [finding.text for finding in changes.raised]
            cleared += [finding.text for finding in changes.cleared]
        return told, cleared

    def learn(self, name="step_seconds", pattern=(0.99, 1.0, 1.01)):
        """Compare values until the baseline has learned the usual value."""
        self.look([50.0, 50.0, 50.0], name)
        self.look(islice(cycle(pattern), 30), name)


def test_the_usual_is_the_median_after_the_warm_up():
    """The usual value is unknown until there are 20 comparisons after three of warm-up."""
    run = Run()
    run.look([50.0, 50.0, 50.0])
    run.look([1.0] * 19)
    assert run.baseline.usual == Usual(None, None, None, 0)
    run.look([1.0])
    assert run.baseline.usual == Usual(1.0, None, None, 0)


def test_a_slow_step_must_last_to_be_told():
    """A step time that is doubled for a minute is reported once, and cleared after 16 s at 1 s."""
    run = Run()
    run.learn()
    assert run.look([2.0] * 60) == ([], [])
    assert run.look([2.0]) == (["step time is 2 s, usually 1 s"], [])
    assert run.baseline.active == {"adaptive_step_time"}
    assert run.baseline.usual.deviations == 1
    assert run.look([2.0] * 30) == ([], [])
    assert run.look([1.0] * 15) == ([], [])
    assert run.look([1.0]) == ([], ["step time is 1 s, usually 1 s"])
    assert run.baseline.usual.deviations == 0


def test_a_short_disturbance_is_not_told():
    """One usual value resets the minute after which a deviation is reported."""
    run = Run()
    run.learn()
    assert run.look(([2.0] * 50 + [1.0]) * 4) == ([], [])


def test_only_the_bad_direction_counts():
    """Faster steps, higher throughput and higher GPU use are not reported."""
    for name, better in (
        ("step_seconds", 0.1),
        ("samples_per_second", 9.0),
        ("utilization_ratio", 9.0),
    ):
        run = Run()
        run.learn(name)
        assert run.look([better] * 150, name) == ([], [])


def test_throughput_and_use_are_told_when_they_fall():
    """A drop of throughput and a drop of GPU use are reported with texts and bits of their own."""
    run = Run()
    run.learn("samples_per_second", (99.0, 100.0, 101.0))
    assert run.look([40.0] * 61, "samples_per_second")[0] == ["40 samples/s, usually 100"]
    assert run.baseline.usual.deviations == 2
    run = Run()
    run.learn("utilization_ratio", (0.9, 0.9, 0.9))
    assert run.look([0.3] * 61, "utilization_ratio")[0] == ["GPU use is 30%, usually 90%"]
    assert run.baseline.usual.deviations == 4
    assert run.baseline.active == {"adaptive_utilization"}


def test_a_run_that_scatters_is_allowed_to():
    """A step time of 2.2 s is not reported if steps usually take from 0.5 to 1.5 s."""
    run = Run()
    run.learn(pattern=(0.5, 0.75, 1.0, 1.25, 1.5))
    assert run.look([2.2] * 100) == ([], [])


def test_a_small_change_of_a_steady_run_is_no_alarm():
    """A deviation below a quarter of the usual value is not reported."""
    run = Run()
    run.learn(pattern=(1.0,))
    assert run.look([1.24] * 100) == ([], [])


def test_a_new_pace_becomes_the_usual_one():
    """A new step time becomes the usual one after 200 comparisons, and the alert clears."""
    run = Run()
    run.learn()
    told, cleared = run.look([2.0] * 230)
    assert len(told) == 1
    assert len(cleared) == 1
    assert run.baseline.usual.step_seconds == 2.0


def test_unknown_values_change_nothing():
    """None and NaN do not change the usual value."""
    run = Run()
    run.learn()
    assert run.look([None, float("nan")] * 100) == ([], [])
    assert run.baseline.usual.step_seconds == 1.0
