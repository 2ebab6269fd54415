r"""Convert a regular expression to a Glushkov automaton.

The automaton has one place for each character or character class in the expression. Assertions such
as `\b` and lookarounds are ignored, and an atomic group is treated as an ordinary group.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from itertools import chain, product
from operator import and_, contains
from typing import Any

_NEW = sys.version_info >= (3, 11)
_PARSER: Any = import_module("re._parser" if _NEW else "sre_parse")
_COMPILER: Any = import_module("re._compiler" if _NEW else "sre_compile")
_Tree = Any  # a parsed expression: operations with their arguments
Places = tuple[int, ...]

START = 0  # the place before the expression, where a search skips any characters
_USUAL = "a0_ \t\nZ.:\x00\u00e9"  # a character from every category
# Further copies of a repeated part add no structure, unless a text matches them in two ways.
_MOST_COPIES = 3
_MOST_TIMES = 1 << 32
_MOST_PLACES = 500
_MOST_EMPTIES = 64


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a regular expression.

    A place that `first` or `last` lists twice can be reached in two ways.

    Attributes:
        first: The places where a match of the part may begin.
        last: The places where a match of the part may end.
        ways: The number of ways in which the part may match no characters, at most 2.
        sure: The places after which the part matches regardless of the text that follows.
        is_free: Whether the part can match no characters regardless of the text that follows.
        empties: The same number as `ways`, but limited to 64 whenever parts are joined.
    """

    first: Places = ()
    last: Places = ()
    ways: int = 1
    sure: frozenset[int] = frozenset()
    is_free: bool = True
    empties: int = 1


@dataclass(slots=True)
class Automaton:
    """The places of a regular expression and the transitions between the places.

    Attributes:
        characters: The characters with which the expression is tested: some of each kind of
            character that the expression distinguishes.
        taken: The characters that each place matches, as bits.
        times: For each place, the maximum number of times that its repeats match the place.
        edges: For each place, the places that may follow the place. A following place that is
            listed twice can be reached in two ways.
        sure: The places after which the expression matches regardless of the text that follows.
        copies: The product of the minimum counts of the repeats that contain the part that is being
            read.
        is_exponential: Whether the number of ways to split a text is exponential because of repeats
            with a minimum count, or because of parts that can match no characters.
    """

    characters: str
    taken: list[int]
    times: list[int]
    edges: list[list[int]]
    sure: set[int] = field(default_factory=set)
    copies: int = 1
    is_exponential: bool = False

    def read(self, tree: _Tree, flags: int, times: int) -> _Part:
        """Add the places of an expression to the automaton, and return the expression as a part."""
        parts = (self._read_one(operation, flags, times) for operation in tree)
        return reduce(self._join, parts, _Part())

    def _read_one(self, operation: _Tree, flags: int, times: int) -> _Part:
        value = operation[1]
        match str(operation[0]):
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                part = self._add_place(operation, flags, times)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                part = self._repeat(value, flags, times)
            case "SUBPATTERN":
                part = self.read(value[3], (flags | value[1]) & ~value[2], times)
            case "ATOMIC_GROUP":
                part = self.read(value, flags, times)
            case "BRANCH":
                part = _choose(*(self.read(each, flags, times) for each in value[1]))
            case "GROUPREF_EXISTS":
                part = _choose(*(self.read(each or (), flags, times) for each in value[1:]))
            case "ASSERT" | "ASSERT_NOT":
                part = _Part(first=self.read(value[1], flags, times).first, is_free=False)
            case "GROUPREF":  # the text that a group matched, which may be anything
                part = self.read(_PARSER.parse("(?s:.*)"), flags, times)
            case _:  # `^`, `$` or `\b`
                part = _Part(is_free=False)
        return part

    def _add_place(self, operation: _Tree, flags: int, times: int) -> _Part:
        takes = _COMPILER.compile(_PARSER.SubPattern(_PARSER.State(), [operation]), flags).match
        place = len(self.taken)
        if place > _MOST_PLACES:
            raise OverflowError(f"it has more than {_MOST_PLACES} characters with those repeated")
        self.taken.append(sum(1 << bit for bit, each in enumerate(self.characters) if takes(each)))
        self.times.append(times)
        self.edges.append([])
        return _Part((place,), (place,), 0, frozenset({place}), is_free=False, empties=0)

    def _repeat(self, value: _Tree, flags: int, times: int) -> _Part:
        least, most, body = value
        outer, self.copies = self.copies, self.copies * max(least, 1)
        if self.copies > _MOST_COPIES and least > 1 and self._fits_in_two_ways(body, flags):
            self.is_exponential = True
        part = self._repeat_body(least, most, body, flags, times)
        self.copies = outer
        return part

    def _repeat_body(self, least: int, most: int, body: _Tree, flags: int, times: int) -> _Part:
        is_loop = most > max(least, 1)
        within = min(times * most, _MOST_TIMES) if is_loop else times
        copies = range(min(least, _MOST_COPIES) - is_loop)
        whole = reduce(self._join, (self.read(body, flags, within) for _ in copies), _Part())
        if most == least:
            return whole
        last = self.read(body, flags, within)
        if is_loop:
            self._link(last.last, last.first)
        return self._join(whole, last if least else _choose(_Part(), last))

    def _fits_in_two_ways(self, body: _Tree, flags: int) -> bool:
        """Return whether repeats of an expression can match the same text in two ways."""
        trial = Automaton(self.characters, self.taken[:1], [_MOST_TIMES], [[]])
        part = trial.read(body, flags, 1)
        trial._link(part.last, part.first)
        places = frozenset(range(1, len(trial.taken)))
        return bool(places) and (part.ways > 0 or trial.is_ambiguous(places))

    def is_ambiguous(self, loop: frozenset[int]) -> bool:
        """Return whether a text leads from a place in a loop back to the same place in two ways."""
        if any(self.edges[one].count(other) > 1 for one, other in product(loop, loop)):
            return True
        home = (min(loop, default=START),) * 2
        return any(
            one != other and home in self.reach((one, other), loop, loop)
            for one, other in self.reach(home, loop, loop)
        )

    def _join(self, one: _Part, other: _Part) -> _Part:
        self._link(one.last, other.first)
        return _Part(
            one.first + other.first * one.ways,
            other.last + one.last * other.ways,
            min(one.ways * other.ways, 2),
            other.sure | (one.sure if other.is_free else frozenset()),
            one.is_free and other.is_free,
            self._limit_empties(one.empties * other.empties),
        )

    def _limit_empties(self, empties: int) -> int:
        self.is_exponential |= empties > _MOST_EMPTIES
        return min(empties, _MOST_EMPTIES)

    def _link(self, before: Places, after: Places) -> None:
        for one, other in product(before, after):
            if self.edges[one].count(other) < 2:  # noqa: PLR2004 - more than two count as two
                self.edges[one].append(other)

    def reach(self, places: Places, *within: Container[int]) -> set[Places]:
        """Return the places to which the same text can lead from the given places.

        The path from the n-th of the given places stays within the n-th set in `within`.
        """
        reached: set[Places] = set()
        ends = [places]
        while ends:
            new = set(self._follow(ends.pop(), within)) - reached
            reached |= new
            ends += new
        return reached

    def _follow(self, places: Places, within: Sequence[Container[int]]) -> Iterator[Places]:
        for after in product(*(self.edges[place] for place in places)):
            common = reduce(and_, (self.taken[place] for place in after))
            if common and all(map(contains, within, after)):
                yield after


def read_automaton(regex: re.Pattern[str]) -> Automaton:
    """Return the automaton for a regular expression.

    Raises:
        OverflowError: The expression is too long.
    """
    tree = _PARSER.parse(regex.pattern, regex.flags)
    characters = "".join(dict.fromkeys(chain(_USUAL, _list_characters(tree))))
    is_anchored = bool(tree) and str(tree[0][1]).startswith("AT_BEGINNING")
    before = [] if is_anchored else [START]
    automaton = Automaton(characters, [(1 << len(characters)) - 1], [_MOST_TIMES], [before])
    whole = automaton.read(tree, regex.flags, 1)
    before += whole.first
    automaton.sure.update(whole.sure)
    return automaton


def _choose(*parts: _Part) -> _Part:
    return _Part(
        tuple(chain.from_iterable(each.first for each in parts)),
        tuple(chain.from_iterable(each.last for each in parts)),
        min(sum(each.ways for each in parts), 2),
        frozenset().union(*(each.sure for each in parts)),
        any(each.is_free for each in parts),
        sum(each.empties for each in parts),
    )


def _list_characters(tree: _Tree) -> Iterator[str]:
    """Yield the characters that an expression may treat differently from other characters."""
    if isinstance(tree, int):
        near = (code for code in range(tree - 1, tree + 2) if 0 <= code <= sys.maxunicode)
        yield from (each for code in near for each in (chr(code), chr(code).swapcase()[0]))
    elif isinstance(tree, (list, tuple, _PARSER.SubPattern)):
        yield from chain.from_iterable(_list_characters(each) for each in tree)
