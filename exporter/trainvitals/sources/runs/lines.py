"""Extract a run's numbers and events from its log lines."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from trainvitals.foreign_numbers import read_count
from trainvitals.runfile.codec import clean_metric_name
from trainvitals.sources.runs.patterns import SLOW_SECONDS, Pattern
from trainvitals.sources.runs.scalars import RunScalars
from trainvitals.sources.runs.taken import NOTHING, Taken
from trainvitals.units import format_duration

_STEP_NAMES = frozenset({"step", "global_step", "iteration", "iter"})
_NONFINITE_NAMES = frozenset({"nonfinite_losses", "number of nan iterations"})
_SILENT_NAMES = _STEP_NAMES | {"v_num"}
# Names with a fixed meaning, regardless of the data set, and the factors that convert their units.
_WORDS: Mapping[str, tuple[str, float]] = {
    "epoch": ("epoch", 1.0),
    "total_steps": ("total_steps", 1.0),
    "total_epochs": ("total_epochs", 1.0),
    "epoch_step": ("epoch_step", 1.0),
    "epoch_steps": ("epoch_steps", 1.0),
    "step_seconds": ("step_seconds", 1.0),
    "step_milliseconds": ("step_seconds", 0.001),
    "elapsed time per iteration (ms)": ("step_seconds", 0.001),
    "elapsed time per iteration (s)": ("step_seconds", 1.0),
}
_LONGEST_NUMBER = 40
# Every repetition is limited: if the text after a long row of digits does not match, the engine
# would otherwise try each split of the digits.
_NUMBER = (
    r"[+-]?(?:\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,40})?"
    r"|(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?"
    r"|[nN]a[nN]|[iI]nf(?:inity)?)"
)
# A name is one to six words that begin with a letter; the number may be in quotes or, as in
# `tensor(0.5)`, in brackets.
_PAIR = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,63}(?: [A-Za-z_(][\w./()@%-]{0,31}){0,5})['\"]?[ ]?[:=]\s*"
    rf"['\"]?(?:[A-Za-z][\w.]*\()?({_NUMBER})(%?)(?![\w.:/])"
)
_WHOLE = re.compile(rf"\s*({_NUMBER})\s*(?:(%)\s*)?")


class LineReader:
    """Collects the numbers and events in one run's log lines.

    Attributes:
        scalars: The numbers that were collected for the run.
    """

    __slots__ = ("_bar", "_bar_total", "_epoch", "scalars")

    def __init__(self) -> None:
        self.scalars = RunScalars()
        self._epoch: float | None = None
        self._bar: tuple[float, float] | None = None
        self._bar_total: float | None = None

    def mark(self, pattern: Pattern) -> None:
        """Record the event that a pattern marks, after a line has matched the pattern."""
        if pattern.marks == "finished":
            self.scalars.is_finished = True
            self._bar = self._bar_total = None
        elif pattern.marks == "evaluation":
            self.scalars.evaluation_due = True

    def take(
        self, pattern: Pattern, numbers: dict[str, float], pairs: list[tuple[str, float]]
    ) -> None:
        """Record the numbers that were found in a line.

        Args:
            pattern: The pattern that the line matched.
            numbers: The numbers in the pattern's groups, by group name.
            pairs: The names and numbers in the group `pairs`.
        """
        if "bar_step" in numbers:
            self._bar = numbers.pop("bar_step"), numbers.pop("bar_steps", 0.0)
            if self._bar[1] != self._bar_total:
                return  # the unit of the bar is unknown
        self._move(pattern, numbers, pairs)
        record = self.scalars.record_again if pattern.repeats else self.scalars.record
        for name, value in (*numbers.items(), *pairs):
            if not self._take_own(name, value):
                record(name, value, pattern.split)
        if pattern.repeats and pairs:
            self.scalars.evaluation_due = False

    def _take_own(self, name: str, value: float) -> bool:
        """Handle a number whose name has a meaning only in logs; return False for other names."""
        if name in _WORDS:
            word, unit = _WORDS[name]
            self.scalars.set_word(word, value * unit)
        elif name == "steps_per_second":
            if value > 0:
                self.scalars.set_word("step_seconds", 1 / value)
        elif name in _NONFINITE_NAMES:
            self.scalars.count_nonfinite("loss", read_count(value) or 0)
        else:
            return name in _SILENT_NAMES
        return True

    def _move(
        self, pattern: Pattern, numbers: dict[str, float], pairs: list[tuple[str, float]]
    ) -> None:
        """Determine the run's step from a logged step, an epoch or a progress bar."""
        named = dict(pairs)
        if "loss" in named and self._bar and self._bar_total is None and not pattern.repeats:
            self._bar_total = self._bar[1]
        step = next((named[name] for name in _STEP_NAMES if name in named), None)
        step = numbers.get("step", step)
        if step is None:
            step = self._count_steps(pattern, numbers)
        if step is None and self._bar and self._bar[1] == self._bar_total:
            step = self._bar[0]
            self.scalars.set_word("total_steps", self._bar[1])
        count = read_count(step)
        if count is not None:
            self.scalars.move(count)
        if "epoch" in numbers and not pairs and not pattern.repeats:
            self._epoch = numbers["epoch"]  # applies to the lines that follow

    def _count_steps(self, pattern: Pattern, numbers: dict[str, float]) -> float | None:
        done = numbers.get("epoch_step")
        if not done:  # a new progress bar still shows the previous epoch
            return None
        epoch = numbers.get("epoch", self._epoch)
        length = numbers.get("epoch_steps")
        if epoch is None or length is None:
            return done
        return max(0.0, epoch - pattern.first_epoch) * length + done


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
        """Use other patterns from now on."""
        self.complaint: str | None = None
        # The first text is stored separately, because almost no line contains it.
        self._table = [
            (next(iter(pattern.contains), ""), pattern.contains[1:], pattern)
            for pattern in patterns
        ]

    def take(self, line: str, reader_of: Callable[[str], LineReader | None]) -> Taken:
        """Pass a line to the run that it belongs to; ignore a line that no pattern matches.

        Args:
            line: The text of the line, without its line ending.
            reader_of: A function that returns a run's reader, given the run's name; the empty name
                stands for the file's own run.

        Returns:
            The patterns that matched; the reason is empty if no pattern matches.
        """
        taken = NOTHING
        for text, texts, pattern in self._table:
            if text not in line or (texts and not all(more in line for more in texts)):
                continue
            if len(line) > pattern.longest:
                taken = taken.join(Taken(reason=f"too long for pattern {pattern.name}"))
                continue
            started = self._clock()
            match = pattern.regex.search(line)
            if self._clock() - started > SLOW_SECONDS and self._is_slow(pattern, line):
                return taken.join(Taken(reason=self.complaint or ""))
            if match is None:
                continue
            is_last = _deliver(pattern, match.groupdict(), reader_of)
            if is_last or pattern.marks:
                taken = taken.join(Taken(pattern.name, match=match))
            else:
                reason = f"pattern {pattern.name} matches, but no number follows a name"
                taken = taken.join(Taken(reason=reason))
            if is_last:
                break
        return taken

    def _is_slow(self, pattern: Pattern, line: str) -> bool:
        """Return whether a pattern takes too much CPU time for a line, and drop a slow pattern."""
        started = self._cpu_clock()
        pattern.regex.search(line)
        seconds = self._cpu_clock() - started
        if seconds <= SLOW_SECONDS:
            return False
        self._table = [row for row in self._table if row[2] is not pattern]
        self.complaint = (
            f"pattern {pattern.name} took {format_duration(seconds)} for one line and is not used any more; "
            "make its expression simpler and restart"
        )
        return True


def _deliver(
    pattern: Pattern,
    groups: dict[str, str | None],
    reader_of: Callable[[str], LineReader | None],
) -> bool:
    """Pass a match to the run that it belongs to; return whether to skip the remaining patterns."""
    pairs = find_pairs(groups.pop("pairs", None) or "")
    run = groups.pop("run", None) or pattern.run or ""
    numbers: dict[str, float] = {}
    for name, text in groups.items():
        if text is not None and (number := parse_number(text)) is not None:
            numbers[name] = number
    if "pairs" in pattern.regex.groupindex and not pairs and not pattern.repeats:
        return False
    reader = reader_of(clean_metric_name(run) if run else "")
    if reader is None:
        return True
    if pattern.marks:
        reader.mark(pattern)
    reader.take(pattern, numbers, pairs)
    return not pattern.marks


def parse_number(text: str) -> float | None:
    """Return the number in a text; None if the text is not a number.

    A number may contain thousands separators, as in `1,234.5`. The text `12%` means 0.12, and the
    texts `nan` and `inf` also count as numbers.
    """
    match = _WHOLE.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    return _convert(match[1], match[2] or "") if match else None


def find_pairs(text: str) -> list[tuple[str, float]]:
    """Return the pairs of a name and a number in a text such as `loss: 0.5 | acc=91%`."""
    return [
        (name, _convert(number, percent))
        for name, number, percent in _PAIR.findall(text)
        if len(number) <= _LONGEST_NUMBER
    ]


def _convert(number: str, percent: str) -> float:
    value = float(number.replace(",", ""))
    return value / 100 if percent else value
