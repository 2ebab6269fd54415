"""Lasting worker threads for work that may hang."""

import threading
import time

import pytest

from trainvitals import crew as crew_module
from trainvitals.crew import Crew, attempt


@pytest.fixture
def crew():
    """A crew of three."""
    crew = Crew(name="crew-under-test", limit=3)
    yield crew
    crew.close()


def threads_of(name):
    """Give the living threads whose names begin so."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def wait_until(is_so):
    """Wait for what another thread does in its own time."""
    until = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


def fail():
    """Raise an error that nobody foresaw."""
    raise ZeroDivisionError("no ratio of nothing")


def test_outcomes_carry_what_was_returned_and_raised(crew):
    """Each task has its outcome, and an error of one is no trouble of another."""
    outcomes = crew.gather({"good": lambda: 42, "bad": fail}, 5.0)
    assert outcomes["good"].value == 42
    assert outcomes["good"].error is None
    assert isinstance(outcomes["bad"].error, ZeroDivisionError)
    assert outcomes["bad"].value is None
    assert not outcomes["good"].late
    assert not outcomes["bad"].late


def test_an_attempt_says_how_long_it_took_and_when_it_ended():
    """Its seconds are those of the task, and its end is now."""
    outcome = attempt("sleep", lambda: time.sleep(0.05))
    assert 0.05 <= outcome.seconds < 0.5
    assert time.monotonic() - 0.5 < outcome.ended_at <= time.monotonic()


def test_quick_tasks_share_one_thread(crew):
    """Ten tasks that return at once start one worker, and come back on the same one again."""
    for _ in range(5):
        idents = crew.gather({str(n): threading.get_ident for n in range(10)}, 5.0)
        assert len(idents) == 10
    assert len({outcome.value for outcome in idents.values()}) == 1
    assert len(threads_of("crew-under-test")) == 1


def test_tasks_behind_a_slow_one_get_help(crew):
    """What waits behind a task that takes long is done meanwhile."""
    started_at = time.monotonic()
    slow = {str(n): lambda: time.sleep(0.2) for n in range(3)}
    outcomes = crew.gather(slow, 5.0)
    assert not any(outcome.late for outcome in outcomes.values())
    assert time.monotonic() - started_at < 0.5


def test_a_hung_task_is_late_and_not_started_again(crew):
    """It costs each gathering nothing but its patience, once, and its result is thrown away."""
    heal = threading.Event()
    calls = []
    tasks = {"hung": lambda: (calls.append(1), heal.wait()), "quick": lambda: "here"}
    first = crew.gather(tasks, 0.1)
    assert first["hung"].late
    assert 0.1 <= first["hung"].seconds < 1.0
    assert first["quick"].value == "here"
    started_at = time.monotonic()
    second = crew.gather(tasks, 5.0)
    assert time.monotonic() - started_at < 1.0
    assert second["hung"].late
    assert second["quick"].value == "here"
    assert calls == [1]
    assert crew.is_running("hung")
    heal.set()
    wait_until(lambda: not crew.is_running("hung"))
    third = crew.gather(tasks, 5.0)
    assert not third["hung"].late
    assert calls == [1, 1]


def test_threads_do_not_grow_beyond_the_limit(crew):
    """However many tasks hang, there are as many threads as allowed, and all end at last."""
    heal = threading.Event()
    for n in range(20):
        crew.gather({f"hung-{n}": heal.wait}, 0.02)
    assert len(threads_of("crew-under-test")) == 3
    heal.set()
    wait_until(lambda: not any(crew.is_running(f"hung-{n}") for n in range(20)))
    crew.close()
    wait_until(lambda: not threads_of("crew-under-test"))


def test_close_lets_go_of_workers_that_hang_once_they_return():
    """A worker that hung when the crew was closed ends after its task."""
    crew = Crew(name="crew-that-closes", limit=1)
    heal = threading.Event()
    crew.gather({"hung": heal.wait}, 0.02)
    crew.close()
    assert len(threads_of("crew-that-closes")) == 1
    heal.set()
    wait_until(lambda: not threads_of("crew-that-closes"))


def test_outcomes_wake_once_when_a_worker_runs_out_of_tasks(crew):
    """All but the last outcome say that more come."""
    more = []
    done = threading.Event()

    def deliver(outcome, comes_more):
        more.append((outcome.key, comes_more))
        if not comes_more:
            done.set()

    for key in "abc":
        crew.submit(key, lambda: None, deliver)
    crew.call(1)
    assert done.wait(5)
    assert more == [("a", True), ("b", True), ("c", False)]


def test_an_outcome_that_nobody_was_woken_for_is_not_late(crew):
    """A quick task done by a worker that then hangs in the next one is here by the deadline."""
    heal = threading.Event()
    outcomes = crew.gather({"quick": lambda: "here", "hung": heal.wait}, 0.2)
    assert outcomes["quick"].value == "here"
    assert outcomes["hung"].late
    heal.set()


def test_a_system_without_threads_makes_tasks_late_and_nothing_worse(crew, monkeypatch):
    """Where no thread can be started tasks wait, and are done once there is one."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(crew_module.threading.Thread, "start", refuse)
        assert crew.gather({"one": lambda: 1}, 0.02)["one"].late
    assert crew.gather({"two": lambda: 2}, 5.0)["two"].value == 2
    wait_until(lambda: not crew.is_running("one"))


def test_gatherings_of_many_threads_at_once_are_all_complete(crew):
    """Two hundred gatherings side by side lose no outcome and mix none up."""
    wrong = []

    def gather(name):
        for turn in range(50):
            tasks = {f"{name}-{n}": lambda n=n, turn=turn: (name, n, turn) for n in range(4)}
            for key, outcome in crew.gather(tasks, 10.0).items():
                if outcome.value is None or f"{outcome.value[0]}-{outcome.value[1]}" != key:
                    wrong.append((key, outcome.value, outcome.late))

    gatherers = [threading.Thread(target=gather, args=(name,)) for name in "abcd"]
    for thread in gatherers:
        thread.start()
    for thread in gatherers:
        thread.join()
    assert wrong == []
