"""Tests for scheduled calls and of the task queue."""

from __future__ import annotations

import threading
import time

from trainvitals.sources.containers.schedule import Schedule, TaskQueue


def test_what_is_due_first_is_done_first():
    """Calls are made in the order of their due times, not in the order of their scheduling."""
    done: list[str] = []
    over = threading.Event()
    schedule = Schedule(name="test")
    schedule.call_after(0.1, lambda: (done.append("late"), over.set()))
    schedule.call_after(0.05, lambda: done.append("soon"))
    schedule.call_after(0.0, lambda: done.append("now"))
    schedule.start()
    assert over.wait(30)
    schedule.close()
    assert done == ["now", "soon", "late"]


def test_what_fails_is_logged_and_done_again(caplog):
    """An exception in a repeated call is logged, and the call is repeated nevertheless."""
    times = []
    thrice = threading.Event()

    def fail() -> None:
        times.append(time.monotonic())
        if len(times) == 3:
            thrice.set()
        raise TypeError("a fault")

    schedule = Schedule(name="test")
    schedule.repeat(0.03, fail)
    schedule.start()
    assert thrice.wait(30)
    schedule.close()
    assert times[2] - times[0] >= 0.06
    assert "failed: a fault" in caplog.text


def test_closing_waits_a_second_at_most_and_drops_the_rest():
    """Closing waits about a second for a running call and drops pending and later calls."""
    done: list[int] = []
    busy, go_on = threading.Event(), threading.Event()
    schedule = Schedule(name="test")
    schedule.call_after(0.0, lambda: (busy.set(), go_on.wait(30)))
    schedule.call_after(0.0, lambda: done.append(1))
    schedule.start()
    assert busy.wait(30)
    began = time.monotonic()
    schedule.close()
    assert 0.9 < time.monotonic() - began < 15
    schedule.call_after(0.0, lambda: done.append(2))
    go_on.set()
    schedule._thread.join(30)
    assert (done, schedule._due) == ([], [])


def test_tasks_are_done_by_others_and_none_after_the_end():
    """A slow task delays no other task, and closing drops the tasks that have not started."""
    schedule = Schedule(name="test")
    schedule.start()
    tasks = TaskQueue(schedule)
    go_on, quick, done = threading.Event(), threading.Event(), []
    for _ in range(3):
        tasks.do(lambda: go_on.wait(30))
    tasks.do_after(0.01, quick.set)
    assert quick.wait(30)
    tasks.do(lambda: go_on.wait(30))
    tasks.do(lambda: done.append(1))
    tasks.close()
    tasks.do(lambda: done.append(2))
    go_on.set()
    schedule.close()
    time.sleep(0.1)
    assert tasks.is_closed
    assert done == []
