"""Things to be done after a while."""

from __future__ import annotations

import threading
import time

from trainvitals.sources.containers.agenda import Agenda
from trainvitals.sources.containers.errands import Errands


def test_what_is_due_first_is_done_first():
    """The order of entering does not matter, and what is due at once waits for nothing."""
    done: list[str] = []
    over = threading.Event()
    agenda = Agenda(name="test")
    agenda.call_after(0.1, lambda: (done.append("late"), over.set()))
    agenda.call_after(0.05, lambda: done.append("soon"))
    agenda.call_after(0.0, lambda: done.append("now"))
    agenda.start()
    assert over.wait(10)
    agenda.close()
    assert done == ["now", "soon", "late"]


def test_what_fails_is_logged_and_done_again(caplog):
    """A fault in something repeated ends neither it nor the thread."""
    times = []
    thrice = threading.Event()

    def fail() -> None:
        times.append(time.monotonic())
        if len(times) == 3:
            thrice.set()
        raise TypeError("a fault")

    agenda = Agenda(name="test")
    agenda.repeat(0.03, fail)
    agenda.start()
    assert thrice.wait(10)
    agenda.close()
    assert times[2] - times[0] >= 0.06
    assert "failed: a fault" in caplog.text


def test_closing_waits_a_second_at_most_and_drops_the_rest():
    """What hangs is left alone, and nothing is begun after it or entered any more."""
    done: list[int] = []
    busy, go_on = threading.Event(), threading.Event()
    agenda = Agenda(name="test")
    agenda.call_after(0.0, lambda: (busy.set(), go_on.wait(10)))
    agenda.call_after(0.0, lambda: done.append(1))
    agenda.start()
    assert busy.wait(10)
    began = time.monotonic()
    agenda.close()
    assert 0.9 < time.monotonic() - began < 3
    agenda.call_after(0.0, lambda: done.append(2))
    go_on.set()
    agenda._thread.join(10)
    assert (done, agenda._due) == ([], [])


def test_errands_are_done_by_others_and_none_after_the_end():
    """A slow errand holds up no other; after the end those that wait are dropped."""
    agenda = Agenda(name="test")
    agenda.start()
    errands = Errands(agenda)
    go_on, quick, done = threading.Event(), threading.Event(), []
    for _ in range(3):
        errands.do(lambda: go_on.wait(10))
    errands.do_after(0.01, quick.set)
    assert quick.wait(10)
    errands.do(lambda: go_on.wait(10))
    errands.do(lambda: done.append(1))
    errands.close()
    errands.do(lambda: done.append(2))
    go_on.set()
    agenda.close()
    time.sleep(0.1)
    assert errands.is_closed
    assert done == []
