"""Tests for worker threads for tasks that may hang."""

import threading
import time

import pytest

from tests.support.waiting import wait_until
from trainvitals import workers as workers_module
from trainvitals.workers import WorkerPool, attempt


@pytest.fixture
def pool():
    """A pool of at most three workers."""
    pool = WorkerPool(name="pool-under-test", limit=3)
    yield pool
    pool.close()


def threads_of(name):
    """Return the living threads whose names begin with a prefix."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def fail():
    """Raise an unexpected error."""
    raise ZeroDivisionError("no ratio of nothing")


def test_outcomes_carry_what_was_returned_and_raised(pool):
    """Each task has its own outcome, and the error of one task does not affect another task."""
    outcomes = pool.gather({"good": lambda: 42, "bad": fail}, 30.0)
    assert outcomes["good"].value == 42
    assert outcomes["good"].error is None
    assert isinstance(outcomes["bad"].error, ZeroDivisionError)
    assert outcomes["bad"].value is None
    assert not outcomes["good"].late
    assert not outcomes["bad"].late


def test_an_attempt_says_how_long_it_took_and_when_it_ended():
    """An outcome contains the duration and the end time of its task."""
    outcome = attempt("sleep", lambda: time.sleep(0.05))
    assert 0.05 <= outcome.seconds < 30
    assert time.monotonic() - 30 < outcome.ended_at <= time.monotonic()


def test_quick_tasks_share_one_thread(pool):
    """Tasks that return at once share one worker, even in later gatherings."""
    for _ in range(5):
        idents = pool.gather({str(n): threading.get_ident for n in range(10)}, 30.0)
        assert len(idents) == 10
    assert len({outcome.value for outcome in idents.values()}) == 1
    assert len(threads_of("pool-under-test")) == 1


def test_tasks_behind_a_slow_one_get_help(pool):
    """Tasks that wait behind a slow task are executed by further workers."""
    together = threading.Barrier(3)
    outcomes = pool.gather({str(n): together.wait for n in range(3)}, 60.0)
    assert not any(outcome.late for outcome in outcomes.values())


def test_a_hung_task_is_late_and_not_started_again(pool):
    """A hung task delays only the first gathering, and is started again only after it has ended."""
    heal = threading.Event()
    calls = []
    tasks = {"hung": lambda: (calls.append(1), heal.wait()), "quick": lambda: "here"}
    first = pool.gather(tasks, 1.0)
    assert first["hung"].late
    assert 1.0 <= first["hung"].seconds < 60
    assert first["quick"].value == "here"
    started_at = time.monotonic()
    second = pool.gather(tasks, 60.0)
    assert time.monotonic() - started_at < 30
    assert second["hung"].late
    assert second["quick"].value == "here"
    assert calls == [1]
    assert pool.is_running("hung")
    heal.set()
    wait_until(lambda: not pool.is_running("hung"))
    third = pool.gather(tasks, 30.0)
    assert not third["hung"].late
    assert calls == [1, 1]


def test_threads_do_not_grow_beyond_the_limit(pool):
    """Even if many tasks hang, the number of threads does not exceed the limit."""
    heal = threading.Event()
    for n in range(20):
        pool.gather({f"hung-{n}": heal.wait}, 0.02)
    assert len(threads_of("pool-under-test")) == 3
    heal.set()
    wait_until(lambda: not any(pool.is_running(f"hung-{n}") for n in range(20)))
    pool.close()
    wait_until(lambda: not threads_of("pool-under-test"))


def test_the_threads_of_a_burst_end():
    """Threads that a burst has started end later, one at a time, and the last one remains."""
    now = [1000.0]
    pool = WorkerPool(name="pool-of-a-burst", limit=3, clock=lambda: now[0])
    together = threading.Barrier(3)
    pool.gather({str(n): together.wait for n in range(3)}, 30.0)
    counts = []
    for _ in range(4):
        pool.gather({"quick": fail}, 30.0)
        now[0] += workers_module.SPARE_AFTER_SECONDS + 1
        counts.append(len(threads_of("pool-of-a-burst")))
    assert pool.gather({"after": lambda: 42}, 30.0)["after"].value == 42
    wait_until(lambda: len(threads_of("pool-of-a-burst")) == 1)
    assert counts[0] == 3
    together.reset()
    outcomes = pool.gather({str(n): together.wait for n in range(3)}, 30.0)
    assert not any(outcome.late for outcome in outcomes.values())
    pool.close()
    wait_until(lambda: not threads_of("pool-of-a-burst"))


def test_close_lets_go_of_workers_that_hang_once_they_return():
    """A worker that hangs while the pool is closed ends after its task."""
    pool = WorkerPool(name="pool-that-closes", limit=1)
    heal = threading.Event()
    pool.gather({"hung": heal.wait}, 0.02)
    pool.close()
    assert len(threads_of("pool-that-closes")) == 1
    heal.set()
    wait_until(lambda: not threads_of("pool-that-closes"))


def test_outcomes_wake_once_when_a_worker_runs_out_of_tasks(pool):
    """Every outcome but the last one states that more outcomes will follow."""
    more = []
    done = threading.Event()

    def deliver(outcome, comes_more):
        more.append((outcome.key, comes_more))
        if not comes_more:
            done.set()

    for key in "abc":
        pool.submit(key, lambda: None, deliver)
    pool.wake(1)
    assert done.wait(30)
    assert more == [("a", True), ("b", True), ("c", False)]


def test_an_outcome_without_a_wake_up_is_not_late(pool):
    """A finished task is not late, even if its worker hangs in the next task."""
    heal = threading.Event()
    outcomes = pool.gather({"quick": lambda: "here", "hung": heal.wait}, 1.0)
    assert outcomes["quick"].value == "here"
    assert outcomes["hung"].late
    heal.set()


def test_a_system_without_threads_makes_tasks_late_and_nothing_worse(pool, monkeypatch):
    """If no thread can be started, tasks wait and are executed later."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(workers_module.threading.Thread, "start", refuse)
        assert pool.gather({"one": lambda: 1}, 0.02)["one"].late
    assert pool.gather({"two": lambda: 2}, 30.0)["two"].value == 2
    wait_until(lambda: not pool.is_running("one"))


def test_gatherings_of_many_threads_at_once_are_all_complete(pool):
    """Concurrent gatherings of several threads return complete and correct outcomes."""
    wrong = []

    def gather(name):
        for turn in range(50):
            tasks = {f"{name}-{n}": lambda n=n, turn=turn: (name, n, turn) for n in range(4)}
            for key, outcome in pool.gather(tasks, 10.0).items():
                if outcome.value is None or f"{outcome.value[0]}-{outcome.value[1]}" != key:
                    wrong.append((key, outcome.value, outcome.late))

    gatherers = [threading.Thread(target=gather, args=(name,)) for name in "abcd"]
    for thread in gatherers:
        thread.start()
    for thread in gatherers:
        thread.join()
    assert wrong == []
