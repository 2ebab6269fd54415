"""Count the ways in which a regular expression can match one text, apart from its repeats.

A search tries all of these ways: `a?a?a?b` has eight ways to match the letters before a missing
`b`, and each additional `a?` doubles the number of ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainvitals.sources.runs.automaton import START, Automaton

_MOST_WAYS = 1 << 20
_MOST_SETS = 5000
_Counts = Mapping[int, int]  # the number of paths to each place


def count_ways(automaton: Automaton) -> float:
    """Return the maximum number of paths by which an automaton matches one text.

    For each character of the text, one path is not counted, because a single path is unambiguous.
    Each path passes through each repeat at most once. The number of paths may be overestimated but
    is never underestimated; infinity is returned if the number exceeds 2^20.

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
            for after in _follow(automaton, before):
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


def _follow(automaton: Automaton, before: _Counts) -> Iterator[_Counts]:
    """Yield the number of paths to each place after each kind of next character."""
    ahead: dict[int, int] = {}
    for place, count in before.items():
        for end in () if place in automaton.sure else automaton.edges[place]:
            if end > place:  # not back to the beginning of a repeat
                ahead[end] = ahead.get(end, 0) + count
    kinds = {
        tuple(place for place in ahead if automaton.taken[place] >> bit & 1)
        for bit in range(len(automaton.characters))
    }
    for places in kinds - {()}:
        yield {place: ahead[place] for place in places}
