"""Choose the patterns that a log line may match, with a few searches for short texts."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.sources.runs.patterns import Pattern

_FEW_LETTERS = 3


class Preselection:
    """Groups patterns by the texts that matching lines contain, so that few searches are required.

    Most lines in a log are not about training, and most patterns share a text such as `loss`.

    Args:
        patterns: The patterns in the order in which they are tried.
    """

    __slots__ = ("_always", "_chosen", "_groups", "_patterns", "_texts")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._always = tuple(pattern for pattern in patterns if not pattern.contains)
        self._groups = dict(_group(patterns))
        self._texts = tuple(self._groups)
        self._chosen: dict[tuple[str, ...], tuple[Pattern, ...]] = {(): self._always}

    def choose(self, line: str) -> Sequence[Pattern]:
        """Return the patterns in all groups whose text a line contains, in their original order."""
        key = tuple([text for text in self._texts if text in line])
        chosen = self._chosen.get(key)
        if chosen is None:
            wanted = {id(pattern) for pattern in self._always}
            wanted.update(id(pattern) for text in key for pattern in self._groups[text])
            chosen = tuple(pattern for pattern in self._patterns if id(pattern) in wanted)
            self._chosen[key] = chosen
        return chosen

    def without(self, pattern: Pattern) -> Preselection:
        """Return a preselection of all patterns except the given pattern."""
        return Preselection([other for other in self._patterns if other is not pattern])


def _group(patterns: Sequence[Pattern]) -> list[tuple[str, list[Pattern]]]:
    """Return each text with the patterns whose lines contain the text, the most frequent first."""
    left = {number for number, pattern in enumerate(patterns) if pattern.contains}
    members: dict[str, set[int]] = {}
    for text in sorted({text for number in left for text in _choose_texts(patterns[number])}):
        members[text] = {
            number for number in left if any(text in each for each in patterns[number].contains)
        }
    groups: list[tuple[str, list[Pattern]]] = []
    while left:
        best = max(members, key=lambda text: len(members[text] & left))
        groups.append((best, [patterns[number] for number in sorted(members[best] & left)]))
        left -= members[best]
    return groups


def _choose_texts(pattern: Pattern) -> tuple[str, ...]:
    """Return a pattern's texts that are rare in other lines: the first, and those with letters."""
    rare = (text for text in pattern.contains[1:] if sum(map(str.isalpha, text)) >= _FEW_LETTERS)
    return (pattern.contains[0], *rare)
