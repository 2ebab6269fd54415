"""The beat of a recording, and the signals that end it."""

import os
import signal
import time

import pytest

from trainvitals.record.beat import Beat, Ending


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        """Give the time."""
        return self.now


@pytest.fixture
def clock():
    """A clock that stands at 100 s."""
    return Clock()


def test_the_beat_does_not_drift(clock):
    """What a look takes is taken off the waiting, so that beats stay whole intervals apart."""
    beat = Beat(30, clock=clock)
    clock.now = 102.5
    assert beat.advance() == (27.5, 0)
    clock.now = 130.75
    assert beat.advance() == (29.25, 0)
    clock.now = 189.5
    assert beat.advance() == (0.5, 0)


def test_beats_that_are_missed_are_counted(clock):
    """After a look that took too long the next beat is one of those to come."""
    beat = Beat(30, clock=clock)
    clock.now = 195.0
    assert beat.advance() == (25.0, 3)
    clock.now = 221.0
    assert beat.advance() == (29.0, 0)


def test_an_early_waking_does_not_repeat_a_beat(clock):
    """A beat that has been is not waited for again."""
    beat = Beat(30, clock=clock)
    assert beat.advance() == (30.0, 0)
    clock.now = 129.999
    assert beat.advance()[0] == pytest.approx(30.001)


@pytest.fixture
def called():
    """What SIGUSR1 had done."""
    return []


@pytest.fixture
def ending(called):
    """The signals are taken over, and given back."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    ending = Ending(lambda: called.append("user"))
    yield ending
    ending.close()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_cuts_the_waiting_short(ending, number):
    """The end is told at once, and again to who asks later."""
    os.kill(os.getpid(), number)
    began = time.monotonic()
    assert ending.wait(30)
    assert time.monotonic() - began < 5
    assert ending.wait(0)


def test_waiting_ends_by_itself(ending):
    """Without a signal there is no end."""
    assert not ending.wait(0.01)
    assert not ending.wait(-1)


def test_the_user_signal_is_no_end(ending, called):
    """SIGUSR1 does what it was said to do."""
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not ending.wait(0)
    assert called == ["user"]
