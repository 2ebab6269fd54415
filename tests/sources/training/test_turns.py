"""How much work followed files get."""

from __future__ import annotations

import math

from trainvitals.sources.training.turns import Turns


class Clock:
    """A time that a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def take(turns: Turns[str], clock: Clock, seconds: float, deadline: float = math.inf) -> str:
    """Give each turn so many seconds, and tell who had one."""
    taken = ""
    for item in turns.take("abcd", deadline):
        taken += item
        clock.now += seconds
    return taken


def test_everyone_has_a_turn_when_there_is_time():
    """In order, again and again."""
    clock = Clock()
    turns: Turns[str] = Turns(monotonic=clock)
    assert [take(turns, clock, 0.01) for _ in range(2)] == ["abcd", "abcd"]
    assert list(turns.take((), math.inf)) == []


def test_who_was_not_reached_is_first_the_next_time():
    """A quarter of a second is shared."""
    clock = Clock()
    turns: Turns[str] = Turns(monotonic=clock)
    assert [take(turns, clock, 0.125) for _ in range(3)] == ["ab", "cd", "ab"]
    assert [take(turns, clock, 9.0) for _ in range(3)] == ["c", "d", "a"]


def test_the_deadline_is_kept():
    """One has its turn even when it has passed."""
    clock = Clock()
    turns: Turns[str] = Turns(monotonic=clock)
    assert take(turns, clock, 0.01, clock.now + 0.075) == "abc"
    assert take(turns, clock, 0.01, clock.now - 1) == "d"


def test_searches_are_as_rare_as_they_are_slow():
    """Two seconds apart, or twenty times as long as one took."""
    clock = Clock()
    turns: Turns[str] = Turns(monotonic=clock)
    assert turns.is_search_due()
    with turns.searching():
        clock.now += 0.01
    clock.now += 1.5
    assert not turns.is_search_due()
    clock.now += 1.0
    assert turns.is_search_due()
    with turns.searching():
        clock.now += 1.0
    clock.now += 19.0
    assert not turns.is_search_due()
    clock.now += 1.5
    assert turns.is_search_due()
