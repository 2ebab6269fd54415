"""The thread that fetches pictures for the terminal."""

import threading
from dataclasses import replace

import pytest

from tests.unit.views.terminal.pictures import GOOD_DAY
from trainvitals.errors import TrainvitalsError
from trainvitals.views.terminal.origin import News, Watch


class Origin:
    """A source of pictures that returns the outcomes set by a test."""

    words = "a test"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def look(self):
        """Return or raise the next outcome."""
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (TrainvitalsError("nobody is there"), "nobody is there"),
        (ValueError("a bug"), "an error in trainvitals itself: ValueError: a bug"),
    ],
)
def test_the_last_picture_stays_while_there_is_no_newer_one(error, trouble):
    """After an error, the last picture stays with its time and the error until the next one."""
    later = replace(GOOD_DAY, hostname="later")
    news, enough = [], threading.Event()

    def wake():
        news.append(watch.news)
        if len(news) == 2:
            watch.stop()
            enough.set()

    watch = Watch(
        Origin(error, later), GOOD_DAY, interval_seconds=0.01, wake=wake, clock=lambda: 7.0
    )
    watch.start()
    assert enough.wait(30)
    assert news == [News(GOOD_DAY, 7.0, trouble), News(later, 7.0)]
