r"""Estimate how long a search may take, from the structure of its regular expression.

Python's `re` engine tries every way to split a text among the parts of an expression. Three
structures allow many ways:

- Within a repeat, a text leads from a place back to that place in two ways, as in `(a+)+`,
  `(a|ab|b)+` or `(\w+\s?)+`. With such a repeat, the time is exponential in the length of the text.
- Two repeats, and the path between the repeats, match the same text, as in `a+.*b`. Each such pair
  of repeats multiplies the time by the length of the text. A search acts as a repeat of any
  character before the expression: `a.*b` contains one such pair, and `\S+.*b` contains two.

- One text leads to a place in several ways without a repeat, as in `a?a?a?` or `(a|aa)(a|aa)`. Each
  part with this structure multiplies the time.

The first two structures are found in the products of the expression's automaton with itself.
Because the automaton is simplified, the time that an expression takes may be overestimated but is
never underestimated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product

from trainvitals.sources.runs.automaton import START, Automaton, read_automaton

# Most expressions contain a few alternatives or optional groups that begin with the same text.
_FEW_WAYS = 64
_MOST_WAYS = 1 << 20
_MOST_SETS = 5000
_Counts = Mapping[int, int]  # the number of paths to each place


def count_steps(regex: re.Pattern[str], *, length: int) -> float:
    """Return the approximate maximum number of steps of a search.

    The result is infinity if the number of steps is exponential in the length of the text.

    Args:
        regex: The regular expression that is searched for.
        length: The length of the searched text, in characters.

    Raises:
        OverflowError: The expression is too long or too ambiguous to be analysed.
    """
    automaton = read_automaton(regex)
    if automaton.is_exponential or (ways := _count_ways(automaton)) == math.inf:
        return math.inf
    after = [_follow(automaton.edges, place) for place in range(len(automaton.edges))]
    loops = {
        frozenset(end for end in ends if place in after[end]) for place, ends in enumerate(after)
    }
    if any(automaton.is_ambiguous(loop) for loop in loops):
        return math.inf

    # Loops that always end in a match need no backtracking.
    left = [loop for loop in loops if loop and not loop <= automaton.sure]

    def count_times(loop: frozenset[int]) -> int:
        return min(max(automaton.times[place] for place in loop), length)

    @cache
    def count_after(loop: frozenset[int]) -> int:
        """Return the factor by which the loops after a loop multiply the number of steps."""
        later = (other for other in left if other != loop and other <= after[min(loop)])
        return max(
            (
                count_after(other) * (count_times(other) if _overlap(automaton, loop, other) else 1)
                for other in later
            ),
            default=1,
        )

    steps = max((count_times(loop) * count_after(loop) for loop in left), default=length)
    return steps * (ways if ways > _FEW_WAYS else 1)


def _follow(edges: Sequence[Sequence[int]], place: int) -> set[int]:
    """Return the places that can be reached from a place, directly or indirectly."""
    after: set[int] = set()
    ends = [place]
    while ends:
        new = set(edges[ends.pop()]) - after
        after |= new
        ends += new
    return after


def _overlap(automaton: Automaton, loop: frozenset[int], other: frozenset[int]) -> bool:
    """Return whether two loops, and the path from one to the other, match the same text."""
    within = (loop, range(len(automaton.edges)), other)
    return any(
        (place, end, end) in automaton.reach((place, place, end), *within)
        for place, end in product(loop, other)
    )


def _count_ways(automaton: Automaton) -> float:
    """Return the maximum number of paths by which an automaton matches one text.

    A search tries all of these paths. For example, `a?a?a?b` has eight ways to match the letters
    before a missing `b`, and each additional `a?` doubles the number of ways.

    The paths are counted after each character of the text, without the first path. A path does not
    return to the beginning of a repeat. The number of paths may be overestimated but is never
    underestimated. The result is infinity if the number exceeds 2^20.

    Raises:
        OverflowError: The expression has too many combinations of places.
    """
    counts: dict[frozenset[int], _Counts] = {frozenset({START}): {START: 1}}
    most = {frozenset({START}): 0}
    result, left = 0, _MOST_SETS
    while counts:
        further: dict[frozenset[int], _Counts] = {}
        totals: dict[frozenset[int], int] = {}
        for places, before in counts.items():
            for after in _follow_counts(automaton, before):
                left -= 1
                key = frozenset(after)
                totals[key] = max(totals.get(key, 0), most[places] + sum(after.values()) - 1)
                other = further.get(key, {})
                further[key] = {
                    each: max(count, other.get(each, 0)) for each, count in after.items()
                }
        if left < 0:
            raise OverflowError("it can match a text in too many different ways")
        counts, most = further, totals
        result = max([result, *totals.values()])
        if result > _MOST_WAYS:
            return math.inf
    return result


def _follow_counts(automaton: Automaton, before: _Counts) -> Iterator[_Counts]:
    """Yield the number of paths to each place, for each kind of character that may come next."""
    ahead: dict[int, int] = {}
    for place, count in before.items():
        for end in () if place in automaton.sure else automaton.edges[place]:
            if end > place:  # a path does not return to the beginning of a repeat
                ahead[end] = ahead.get(end, 0) + count
    kinds = {
        tuple(place for place in ahead if automaton.taken[place] >> bit & 1)
        for bit in range(len(automaton.characters))
    }
    for places in kinds - {()}:
        yield {place: ahead[place] for place in places}
