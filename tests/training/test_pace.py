"""The pace of batches on a clock that the test moves."""

from trainvitals.training.pace import Pace, Stretch


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        """Tell the time."""
        return self.seconds


def train(pace, clock, *, wait, compute, samples=8, steps=1):
    """Do one batch."""
    clock.seconds += wait
    pace.begin_batch()
    clock.seconds += compute
    pace.end_batch(samples, steps=steps)


def test_a_batch_is_measured_from_the_end_of_the_one_before():
    """Two batches of 1 s wait and 3 s work: 4 s a step, a quarter of it waiting."""
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
    """It waits for the workers to start."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.pause()
    train(pace, clock, wait=30, compute=3)
    assert pace.total == Stretch()
    train(pace, clock, wait=1, compute=3)
    assert pace.total == Stretch(1, 8, 4.0, 1.0)


def test_what_goes_by_in_a_pause_does_not_count():
    """Neither does the time between the last batch and the pause."""
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
    """Four batches of 2 s for one step: a step takes 8 s."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.wait()
    for steps in (0, 0, 0, 1):
        train(pace, clock, wait=0, compute=2, steps=steps)
    assert pace.total.step_seconds == 8.0


def test_between_two_looks_only_what_came_between_counts():
    """The difference of two totals is the stretch between them."""
    clock = Clock()
    pace = Pace(clock=clock)
    pace.wait()
    train(pace, clock, wait=5, compute=5)
    seen = pace.total
    train(pace, clock, wait=0, compute=4)
    assert pace.total - seen == Stretch(1, 8, 4.0, 0.0)


def test_nothing_is_known_without_batches():
    """No steps, no rates."""
    assert Stretch().step_seconds is None
    assert Stretch().samples_per_second is None
    assert Stretch().data_wait_percent is None
