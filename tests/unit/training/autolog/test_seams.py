"""Tests for the observation of framework functions."""

import pickle
import sys
import types

import pytest

from trainvitals.training.autolog.seams import Seam, TrainingThread


class Owner:
    """A class of a framework."""

    def call(self, value):
        """Return a value, or raise a KeyError for None."""
        if value is None:
            raise KeyError("none")
        return self.call(value - 1) + 1 if value else 0


@pytest.fixture
def seam():
    """A seam that observes calls."""
    return Seam("calls", is_compiling=lambda: False, thread=TrainingThread())


@pytest.fixture
def owner():
    """A copy of the class `Owner`, which the test may modify."""
    return type("Owner", (), dict(vars(Owner)))


def test_only_the_outermost_call_is_observed(seam, owner):
    """The outermost call is observed with its arguments, result and exception."""
    seen = []
    seam.wrap(
        owner,
        "call",
        before=lambda args, kwargs: seen.append((args[1:], kwargs)),
        after=lambda _, result, error: seen.append((result, type(error))),
    )
    assert owner().call(2) == 2
    with pytest.raises(KeyError):
        owner().call(value=None)
    assert seen == [((2,), {}), (2, type(None)), ((), {"value": None}), (None, KeyError)]


def test_nothing_is_observed_while_calls_are_of_no_interest(seam, owner):
    """While `is_idle` is true, calls are not observed."""
    seen = []
    seam.wrap(owner, "call", before=lambda args, _: seen.append(args[1]))
    for seam.is_idle in (True, False):
        assert owner().call(2) == 2
    assert seen == [2]


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_failing_observation_ends_and_is_logged_once(owner, caplog, at):
    """A failed observation is logged once, and the original function is restored."""
    original, failures = owner.call, []
    seam = Seam(
        "calls",
        is_compiling=lambda: False,
        thread=TrainingThread(),
        failed=lambda: failures.append(1),
    )

    def fail(*_):
        raise ZeroDivisionError("mine")

    seam.wrap(owner, "call", **{at: fail})
    assert owner().call(3) == 3
    assert owner.call is original
    assert [record.getMessage() for record in caplog.records] == [
        "the observation of calls is off: ZeroDivisionError: mine; training goes on"
    ]
    assert (seam.is_off, failures) == (True, [1])


def test_a_hook_that_fails_does_nothing_any_more(seam, caplog):
    """A hook that has failed does nothing, because it cannot be removed while hooks are called."""
    calls = []

    def fail(value):
        calls.append(value)
        raise ZeroDivisionError("mine")

    hook = seam.hook(fail)
    assert [hook(1), hook(2)] == [None, None]
    assert (calls, len(caplog.records)) == ([1], 1)


def test_a_patch_of_the_programs_own_is_left(seam, owner):
    """A function that the program has replaced is not restored, and is no longer observed."""
    seen = []
    seam.wrap(owner, "call", before=lambda *_: seen.append(1))
    inner = owner.call
    owner.call = lambda self, value: inner(self, value) * 10
    patch = owner.call
    seam.restore()
    assert owner.call is patch
    assert (owner().call(0), seen) == (0, [])


def test_what_is_compiled_is_not_observed(owner):
    """A call that is being compiled is not observed."""
    seen = []
    seam = Seam("calls", is_compiling=lambda: True, thread=None)
    seam.wrap(owner, "call", before=lambda *_: seen.append(1))
    assert (owner().call(1), seen, seam.hook(seen.append)(1)) == (1, [], None)


def test_a_function_is_pickled_by_its_name(seam, monkeypatch):
    """A wrapped function can be pickled, even if another module also exports it."""
    home, other = types.ModuleType("home_of_save"), types.ModuleType("other")
    exec("def save(): return 7", home.__dict__)
    other.save = home.save
    monkeypatch.setitem(sys.modules, "home_of_save", home)
    seam.wrap(other, "save")
    assert home.save is other.save
    assert pickle.loads(pickle.dumps(other.save))() == 7
