"""The state record of a run: values that change occasionally, such as totals and events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Literal

from trainvitals.runfile import ABSENT, ALERTS, EVENT_COUNT, EVENTS, SPLITS, STATE, State
from trainvitals.runfile.codec import clean_metric_name
from trainvitals.training.losses import EvaluationWatch
from trainvitals.training.recorder import Recorder

Nonfinite = Literal["loss", "gradient", "evaluation"]

# Values with these names have a dedicated word, regardless of their source.
_OWN_WORDS = {
    "val_loss": "validation_loss",
    "validation_loss": "validation_loss",
    "eval_loss": "validation_loss",
    "val_accuracy": "validation_accuracy",
    "val_acc": "validation_accuracy",
    "validation_accuracy": "validation_accuracy",
    "eval_accuracy": "validation_accuracy",
}
_COUNTED_FROM_ZERO = (
    "nonfinite_gradients",
    "nonfinite_evaluations",
    "data_errors",
    "evaluations",
    "checkpoints",
    "loss_spikes",
    "dropped_names",
    "alerts",
    "names",
    "deviations",
)
_MOST_PLACES = 1024  # a program may use new names on every step
_SPLIT_OF = {"val": 2, "valid": 2, "validation": 2, "eval": 2, "test": 3, "train": 1}


class Journal:
    """A writer of the state record of a run; the record also contains the last eight events.

    Args:
        recorder: The recorder of the run file.
        clock: A clock that returns Unix time in seconds.
        watch: The name of the value by which evaluations are compared to find improvements.
        watch_mode: "min" if a smaller value is better, "max" if a larger value is better.

    Attributes:
        is_dirty: Whether a word of the record may have changed since the last `publish`.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        watch: str,
        watch_mode: Literal["min", "max"],
    ) -> None:
        self._recorder = recorder
        self._words = recorder.state.words
        self._clock = clock
        self._watch = _name_watched(watch)
        self._evaluations = EvaluationWatch(watch_mode)
        self._events = 0
        self._places: dict[tuple[str, str | None], int | None] = {}
        self.is_dirty = True
        for name in _COUNTED_FROM_ZERO:
            self.set(name, 0.0)
        self.set_state(State.RUNNING)

    def set(self, name: str, value: float | None) -> None:
        """Set a word of the state record; None marks the word as unknown."""
        self._words[STATE[name]] = ABSENT if value is None else value
        self.is_dirty = True

    def get(self, name: str) -> float | None:
        """Return the value of a word of the state record; None if the value is unknown."""
        value = self._words[STATE[name]]
        return None if value == ABSENT else value

    def add(self, name: str, number: float = 1.0) -> None:
        """Add a number to a word of the state record that is a counter."""
        self._words[STATE[name]] += number
        self.is_dirty = True

    def raise_to(self, name: str, value: float) -> None:
        """Set a word of the state record to a value, unless its current value is larger."""
        self.set(name, max(value, self._words[STATE[name]]))

    def note(self, event: str, value: float = 0.0) -> None:
        """Add an event to the list of the last eight events."""
        slot = self._events % EVENT_COUNT
        self._events += 1
        self.set(f"event_time_{slot}", self._clock())
        self.set(f"event_code_{slot}", EVENTS.index(event))
        self.set(f"event_value_{slot}", value)

    def set_state(self, state: State) -> None:
        """Record the state of the run, such as running or failed."""
        self.set("state", float(state))
        self.set("state_time", self._clock())

    def log(self, values: Iterable[tuple[str, float]], split: str | None) -> None:
        """Record named values in the words of a run file.

        A value whose name has no dedicated word is recorded as a user-defined metric. Its name is
        cut to 62 bytes. If the table of names is full, values with new names are dropped and
        counted.
        """
        for name, value in values:
            word = _OWN_WORDS.get(f"{split}_{name}" if split else name)
            if word is None and split == "validation":
                word = _OWN_WORDS.get(name)
            if word is not None:
                self.set(word, value)
            else:
                self._log_free(name, value, split)

    def log_evaluation(self, values: Iterable[tuple[str, float]]) -> None:
        """Record the values of a finished evaluation, and whether it is the best so far."""
        self.add("evaluations")
        self.note("validation", self.get("evaluations") or 0.0)
        self.log_evaluated(values)

    def log_evaluated(self, values: Iterable[tuple[str, float]]) -> None:
        """Record further values of the evaluation that was recorded last."""
        for name, value in values:
            self.log(((name, value),), "validation")
            if not math.isfinite(value):
                self.count_nonfinite("evaluation")
            if _name_watched(name) == self._watch:
                self._evaluations.see(value)
                self.set("best_evaluation", self._evaluations.best)
                self.set("evaluations_since_improvement", self._evaluations.since_improvement)

    def count_nonfinite(self, what: Nonfinite) -> None:
        """Record a NaN or infinite value; the step record counts NaN and infinite losses."""
        if what != "loss":
            self.add("nonfinite_gradients" if what == "gradient" else "nonfinite_evaluations")
        last = self.get("last_nonfinite_time")
        now = self._clock()
        self.set("last_nonfinite_time", now)
        if last is None or now - last > 1.0:  # a diverged run must not fill the list of events
            self.note("nonfinite")

    def note_oom(self) -> None:
        """Record an out-of-memory error of the accelerator."""
        self.set("last_oom_time", self._clock())
        self.note("oom")

    def set_alert(self, name: str, *, is_active: bool) -> bool:
        """Raise or clear one of `ALERTS`; return whether the alert's state has changed."""
        bit = 1 << ALERTS.index(name)
        before = int(self.get("alerts") or 0)
        after = before | bit if is_active else before & ~bit
        if after != before:
            self.set("alerts", float(after))
            if is_active:
                self.note("alert", float(ALERTS.index(name)))
        return after != before

    def publish(self, now: float, wall_time: float) -> None:
        """Make the current state record visible to readers of the run file."""
        self.is_dirty = False
        self._recorder.state.publish(now, wall_time)

    def _log_free(self, name: str, value: float, split: str | None) -> None:
        key = (name, split)
        if key in self._places:
            place = self._places[key]
        else:
            place = self._find_place(name, split)
            if len(self._places) < _MOST_PLACES:
                self._places[key] = place
        if place is None:
            self.add("dropped_names")
            return
        self._words[place] = value
        self.is_dirty = True

    def _find_place(self, name: str, split: str | None) -> int | None:
        """Return the index of a user-defined metric's word; None if the table of names is full."""
        clean = clean_metric_name(name)
        number = self._recorder.find_metric(clean, _find_split(clean, split))
        self.set("names", self._recorder.name_count)
        return None if number is None else STATE[f"metric_{number}"]


def _find_split(name: str, split: str | None) -> str:
    if split is not None:
        return split if split in SPLITS else SPLITS[_SPLIT_OF.get(split, 0)]
    prefix = name.replace("/", "_").partition("_")[0]
    return SPLITS[_SPLIT_OF.get(prefix, 0)]


def _name_watched(name: str) -> str:
    """Return a name without an evaluation prefix: `iou` for `val_iou`."""
    prefix, _, rest = name.partition("_")
    return rest if rest and prefix in {"val", "valid", "validation", "eval"} else name
