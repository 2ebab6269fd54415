"""Extract a run's numbers and events from its log lines."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainvitals.foreign_numbers import read_count
from trainvitals.sources.runs.named_numbers import find_pairs, find_spaced_pairs, parse_number
from trainvitals.sources.runs.patterns import Pattern
from trainvitals.sources.runs.scalars import RunScalars
from trainvitals.sources.runs.vocabulary import Split, find_place

Groups = dict[str, "str | None"]

_STEP_NAMES = frozenset({"step", "global_step", "iteration", "iter"})
_SILENT_NAMES = _STEP_NAMES | {"v_num", "eta", "ETA", "max mem", "max_mem"}
# Names with a fixed meaning, regardless of the data set, and the factors that convert their units.
_WORDS: Mapping[str, tuple[str, float]] = {
    "epoch": ("epoch", 1.0),
    "total_steps": ("total_steps", 1.0),
    "total_epochs": ("total_epochs", 1.0),
    "epoch_step": ("epoch_step", 1.0),
    "epoch_steps": ("epoch_steps", 1.0),
    "step_seconds": ("step_seconds", 1.0),
    "step_milliseconds": ("step_seconds", 0.001),
    "step_microseconds": ("step_seconds", 0.000001),
}
_COUNTED_WORDS = frozenset({"epoch", "epoch_step", "epoch_steps", "total_epochs", "total_steps"})
_LINES_OF_EPOCH = 3  # an epoch whose values are not understood counts as several lines
_HEADING_WORDS = frozenset({"epoch", "total_epochs", "last_epoch"})


class LineReader:
    """Collects the numbers and events in one run's log lines.

    Attributes:
        scalars: The numbers that were collected for the run.
    """

    __slots__ = (
        "_bar",
        "_bar_total",
        "_counts_from",
        "_ended_steps",
        "_epoch",
        "_open",
        "_section",
        "_table",
        "scalars",
    )

    def __init__(self) -> None:
        self.scalars = RunScalars()
        self._epoch: float | None = None
        self._bar: tuple[float, float] | None = None
        self._bar_total: float | None = None
        self._counts_from = 1.0
        # The number of steps in the epoch below the last heading; None until this epoch has ended.
        # An evaluation may follow.
        self._ended_steps: float | None = None
        # An epoch of unknown length: its number, the steps before the epoch, and its steps so far.
        self._open: tuple[float, float, float] | None = None
        self._section: Split | None = None
        self._table: tuple[Pattern, list[str]] | None = None

    def mark(self, pattern: Pattern) -> None:
        """Record the event that a pattern marks, after a line has matched the pattern."""
        if pattern.marks == "finished":
            self.scalars.is_finished = True
            self._bar = self._bar_total = None
        elif pattern.marks == "evaluation":
            self.scalars.evaluation_due = True
        elif pattern.marks == "section":
            self._section = pattern.split

    def take(self, pattern: Pattern, groups: Groups) -> bool:
        """Record the numbers in a line that matches a pattern.

        Args:
            pattern: The pattern.
            groups: The texts of the pattern's groups.

        Returns:
            Whether the line contains numbers as the pattern expects.
        """
        if pattern.in_section and not self._section:
            return self._section is not None
        heading, row = groups.pop("heading", None), groups.pop("row", None)
        if heading is not None:
            self._table = pattern, re.split(r"\s{2,64}|\t|\s?\|\s?", heading.strip(" \t|"))
            return True
        if row is not None:
            return self._take_row(pattern, row, groups)
        pairs = _find_pairs(pattern, groups.pop("pairs", None))
        validation = _find_pairs(pattern, groups.pop("validation_pairs", None))
        name = groups.pop("name", None)
        numbers = _find_numbers(pattern, groups)
        if name is not None and "value" in numbers:
            pairs = _rename(pattern, [(name.strip(), numbers.pop("value"))])
        if (
            not pairs
            and not pattern.repeats
            and {"pairs", "name"} & pattern.regex.groupindex.keys()
        ):
            return False
        self._record(pattern, numbers, pairs)
        for name, value in validation:
            self.scalars.record(name, value, "validation")
        return True

    def _take_row(self, row_pattern: Pattern, row: str, groups: Groups) -> bool:
        """Record a row of the table whose heading was read last."""
        if self._table is None:
            return False
        pattern, names = self._table
        cells = row.replace("|", " ").split()
        if len(cells) != len(names):
            names = " ".join(names).split()
            if len(cells) != len(names):
                return False
        numbers = _find_numbers(row_pattern, groups)
        pairs = []
        for name, cell in zip(names, cells, strict=True):
            number = parse_number(cell)
            if number is not None:
                pairs.append((name, number))
        self._record(pattern, numbers, _rename(pattern, pairs))
        return bool(pairs)

    def _record(
        self, pattern: Pattern, numbers: dict[str, float], pairs: list[tuple[str, float]]
    ) -> None:
        if "bar_step" in numbers:
            self._bar = numbers.pop("bar_step"), numbers.pop("bar_steps", 0.0)
            if self._bar[1] != self._bar_total:
                return  # the unit of the bar is unknown
        if pattern.at_end and numbers.pop("epoch_step", 0) + 1 < numbers.pop("epoch_steps", 0):
            return
        if self._is_of_evaluation(numbers):
            return
        split = pattern.split if not pattern.in_section or self._section is None else self._section
        if split in {"", "train"}:
            self._move(pattern, numbers, pairs)
        else:
            pairs = [(name, value) for name, value in pairs if name not in _COUNTED_WORDS]
            self._move_to(_find_step(numbers, pairs))
        shown = numbers.pop("shown_epochs", None)
        if shown is not None:  # the number of the last epoch
            numbers["total_epochs"] = shown + 1 - self._find_first(pattern)
        record = self.scalars.record_again if pattern.repeats else self.scalars.record
        for name, value in (*numbers.items(), *pairs):
            if not self._take_own(name, value, split):
                record(name, value, split)
        if pattern.repeats and pairs:
            self.scalars.evaluation_due = False

    def _is_of_evaluation(self, numbers: Mapping[str, float]) -> bool:
        """Return whether a line is about an evaluation, which has a different number of steps."""
        steps = numbers.get("epoch_steps")
        if steps is None or self._epoch is None or "epoch" in numbers:
            return False
        if self._ended_steps not in {None, steps}:
            return True
        if numbers.get("epoch_step") == steps:
            self._ended_steps = steps
        return False

    def _take_own(self, name: str, value: float, split: Split) -> bool:
        """Handle a number whose name has a meaning only in logs; return False for other names."""
        is_training = split in {"", "train"}
        if name in _WORDS:
            word, unit = _WORDS[name]
            if is_training or word == "epoch":
                self.scalars.set_word(word, value * unit)
        elif name == "steps_per_second":
            if value > 0 and is_training:
                self.scalars.set_word("step_seconds", 1 / value)
        elif name == "last_epoch":
            self.scalars.set_word("total_epochs", value + 1)
        elif name == "nonfinite_losses":
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
        if 0.0 in {numbers.get("epoch"), named.get("epoch")}:
            self._counts_from = 0.0
        step = _find_step(numbers, pairs)
        if step is None:
            step = self._count_steps(pattern, numbers)
        if step is None and self._bar and self._bar[1] == self._bar_total:
            step = self._bar[0]
            self.scalars.set_word("total_steps", self._bar[1])
        self._move_to(step)
        if "epoch" in numbers and numbers.keys() <= _HEADING_WORDS and not pairs:
            self._epoch = numbers["epoch"]  # applies to the lines that follow
            self._ended_steps = None
            self.scalars.miss(_LINES_OF_EPOCH)

    def _move_to(self, step: float | None) -> None:
        count = read_count(step)
        if count is not None:
            self.scalars.move(count)

    def _count_steps(self, pattern: Pattern, numbers: dict[str, float]) -> float | None:
        done = numbers.get("epoch_step")
        if done is None or (done == 0 and pattern.repeats):
            return None  # a new progress bar still shows the previous epoch
        epoch = numbers.get("epoch", self._epoch)
        length = numbers.get("epoch_steps")
        if epoch is None:
            return done
        first = self._find_first(pattern)
        if length is not None:
            return max(0.0, epoch - first) * length + done
        return self._count_open(epoch, first, done) if pattern.repeats else None

    def _find_first(self, pattern: Pattern) -> float:
        return self._counts_from if pattern.first_epoch is None else float(pattern.first_epoch)

    def _count_open(self, epoch: float, first: float, done: float) -> float | None:
        """Return the step in an epoch of unknown length; None if an earlier epoch was not read."""
        before = 0.0 if epoch == first else None
        if self._open is not None and before is None:
            last, start, steps = self._open
            before = start if epoch == last else start + steps if epoch == last + 1 else None
        if before is None:
            return None
        self._open = epoch, before, done
        return before + done


def _find_step(numbers: dict[str, float], pairs: list[tuple[str, float]]) -> float | None:
    named = dict(pairs)
    step = next((named[name] for name in _STEP_NAMES if name in named), None)
    return numbers.get("step", step)


def _find_numbers(pattern: Pattern, groups: Groups) -> dict[str, float]:
    """Return the numbers in the groups of a pattern's match, by group name."""
    numbers: dict[str, float] = {}
    for name, text in groups.items():
        if text is not None and (number := parse_number(text)) is not None:
            numbers[name] = number
    return dict(_rename(pattern, list(numbers.items())))


def _find_pairs(pattern: Pattern, text: str | None) -> list[tuple[str, float]]:
    """Return the name-number pairs in a text, with the names that the pattern maps them to."""
    if not text:
        return []
    pairs = _rename(pattern, find_pairs(text))
    if pattern.spaced:
        known = {name for name, _ in pairs}
        for name, value in _rename(pattern, find_spaced_pairs(text)):
            if name not in known and _is_known(name):
                known.add(name)
                pairs.append((name, value))
    return pairs


def _rename(pattern: Pattern, pairs: list[tuple[str, float]]) -> list[tuple[str, float]]:
    fields = pattern.fields
    if not fields:
        return pairs
    named = ((fields.get(name, name), value) for name, value in pairs)
    return [
        (name.rstrip("%"), value / 100 if name.endswith("%") else value)
        for name, value in named
        if name
    ]


def _is_known(name: str) -> bool:
    return (
        name in _WORDS
        or name in _STEP_NAMES
        or name == "steps_per_second"
        or find_place(name).word is not None
    )
