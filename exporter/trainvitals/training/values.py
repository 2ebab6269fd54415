"""The values of a run: losses, learning rates and named values, which may be on a device."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping

from trainvitals.runfile import ABSENT, MOST_METRICS, STEP
from trainvitals.training.guard import Errors, guard
from trainvitals.training.journal import Journal
from trainvitals.training.losses import LossWatch
from trainvitals.training.notices import Notices
from trainvitals.training.tensors import Values

_log = logging.getLogger("trainvitals")
LOSS, LEARNING_RATE = STEP["loss"], STEP["learning_rate"]
ACCURACY, GRADIENT_NORM = STEP["accuracy"], STEP["gradient_norm"]
NONFINITE = STEP["nonfinite_losses"]
# The maximum number of bits of a count. It is large enough for any step, and small enough that a
# float64 represents the sum of thousands of counts exactly. A right shift by this number of bits
# also detects negative numbers, because their result is not 0.
COUNT_BITS = 40
_MOST_WAITING = 1000  # values that other threads logged during a step

_STEP_VALUES = {
    "loss": LOSS,
    "accuracy": ACCURACY,
    "acc": ACCURACY,
    "learning_rate": LEARNING_RATE,
    "lr": LEARNING_RATE,
    "gradient_norm": GRADIENT_NORM,
    "grad_norm": GRADIENT_NORM,
}


class ValueRecorder:
    """A recorder of a run's values, which reads values without waiting for a device.

    Attributes:
        errors: The counter of the recorder's internal errors.
    """

    # Access to slots is faster than access to members of a dictionary.
    __slots__ = (
        "_fresh_losses",
        "_inbox",
        "_journal",
        "_late",
        "_loss",
        "_losses",
        "_nonfinite",
        "_notices",
        "_readers",
        "_spikes",
        "_values",
        "_warned",
        "_was_spiking",
        "_words",
    )

    errors: Errors

    def _begin_values(
        self, words: memoryview[float], journal: Journal, notices: Notices | None
    ) -> None:
        self._words, self._journal, self._notices = words, journal, notices
        self._loss = ABSENT
        self._losses = LossWatch()
        self._fresh_losses: list[float] = []
        self._nonfinite = self._spikes = 0
        self._was_spiking = False
        self._values = Values()
        self._readers = {at: Values() for at in _STEP_VALUES.values()}
        self._late: dict[tuple[str, str | None], Values] = {}
        self._warned: set[str] = set()
        self._inbox: deque[tuple[Mapping[str, object], str | None]] = deque(maxlen=_MOST_WAITING)

    @guard
    def _take_count(self, value: object) -> int:
        return self._read_count(value)

    def _read_count(self, value: object) -> int:
        if not getattr(value, "is_cpu", True):
            self._warn_once(f"{type(value).__name__} on a device is no count; pass an int")
            return 0
        number = self._values.read(value)
        if number is None or not 0 <= number < 1 << COUNT_BITS:
            raise ValueError(f"{value!r:.40} is no count; pass an int")
        return int(number)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("training monitor: %s", message)

    @guard
    def _set_word(self, at: int, value: object) -> None:
        """Record a value that may have a type other than float or may still be on a device."""
        number = value if type(value) is float else self._readers[at].read(value)
        if number is None:
            if not hasattr(value, "is_cpu"):
                self._warn_once(
                    f"a value of type {type(value).__name__} cannot be read without waiting; pass a "
                    "float where the loop has one anyway"
                )
            return
        if at == LOSS:
            self._loss = number
            self._fresh_losses.append(number)
            return
        self._words[at] = number
        if at == GRADIENT_NORM and number - number != 0.0:
            self._journal.count_nonfinite("gradient")

    def _review_losses(self) -> None:
        """Check all losses since the last call together, three times as fast as one by one."""
        losses, journal = self._losses, self._journal
        losses.see(*self._fresh_losses)
        self._fresh_losses.clear()
        if losses.nonfinite != self._nonfinite:
            self._words[NONFINITE] += losses.nonfinite - self._nonfinite
            self._nonfinite = losses.nonfinite
            journal.count_nonfinite("loss")
            if self._notices is not None:
                self._notices.send_nonfinite()
        if losses.spikes != self._spikes:
            self._spikes = losses.spikes
            journal.set("loss_spikes", float(losses.spikes))
            journal.note("loss_spike", losses.spike_loss)
            if self._notices is not None:
                self._notices.send_spike(losses.spike_loss)
        if losses.is_spiking is not self._was_spiking:
            self._was_spiking = losses.is_spiking
            journal.set("loss_spike", float(losses.is_spiking))

    @guard
    def _log(self, values: Mapping[str, object], split: str | None) -> None:
        free: list[tuple[str, float]] = []
        for name, value in values.items():
            at = None if split not in {None, "train"} else _STEP_VALUES.get(name)
            if at is not None:
                self._set_word(at, value)
            else:
                free.extend(self._read_named(name, value, split))
        self._journal.log(free, split)

    def _read_named(self, name: str, value: object, split: str | None) -> list[tuple[str, float]]:
        """Return a named value, or an empty list if it is still on a device and is read later."""
        if type(value) is float:
            return [(name, value)]
        reader = self._late.get((name, split), self._values)
        if reader is self._values and not getattr(value, "is_cpu", True):
            if len(self._late) == MOST_METRICS:
                self._journal.add("dropped_names")
                return []
            reader = self._late[name, split] = Values()
        number = reader.read(value)
        return [] if number is None else [(name, number)]

    def _take_late(self) -> None:
        """Record the named values that have arrived from devices since the last call."""
        for at, of_step in self._readers.items():
            number = of_step.poll()
            if number is not None:
                self._set_word(at, number)
        for (name, split), reader in self._late.items():
            number = reader.poll()
            if number is not None:
                if split == "validation":
                    self._journal.log_evaluated(((name, number),))
                else:
                    self._journal.log(((name, number),), split)
