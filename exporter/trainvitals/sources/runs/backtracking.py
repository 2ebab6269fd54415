r"""How much time a regular expression may take, from its structure alone.

Python's engine tries every way to split a text among the repeats of an expression. Two structures
offer many ways:

- Within a repeat, one text leads from a place back to it in two ways, as in `(a+)+`, `(a|ab|b)+` or
  `(\w+\s?)+`. The time is exponential.
- One text is taken by a repeat, leads from it to another, and is taken by that, as in `a+.*b`. Each
  such step multiplies the time by the length of the text. A search is itself a repeat of anything
  before the expression: `a.*b` has one such step, and `\S+.*b` has two.

Both structures are found in the products of the expression's automaton with itself. What the automaton
leaves out makes some expressions count as slower than they are, and none as faster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from itertools import product

from trainvitals.sources.runs.automaton import Automaton, read_automaton


def count_steps(regex: re.Pattern[str], *, length: int) -> float:
    """Return about how many steps a search in a text takes at most; infinite for exponential time.

    Args:
        regex: The expression.
        length: The length of the text, in characters.

    Raises:
        OverflowError: The expression is too long to be judged.
    """
    automaton = read_automaton(regex)
    after = [_follow(automaton.edges, place) for place in range(len(automaton.edges))]
    loops = {
        frozenset(end for end in ends if place in after[end]) for place, ends in enumerate(after)
    }
    if automaton.is_exponential or any(automaton.is_ambiguous(loop) for loop in loops):
        return math.inf

    # Loops that always end in a match need no backtracking.
    left = [loop for loop in loops if loop and not loop <= automaton.sure]

    def count_times(loop: frozenset[int]) -> int:
        return min(max(automaton.times[place] for place in loop), length)

    @cache
    def count_after(loop: frozenset[int]) -> int:
        """Return by how much the loops after one multiply the ways to split a text."""
        later = (other for other in left if other != loop and other <= after[min(loop)])
        return max(
            (
                count_after(other) * (count_times(other) if _overlap(automaton, loop, other) else 1)
                for other in later
            ),
            default=1,
        )

    return max((count_times(loop) * count_after(loop) for loop in left), default=length)


def _follow(edges: Sequence[Sequence[int]], place: int) -> set[int]:
    """Return the places to which one leads, at once or later."""
    after: set[int] = set()
    ends = [place]
    while ends:
        new = set(edges[ends.pop()]) - after
        after |= new
        ends += new
    return after


def _overlap(automaton: Automaton, loop: frozenset[int], other: frozenset[int]) -> bool:
    """Return whether a text is taken by a loop, leads from it to another, and is taken by that."""
    within = (loop, range(len(automaton.edges)), other)
    return any(
        (place, end, end) in automaton.reach((place, place, end), *within)
        for place, end in product(loop, other)
    )
