"""What a line of a log says about a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from trainvitals.sources.training.pairs import find_pairs, parse_number
from trainvitals.sources.training.patterns import SLOW_SECONDS, Pattern
from trainvitals.sources.training.scalars import RunScalars
from trainvitals.sources.training.vocabulary import clean_name

_STEP_NAMES = frozenset({"step", "global_step", "iteration", "iter"})
_NONFINITE_NAMES = frozenset({"nonfinite_losses", "number of nan iterations"})
_SILENT_NAMES = _STEP_NAMES | {"v_num"}
# Names that are words by themselves, whatever data the line is about, and their units in ours.
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
_LARGEST_STEP = 1e15


class LineReader:
    """Gathers what the lines of one run say.

    Attributes:
        scalars: The numbers.
    """

    __slots__ = ("_bar", "_bar_total", "_epoch", "scalars")

    def __init__(self) -> None:
        self.scalars = RunScalars()
        self._epoch: float | None = None
        self._bar: tuple[float, float] | None = None
        self._bar_total: float | None = None

    def mark(self, pattern: Pattern) -> None:
        """Take what such a line says by being there."""
        if pattern.marks == "finished":
            self.scalars.is_finished = True
            self._bar = self._bar_total = None
        elif pattern.marks == "evaluation":
            self.scalars.evaluation_due = True

    def take(
        self, pattern: Pattern, numbers: dict[str, float], pairs: list[tuple[str, float]]
    ) -> None:
        """Take the numbers of a line.

        Args:
            pattern: What the line matched.
            numbers: The numbers of its groups.
            pairs: The numbers that stood in it with their names.
        """
        if "bar_step" in numbers:
            self._bar = numbers.pop("bar_step"), numbers.pop("bar_steps", 0.0)
            if self._bar[1] != self._bar_total:
                return  # who knows what it counts
        self._move(pattern, numbers, pairs)
        record = self.scalars.record_again if pattern.repeats else self.scalars.record
        for name, value in (*numbers.items(), *pairs):
            if not self._take_own(name, value):
                record(name, value, pattern.split)
        if pattern.repeats and pairs:
            self.scalars.evaluation_due = False

    def _take_own(self, name: str, value: float) -> bool:
        """Take a number whose name has a meaning in lines alone; tell whether it has one."""
        if name in _WORDS:
            word, unit = _WORDS[name]
            self.scalars.set_word(word, value * unit)
        elif name == "steps_per_second":
            if value > 0:
                self.scalars.set_word("step_seconds", 1 / value)
        elif name in _NONFINITE_NAMES:
            if 0 < value < _LARGEST_STEP:
                self.scalars.count_nonfinite("loss", int(value))
        else:
            return name in _SILENT_NAMES
        return True

    def _move(
        self, pattern: Pattern, numbers: dict[str, float], pairs: list[tuple[str, float]]
    ) -> None:
        """Find the run's step: told, or counted from the steps of the epoch or of a bar."""
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
        if step is not None and 0 <= step < _LARGEST_STEP:
            self.scalars.move(int(step))
        if "epoch" in numbers and not pairs and not pattern.repeats:
            self._epoch = numbers["epoch"]  # a headline for the lines that follow

    def _count_steps(self, pattern: Pattern, numbers: dict[str, float]) -> float | None:
        done = numbers.get("epoch_step")
        if not done:  # a bar that has just been drawn still shows the epoch before
            return None
        epoch = numbers.get("epoch", self._epoch)
        length = numbers.get("epoch_steps")
        if epoch is None or length is None:
            return done
        return max(0.0, epoch - pattern.first_epoch) * length + done


class LineMatcher:
    """Finds the pattern that takes a line.

    Args:
        patterns: In the order in which they are tried.
        clock: Tells how long an expression takes.
        cpu_clock: Tells the processor time that it takes, when that seems long.

    Attributes:
        complaint: A pattern that is not used any more, and why; None while all are.
    """

    def __init__(
        self,
        patterns: Sequence[Pattern],
        *,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.complaint: str | None = None
        self._clock = clock
        self._cpu_clock = cpu_clock
        # The first text stands apart: almost every line fails at it.
        self._table = [
            (next(iter(pattern.contains), ""), pattern.contains[1:], pattern)
            for pattern in patterns
        ]

    def take(self, line: str, reader_of: Callable[[str], LineReader | None]) -> None:
        """Give a line to the run that it is about; nothing where no pattern takes it.

        Args:
            line: The line, without its end.
            reader_of: Gives the reader of a run by its name, which is empty for the file's own.
        """
        for text, texts, pattern in self._table:
            if text not in line or (texts and not all(more in line for more in texts)):
                continue
            started = self._clock()
            match = pattern.regex.search(line)
            if self._clock() - started > SLOW_SECONDS and self._is_slow(pattern, line):
                return
            if match is None:
                continue
            groups = match.groupdict()
            if _give(pattern, groups, reader_of):
                return

    def _is_slow(self, pattern: Pattern, line: str) -> bool:
        """Give up a pattern that was slow of itself, and not because the machine was busy."""
        started = self._cpu_clock()
        pattern.regex.search(line)
        seconds = self._cpu_clock() - started
        if seconds <= SLOW_SECONDS:
            return False
        self._table = [row for row in self._table if row[2] is not pattern]
        self.complaint = (
            f"pattern {pattern.name} took {seconds:.1f} s for one line and is not used any more; "
            "make its expression simpler and restart"
        )
        return True


def _give(
    pattern: Pattern,
    groups: dict[str, str | None],
    reader_of: Callable[[str], LineReader | None],
) -> bool:
    """Give a match to its run; tell whether it was all that the line says."""
    pairs = find_pairs(groups.pop("pairs", None) or "")
    run = groups.pop("run", None) or pattern.run or ""
    numbers: dict[str, float] = {}
    for name, text in groups.items():
        if text is not None and (number := parse_number(text)) is not None:
            numbers[name] = number
    if "pairs" in pattern.regex.groupindex and not pairs and not pattern.repeats:
        return False
    reader = reader_of(clean_name(run) if run else "")
    if reader is None:
        return True
    if pattern.marks:
        reader.mark(pattern)
    reader.take(pattern, numbers, pairs)
    return not pattern.marks
