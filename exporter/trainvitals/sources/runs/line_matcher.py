"""Find the pattern that matches a log line, and pass the line to the run that it belongs to.

First, a few searches for short texts choose the patterns that may match the line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from trainvitals.runfile.codec import clean_metric_name
from trainvitals.sources.runs.lines import Groups, LineReader
from trainvitals.sources.runs.patterns import SLOW_SECONDS, Pattern
from trainvitals.sources.runs.taken import NOTHING, Taken
from trainvitals.units import format_duration

# After a pattern with one of these marks, the other patterns are still tried.
_AND_MORE = frozenset({"finished", "evaluation", "part"})
_LONGEST_MISSED = 1 << 10
_HINTS = ("oss", "poch", "tep", "iter", "Iter", "LOSS", "EPOCH", "STEP")
# Matches a line that seems to be about training. The line is counted if no pattern matches it.
_TRAINING = re.compile(
    r"\b(?:loss|epoch|step|iter|iteration)\b['\"]?[\s:=#\[(]{1,4}\d|\d ?[mun]?s/step\b"
)
_FEW_LETTERS = 3


class LineMatcher:
    """Finds the pattern that matches a log line.

    Args:
        patterns: The patterns in the order in which they are tried.
        clock: A clock, in seconds, that is used to measure how long an expression takes.
        cpu_clock: A function that returns the CPU time, in seconds, which is checked if an
            expression seems slow.

    Attributes:
        complaint: A pattern that is no longer used, with the reason; None if all patterns are used.
    """

    def __init__(
        self,
        patterns: Sequence[Pattern],
        *,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self.use(patterns)

    def use(self, patterns: Sequence[Pattern]) -> None:
        """Replace the patterns."""
        self.complaint: str | None = None
        self._patterns = _Preselection(patterns)

    def take(self, line: str, reader_of: Callable[[str], LineReader | None]) -> Taken:
        """Pass a line to the run that it belongs to.

        A line that no pattern matches is counted if it seems to be about training, and is otherwise
        ignored.

        Args:
            line: The text of the line, without its line ending.
            reader_of: A function that returns a run's reader, given the run's name; the empty name
                stands for the file's own run.

        Returns:
            The names of the patterns that matched; if no pattern matches, the reason is also empty.
        """
        taken = NOTHING
        chosen = self._patterns.choose(line)
        for pattern in chosen:
            for text in pattern.contains:
                if text not in line:
                    break
            else:
                tried, is_last = self._try(pattern, line, reader_of)
                taken = tried if taken is NOTHING else taken.join(tried)
                if is_last:
                    return taken
        if chosen and _is_about_training(line) and (reader := reader_of("")) is not None:
            reader.scalars.miss()
        return taken

    def _try(
        self, pattern: Pattern, line: str, reader_of: Callable[[str], LineReader | None]
    ) -> tuple[Taken, bool]:
        """Return the result of a pattern for a line, and whether to skip the remaining patterns."""
        if len(line) > pattern.longest:
            return Taken(reason=f"too long for pattern {pattern.name}"), False
        started = self._clock()
        match = (pattern.regex.match if pattern.is_anchored else pattern.regex.search)(line)
        if self._clock() - started > SLOW_SECONDS and self._is_slow(pattern, line):
            return Taken(reason=self.complaint or ""), True
        if match is None:
            return NOTHING, False
        is_last = _deliver(pattern, match.groupdict(), reader_of)
        if is_last or pattern.marks:
            return Taken(pattern.name, match=match), is_last
        return Taken(reason=f"pattern {pattern.name} matches, but no number follows a name"), False

    def _is_slow(self, pattern: Pattern, line: str) -> bool:
        """Return whether a pattern takes too much CPU time for a line, and drop a slow pattern."""
        started = self._cpu_clock()
        pattern.regex.search(line)
        seconds = self._cpu_clock() - started
        if seconds <= SLOW_SECONDS:
            return False
        self._patterns = self._patterns.without(pattern)
        self.complaint = (
            f"pattern {pattern.name} took {format_duration(seconds)} for one line and is not used any more; "
            "make its expression simpler and restart"
        )
        return True


def _deliver(
    pattern: Pattern, groups: Groups, reader_of: Callable[[str], LineReader | None]
) -> bool:
    """Pass a match to the run that it belongs to; return whether to skip the remaining patterns."""
    run = groups.pop("run", None) or pattern.run or ""
    reader = reader_of(clean_metric_name(run) if run else "")
    if reader is None:
        return True
    if pattern.marks:
        reader.mark(pattern)
    return reader.take(pattern, groups) and pattern.marks not in _AND_MORE


def _is_about_training(line: str) -> bool:
    for text in _HINTS:  # almost no line contains one of these texts
        if text in line:
            return _TRAINING.search(line[:_LONGEST_MISSED].lower()) is not None
    return False


class _Preselection:
    """Groups patterns by the texts that they require, so that most lines need few searches.

    Few lines of a log are about training, and most patterns require a common text such as `loss`.

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
        """Return the patterns that may match a line, in the order in which they are tried."""
        key = tuple([text for text in self._texts if text in line])
        chosen = self._chosen.get(key)
        if chosen is None:
            wanted = {id(pattern) for pattern in self._always}
            wanted.update(id(pattern) for text in key for pattern in self._groups[text])
            chosen = tuple(pattern for pattern in self._patterns if id(pattern) in wanted)
            self._chosen[key] = chosen
        return chosen

    def without(self, pattern: Pattern) -> _Preselection:
        """Return a preselection of all patterns except the given pattern."""
        return _Preselection([other for other in self._patterns if other is not pattern])


def _group(patterns: Sequence[Pattern]) -> list[tuple[str, list[Pattern]]]:
    """Return texts, each with the patterns that require it; the most frequent text comes first."""
    left = {number for number, pattern in enumerate(patterns) if pattern.contains}
    required = {number: "\n".join(patterns[number].contains) for number in left}
    texts = sorted({text for number in left for text in _choose_texts(patterns[number])})
    members = {text: {number for number in left if text in required[number]} for text in texts}
    groups: list[tuple[str, list[Pattern]]] = []
    while left:
        best = max(members, key=lambda text: len(members[text] & left))
        groups.append((best, [patterns[number] for number in sorted(members[best] & left)]))
        left -= members[best]
    return groups


def _choose_texts(pattern: Pattern) -> tuple[str, ...]:
    """Return the required texts that are rare: the first, and those with at least three letters."""
    rare = (text for text in pattern.contains[1:] if sum(map(str.isalpha, text)) >= _FEW_LETTERS)
    return (pattern.contains[0], *rare)
