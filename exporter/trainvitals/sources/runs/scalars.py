"""The state of a run without the training client, read from the run's event files or log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainvitals.foreign_numbers import LATEST_TIME, bound_value, read_count, read_time
from trainvitals.foreign_text import clean_label
from trainvitals.runfile import MOST_METRICS
from trainvitals.sources.runs.vocabulary import Place, Split, What, find_place

Source = Literal["tensorboard", "log", "csv", "json", "mlflow"]
_MOST_NAMES, _LONGEST_NAME = 1024, 512  # a tag may be a megabyte long
_MOST_RUN_CHARACTERS = 128
_FEW_LINES = 4
_EVALUATED: Mapping[str, int] = {"validation_loss": -1, "validation_accuracy": 1}


@dataclass(frozen=True, slots=True)
class FoundRun:
    """The state of a run, as read from the run's event files or log.

    Attributes:
        run: The name of the run: the path below the configured directory, or the part of the log's
            path that begins at the glob's first wildcard. Unprintable characters are replaced with
            `_`, and only the last 128 characters are kept.
        source: The kind of source from which the run was read: an event file, a log, a CSV file, a
            JSON file, or an MLflow folder.
        path: The path of the run's newest event file, or of the log file.
        started_time: The time when the first event was written or the MLflow run started, in Unix
            seconds; None for a log.
        last_time: The time when the last event was written, or when the log was last written to, in
            Unix seconds.
        step: The optimizer's step count as logged; None if the step count was not logged.
        epoch: The epoch as logged, which may be a fraction; None if the epoch was not logged.
        values: The words of a run file by name (`loss`, `validation_loss`, `learning_rate`,
            `step_seconds`, `total_steps`, `epoch_step` ...) and `samples_per_second`. A value that
            was logged as NaN or infinite stays NaN or infinite.
        metrics: All other numbers, by name as logged and by data set (`train`, `validation`,
            `test`, or empty if the name does not show the data set).
        nonfinite: The number of values that were NaN or infinite, by the kind of value: `loss`,
            `gradient` or `evaluation`.
        evaluations: The number of validation losses that were logged. If no validation loss was
            logged, validation accuracies are counted instead.
        evaluations_since_improvement: The number of evaluations since the evaluation with the best
            value; 0 if the last evaluation is the best; None before the first evaluation.
        steps_seen: The number of steps by which the run advanced while its files were read. The
            number never decreases: steps that are repeated after a resume are counted again.
        is_finished: Whether the end of the run was logged; None if the end was not logged.
        omitted: The number of metrics and overlong lines that were left out because of the limits.
        is_named: Whether a flag names the run's files.
        holders: The PIDs of the processes that hold accelerators and write the run's files.
        place: The working directory of the processes in `holders`; empty if there are none.
    """

    run: str
    source: Source
    path: str
    started_time: float | None
    last_time: float
    step: int | None
    epoch: float | None
    values: Mapping[str, float]
    metrics: Mapping[tuple[str, Split], float]
    nonfinite: Mapping[What, int]
    evaluations: int
    evaluations_since_improvement: int | None
    steps_seen: int
    is_finished: bool | None
    omitted: int
    is_named: bool = True
    holders: tuple[int, ...] = ()
    place: str = ""


class _Freshness:
    """Determines whether a value is outdated by counting later lines that were not understood.

    A log may continue in a format that no pattern matches, so that the last value is no longer
    current. The limit on lines that were not understood depends on the largest number of such lines
    between two earlier values.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self) -> None:
        self._seen = self._most = 0

    def renew(self, missed: int) -> None:
        """Record that the value was logged.

        Args:
            missed: The number of lines so far that were not understood.
        """
        self._most = max(self._most, missed - self._seen)
        self._seen = missed

    def is_over(self, missed: int) -> bool:
        """Return whether the value is no longer current.

        Args:
            missed: The number of lines so far that were not understood.
        """
        return missed - self._seen > _FEW_LINES + 2 * self._most


class _Slot:
    """The last value logged under one name, with the best value and count of its evaluations."""

    __slots__ = (
        "best",
        "count",
        "direction",
        "evaluations",
        "freshness",
        "place",
        "since",
        "step",
        "value",
    )

    def __init__(self, place: Place) -> None:
        self.place = place
        self.value = math.nan
        self.freshness = _Freshness()
        self.count = 0
        self.step: int | None = None
        self.direction = _EVALUATED.get(place.word or "", 0)
        self.evaluations = 0
        self.since = 0
        self.best = -math.inf

    def evaluate(self, value: float) -> None:
        """Record the value from one evaluation."""
        self.evaluations += 1
        self.since += 1
        if value * self.direction > self.best:
            self.best = value * self.direction
            self.since = 0


class RunScalars:
    """Collects the numbers that one run logs.

    Attributes:
        evaluation_due: Whether an evaluation has just ended, so that the next value counts as a new
            value even if it equals the previous value.
        is_finished: Whether the end of the run was logged; None if the end was not logged.
    """

    def __init__(self) -> None:
        self.evaluation_due = False
        self.is_finished: bool | None = None
        self._slots: dict[tuple[str, Split], _Slot] = {}
        self._owners: dict[str, _Slot] = {}
        self._nonfinite: dict[What, int] = {"loss": 0, "gradient": 0, "evaluation": 0}
        self._words: dict[str, float] = {}
        self._word_freshness: dict[str, _Freshness] = {}
        self._step_freshness = _Freshness()
        self._missed = 0
        self._overlong = 0
        self._crowded = False
        self._leader: object = None
        self._step: int | None = None
        self._step_time = 0.0
        self._step_seconds: float | None = None
        self._steps_seen = 0
        self._resumed = True

    @property
    def is_empty(self) -> bool:
        """Whether no number of the run was recorded."""
        return not (self._slots or self._words)

    @property
    def step(self) -> int | None:
        """The run's step count; None if the step count was not logged."""
        return self._step

    def record(self, name: str, value: float, split: Split = "") -> None:
        """Record a number that the run has just logged."""
        slot = self._slots.get((name, split)) or self._make_slot(name, split)
        if slot is not None:
            self._put(slot, value)

    def record_event(self, name: str, value: float, split: Split, step: int, time: float) -> None:
        """Record a number from an event file, with the step and the time of the number.

        Numbers with different names may count different steps, such as batches and epochs. The
        run's step is taken from the name with the highest step, even if that name's step decreases.
        """
        slot = self._slots.get((name, split)) or self._make_slot(name, split)
        if slot is None:
            return
        if step != self._step and (
            self._step is None or self._resumed or step > self._step or slot is self._leader
        ):
            self._leader = slot
            self.move(step, time)
        self._put(slot, value)

    def record_again(self, name: str, value: float, split: Split = "") -> None:
        """Record a number from a progress bar, which shows a number until there is a new number.

        A number is new if it differs from the previous number. An equal number from an evaluation
        is new if `evaluation_due` is set; any other equal number is new if the step differs.
        """
        slot = self._slots.get((name, split))
        if slot is not None:
            same = slot.value == value or (math.isnan(value) and math.isnan(slot.value))
            evaluated = slot.place.what == "evaluation"
            if same:
                slot.freshness.renew(self._missed)
            if same and (not self.evaluation_due if evaluated else slot.step == self._step):
                return
        self.record(name, value, split)

    def set_word(self, word: str, value: float) -> None:
        """Record the value of a word for which no name is logged, such as `total_steps`."""
        self._words[word] = bound_value(value)
        self._word_freshness.setdefault(word, _Freshness()).renew(self._missed)

    def move(self, step: int, time: float | None = None) -> None:
        """Record the run's step, and the Unix time of the step if the time is known.

        A number that cannot be a step is ignored.
        """
        if read_count(step) is None:
            return
        self._step_freshness.renew(self._missed)
        before, self._step = self._step, step
        if before is not None and step > before and not self._resumed:
            self._steps_seen += step - before
            self.is_finished = None
            if time is not None and LATEST_TIME > time > self._step_time > 0:
                self._step_seconds = (time - self._step_time) / (step - before)
        self._resumed = False
        self._step_time = read_time(time) or 0.0

    def resume(self) -> None:
        """Begin another attempt of the run; the first step of the attempt may be any number."""
        self._resumed = True

    def count_nonfinite(self, what: What, count: int = 1) -> None:
        """Count values of one kind that were NaN or infinite."""
        self._nonfinite[what] += count

    def miss(self, lines: int = 1) -> None:
        """Count lines that are about training but whose numbers were not understood."""
        self._missed += lines

    def count_overlong(self) -> None:
        """Count a log line that was too long to be read."""
        self._overlong += 1

    def describe(
        self, run: str, source: Source, path: str, *, started_time: float | None, last_time: float
    ) -> FoundRun:
        """Return the current state of the run."""
        values = self._gather_words()
        epoch = values.pop("epoch", None)
        metrics, left_out = self._gather_metrics()
        loss = self._owners.get("validation_loss")
        evaluated = loss or self._owners.get("validation_accuracy")
        return FoundRun(
            # Bytes that are not text are replaced with one character. A backtick would end the
            # quotes around the name in dashboard queries.
            run=clean_label(run[-_MOST_RUN_CHARACTERS:], forbidden="`"),
            source=source,
            path=path,
            started_time=started_time,
            last_time=last_time,
            step=None if self._step_freshness.is_over(self._missed) else self._step,
            epoch=epoch,
            values=values,
            metrics=metrics,
            nonfinite=dict(self._nonfinite),
            evaluations=evaluated.evaluations if evaluated else 0,
            evaluations_since_improvement=evaluated.since if evaluated else None,
            steps_seen=self._steps_seen,
            is_finished=self.is_finished,
            omitted=left_out + self._overlong,
        )

    def _gather_words(self) -> dict[str, float]:
        missed = self._missed
        values = {
            word: slot.value
            for word, slot in self._owners.items()
            if not slot.freshness.is_over(missed)
        }
        values |= {
            word: value
            for word, value in self._words.items()
            if not self._word_freshness[word].is_over(missed)
        }
        if self._step_seconds is not None:
            values.setdefault("step_seconds", self._step_seconds)
        batch = values.pop("batch_size", None)
        seconds = values.get("step_seconds")
        if batch and seconds and batch > 0 and seconds > 0:
            values.setdefault("samples_per_second", batch / seconds)
        return values

    def _gather_metrics(self) -> tuple[dict[tuple[str, Split], float], int]:
        metrics: dict[tuple[str, Split], float] = {}
        left_out = 1 if self._crowded else 0
        for slot in self._slots.values():
            place = slot.place
            if place.word is not None and self._owners[place.word] is slot:
                continue
            if slot.freshness.is_over(self._missed):
                continue
            key = (place.name, place.split)
            if len(metrics) < MOST_METRICS or key in metrics:
                metrics[key] = slot.value
            else:
                left_out += 1
        return metrics, left_out

    def _make_slot(self, name: str, split: Split) -> _Slot | None:
        if len(self._slots) >= _MOST_NAMES or len(name) > _LONGEST_NAME:
            self._crowded = True
            return None
        place = find_place(name, split)
        slot = self._slots[name, split] = _Slot(place)
        if place.word is not None:
            owner = self._owners.get(place.word)
            if owner is None or place.rank < owner.place.rank:
                self._owners[place.word] = slot
        return slot

    def _choose_owner(self, slot: _Slot) -> None:
        """Use a slot for its word if the word's current slot is outdated or logged less often."""
        word = slot.place.word
        owner = None if word is None else self._owners[word]
        if word is None or owner is None or owner is slot:
            return
        is_equal = owner.place.rank == slot.place.rank and slot.count > owner.count
        if is_equal or owner.freshness.is_over(self._missed):
            self._owners[word] = slot

    def _put(self, slot: _Slot, value: float) -> None:
        slot.value = value = bound_value(value)
        slot.step = self._step
        slot.freshness.renew(self._missed)
        slot.count += 1
        self._choose_owner(slot)
        if slot.direction:
            slot.evaluate(value)
        if value - value != 0.0 and slot.place.what is not None:  # NaN or infinite
            self._nonfinite[slot.place.what] += 1
