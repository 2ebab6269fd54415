"""The hot half of the training client: what happens on every step.

Each step fills words of the step record and publishes it; what is seldom done stands below.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import SupportsFloat

from trainvitals.runfile import (
    ABSENT,
    BUCKET_BOUNDS,
    COARSE,
    MOST_METRICS,
    PHASE_NAMES,
    STEP,
    Phase,
)
from trainvitals.training.journal import Journal
from trainvitals.training.losses import LossWatch
from trainvitals.training.outer import Errors, guard
from trainvitals.training.recorder import Recorder
from trainvitals.training.tensors import Values
from trainvitals.training.upkeep import Upkeep

_log = logging.getLogger("trainvitals")
_TOTALS_AT = STEP["total_init"]
# Where the total of each phase of a step stands.
_TRAINING_TOTALS = {
    name: _TOTALS_AT + code for code, name in enumerate(PHASE_NAMES) if COARSE[code] == "train"
}
_BUCKETS_AT = STEP["step_bucket_0"]
(_PHASE, _PHASE_START, _PROGRESS, _STEPS, _SAMPLES, _TOKENS, _GLOBAL_STEP, _EPOCH_STEP) = (
    STEP[name] for name in
    ("phase", "phase_start_time", "last_progress_time", "steps", "samples", "tokens", "global_step", "epoch_step")
)  # fmt: skip
(_LOSS, _ACCURACY, _LEARNING_RATE, _GRADIENT_NORM, _LOSS_EMA, _NONFINITE) = (
    STEP[name] for name in
    ("loss", "accuracy", "learning_rate", "gradient_norm", "loss_ema", "nonfinite_losses")
)  # fmt: skip
(_STEP_SECONDS, _SLOWEST, _TRAIN_SECONDS, _OVERHEAD, _ERRORS) = (
    STEP[name] for name in
    ("step_seconds", "slowest_step_seconds", "train_seconds", "overhead_seconds", "errors")
)  # fmt: skip
# Number, the word of the last step's seconds, and that of the total, for the phases that have both.
_SPLIT_TIMES = tuple(
    (index, STEP[f"{name}_seconds"], STEP[f"total_{name}"])
    for index, name in enumerate(("forward", "backward", "optimizer"))
)
_WINDOW = tuple(
    (STEP[f"window_{name}"], STEP[name]) for name in ("train_seconds", "steps", "samples", "tokens")
)
# Plain integers: an enumeration's members are slower to compute with.
_DATA_WAIT, _OTHER = int(Phase.DATA_WAIT), int(Phase.OTHER)
_TICK_SECONDS, _WINDOW_SECONDS = 1.0, 10.0
_SLOWEST_OF = 64
_FROM_ZERO = (
    _STEPS, _SAMPLES, _GLOBAL_STEP, _EPOCH_STEP, _NONFINITE, _TRAIN_SECONDS, _SLOWEST, _OVERHEAD, _ERRORS, *range(_TOTALS_AT, _BUCKETS_AT + len(BUCKET_BOUNDS) + 1),
    *(at for at, _ in _WINDOW),
)  # fmt: skip
# Steps shorter than this are published together; a store to a disk's page may have to wait.
PUBLISH_SECONDS, PUBLISH_ON_DISK_SECONDS = 0.001, 0.5
_STATE_SECONDS = 0.05
_MOST_AT_ONCE = 1 << 40  # far beyond any step, and a float64 counts thousands of them

_STEP_VALUES = {
    "loss": _LOSS,
    "accuracy": _ACCURACY,
    "acc": _ACCURACY,
    "learning_rate": _LEARNING_RATE,
    "lr": _LEARNING_RATE,
    "gradient_norm": _GRADIENT_NORM,
    "grad_norm": _GRADIENT_NORM,
}


class StepRecorder:
    """Keeps the step record of a run and publishes both records.

    Attributes:
        errors: What went wrong inside.
    """

    # Slots are found faster than what stands in a dictionary.
    __slots__ = (
        "_after_step",
        "_clock",
        "_coarse_began",
        "_epoch_counts",
        "_global_before",
        "_inbox",
        "_is_training",
        "_journal",
        "_late",
        "_live",
        "_losses",
        "_monotonic",
        "_nonfinite",
        "_phase_at",
        "_phase_began",
        "_publish_seconds",
        "_readers",
        "_recorder",
        "_row",
        "_samples",
        "_slowest",
        "_slowest_before",
        "_splits_seen",
        "_splits_steps",
        "_step_began",
        "_step_count",
        "_step_seconds",
        "_tick_due",
        "_tokens",
        "_told",
        "_train_seconds",
        "_upkeep",
        "_values",
        "_wall_offset",
        "_was_spiking",
        "_window",
        "_window_began",
        "_words",
    )

    errors: Errors

    def _begin(
        self,
        recorder: Recorder,
        journal: Journal,
        upkeep: Upkeep,
        *,
        publish_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin to record.

        Args:
            recorder: Where the records are written.
            journal: The state record.
            upkeep: What is to be done about once a second.
            publish_seconds: Steps that follow each other faster are published together.
            monotonic: Tells seconds on a clock that never jumps.
            clock: Tells Unix seconds.
        """
        self._recorder, self._journal, self._upkeep = recorder, journal, upkeep
        self._monotonic, self._clock = monotonic, clock
        self._publish_seconds = publish_seconds
        self._row, self._live = recorder.step, recorder.live
        self._words = words = recorder.step.words
        self._losses = LossWatch()
        self._nonfinite = 0
        self._was_spiking = False
        self._values = Values()
        self._readers = {at: Values() for at in _STEP_VALUES.values()}
        self._late: dict[tuple[str, str | None], Values] = {}
        self._told: set[str] = set()
        self._inbox: deque[tuple[Mapping[str, object], str | None]] = deque()
        now = monotonic()
        self._wall_offset = clock() - now
        for at in _FROM_ZERO:
            words[at] = 0.0
        words[_PHASE_START] = words[_PROGRESS] = clock()
        self._phase_at = _TOTALS_AT + Phase.INIT
        words[_PHASE] = float(Phase.INIT)
        self._phase_began = self._coarse_began = self._tick_due = self._window_began = now
        self._is_training = False
        self._after_step = _OTHER
        self._step_count = self._splits_steps = self._samples = self._tokens = 0
        self._global_before = 0
        self._epoch_counts = (0, 0, 0)
        self._step_began = self._step_seconds = self._train_seconds = 0.0
        self._slowest = self._slowest_before = 0.0
        self._splits_seen = [0.0] * len(_SPLIT_TIMES)
        self._window = [0.0] * len(_WINDOW)

    @property
    def _phase_code(self) -> int:
        return self._phase_at - _TOTALS_AT

    # The loop: these two are called on every step and spend nothing on being tidy.

    def mark(self, phase: str) -> None:
        """Say that a phase begins now; the one before it ends.

        Args:
            phase: `data_wait`, `h2d`, `forward`, `backward`, `optimizer` or `other` in a step;
                `validation`, `checkpoint`, `compile` or `idle` outside.
        """
        clock = self._monotonic
        now = clock()
        try:
            at = _TRAINING_TOTALS[phase]
        except (KeyError, TypeError):
            at = 0
        if not at or not self._is_training:
            self._change_phase(now, phase)
            return
        self._words[self._phase_at] += now - self._phase_began
        self._phase_at = at
        self._phase_began = now
        self._after_step = _DATA_WAIT
        live = self._live
        live[0] = now
        live[1] = at - _TOTALS_AT

    def update_batch(  # noqa: C901, PLR0912 - a call fewer on every step
        self,
        batch_size: int,
        sequence_length: int | None = None,
        *,
        loss: SupportsFloat | None = None,
        accuracy: SupportsFloat | None = None,
        learning_rate: SupportsFloat | None = None,
        gradient_norm: SupportsFloat | None = None,
        tokens: int | None = None,
        global_step: int | None = None,
    ) -> None:
        """Say that a step is over.

        A tensor on a device is not waited for: its value is taken when the device has it.

        Args:
            batch_size: How many samples the step took, those of accumulated batches together.
            sequence_length: How many tokens each sample has.
            loss: The loss of the step.
            accuracy: Its accuracy, 0 to 1.
            learning_rate: The learning rate.
            gradient_norm: The norm of the gradients.
            tokens: How many tokens the step took; instead of `sequence_length`.
            global_step: The step's number; one more than the last when None.
        """
        clock = self._monotonic
        now = clock()
        if not self._is_training:
            self._enter_training(now)
        words = self._words
        words[self._phase_at] += now - self._phase_began
        after = self._after_step
        self._phase_at = _TOTALS_AT + after
        self._phase_began = now
        live = self._live
        live[0] = now
        live[1] = after
        self._step_count = count = self._step_count + 1
        if type(batch_size) is not int or not 0 <= batch_size < _MOST_AT_ONCE:
            self._add_counts(batch_size, sequence_length)
        else:
            self._samples += batch_size
            if sequence_length is not None:
                if type(sequence_length) is int and 0 <= sequence_length < _MOST_AT_ONCE:
                    self._tokens += batch_size * sequence_length
                else:
                    self._add_counts(0, None, sequence_length, batch_size)
        if tokens is not None:
            self._add_counts(0, None, tokens)
        if global_step is not None:
            self._set_global_step(global_step)
        began = self._step_began
        self._step_began = now
        if began:
            self._step_seconds = seconds = now - began
            self._train_seconds += seconds
            words[_BUCKETS_AT + bisect_left(BUCKET_BOUNDS, seconds)] += 1.0
            if seconds > self._slowest:
                self._keep_slowest(seconds)
        if loss is not None:
            if type(loss) is float:
                self._take_loss(loss)
            else:
                self._set_word(_LOSS, loss)
        if accuracy is not None:
            self._set_word(_ACCURACY, accuracy)
        if learning_rate is not None:
            self._set_word(_LEARNING_RATE, learning_rate)
        if gradient_norm is not None:
            self._set_word(_GRADIENT_NORM, gradient_norm)
        if now - self._row.published >= self._publish_seconds:
            self._publish(now)
        if not count & (_SLOWEST_OF - 1):
            self._review_steps(now)

    # What is seldom done on a step.

    @guard
    def _enter_training(self, now: float) -> None:
        self._change_phase(now, PHASE_NAMES[self._after_step])
        if self._step_began == now:
            self._step_began = 0.0  # nobody said when this first step began

    @guard
    def _add_counts(
        self, samples: object, sequence_length: object, tokens: object = None, times: int = 1
    ) -> None:
        number = self._read_count(samples)
        self._samples += number
        if sequence_length is not None:
            self._tokens += number * self._read_count(sequence_length)
        if tokens is not None:
            self._tokens += self._read_count(tokens) * times

    def _read_count(self, value: object) -> int:
        if not getattr(value, "is_cpu", True):
            self._tell_once(f"{type(value).__name__} on a device is no count; pass an int")
            return 0
        number = self._values.read(value)
        if number is None or not 0 <= number < _MOST_AT_ONCE:
            raise ValueError(f"{value!r:.40} is no count; pass an int")
        return int(number)

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            _log.warning("training monitor: %s", message)

    @guard
    def _set_global_step(self, step: object) -> None:
        self._global_before = self._read_count(step) - self._step_count

    @guard
    def _change_phase(self, now: float, name: str) -> None:
        if name not in PHASE_NAMES:
            raise ValueError(f"there is no phase {name!r:.40}; there are {', '.join(PHASE_NAMES)}")
        code = PHASE_NAMES.index(name)
        words, journal = self._words, self._journal
        before, after = COARSE[self._phase_code], COARSE[code]
        words[self._phase_at] += now - self._phase_began
        self._phase_at = _TOTALS_AT + code
        self._phase_began = now
        self._live[0] = now
        self._live[1] = code
        if before == after:
            return
        lasted = now - self._coarse_began
        if before in {"validation", "checkpoint"}:
            journal.raise_to(f"longest_{before}_seconds", lasted)
        if before not in {"init", "train"} and self._step_began:
            self._step_began += lasted  # a step's time does not count what interrupts it
        if after == "train" and not self._step_began:
            self._step_began = now
        self._coarse_began = now
        self._is_training = after == "train"
        if name in _TRAINING_TOTALS and name != "other":
            self._after_step = _DATA_WAIT
        words[_PHASE_START] = self._wall_offset + now
        self._publish_all(now)

    def _keep_slowest(self, seconds: float) -> None:
        if self._step_count > 1:  # the first step compiles, and says nothing of those to come
            self._slowest = seconds
            self._words[_SLOWEST] = max(seconds, self._slowest_before)

    def _review_steps(self, began: float) -> None:
        """Forget the slowest of the 64 steps before the last 64; measure what one call costs."""
        words = self._words
        words[_SLOWEST] = max(self._slowest, self._slowest_before)
        self._slowest_before = self._slowest
        self._slowest = 0.0
        words[_OVERHEAD] += (self._monotonic() - began) * _SLOWEST_OF

    @guard
    def _set_word(self, at: int, value: object) -> None:
        """Take a value that may be no float, and may be on a device that does not have it yet."""
        number = value if type(value) is float else self._readers[at].read(value)
        if number is None:
            return
        if at == _LOSS:
            self._take_loss(number)
            return
        self._words[at] = number
        if at == _GRADIENT_NORM and number - number != 0.0:
            self._journal.count_nonfinite("gradient")

    def _take_loss(self, loss: float) -> None:
        losses = self._losses
        self._words[_LOSS] = loss
        losses.see(loss)
        if losses.nonfinite != self._nonfinite or losses.is_spiking is not self._was_spiking:
            self._review_losses()

    def _review_losses(self) -> None:
        losses, journal = self._losses, self._journal
        if losses.nonfinite != self._nonfinite:
            self._words[_NONFINITE] += losses.nonfinite - self._nonfinite
            self._nonfinite = losses.nonfinite
            journal.count_nonfinite("loss")
        if losses.is_spiking is not self._was_spiking:
            self._was_spiking = losses.is_spiking
            journal.set("loss_spike", float(losses.is_spiking))
            journal.set("loss_spikes", float(losses.spikes))
            if losses.is_spiking:
                journal.note("loss_spike", self._words[_LOSS])

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
        """Read a named value; one that a device does not have yet is read in a later second."""
        reader = self._late.get((name, split)) or Values()
        number = reader.read(value)
        if number is None and len(self._late) < MOST_METRICS:
            self._late[name, split] = reader
        return [] if number is None else [(name, number)]

    def _take_late(self) -> None:
        """Take the values that devices have by now."""
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

    def _publish(self, now: float) -> None:
        """Publish the step record, and whatever else is due."""
        words = self._words
        count = self._step_count
        words[_STEPS] = count
        words[_EPOCH_STEP] = count - self._epoch_counts[0]
        words[_GLOBAL_STEP] = self._global_before + count
        words[_SAMPLES] = self._samples if self._samples or not count else ABSENT
        words[_TOKENS] = self._tokens or ABSENT
        words[_TRAIN_SECONDS] = self._train_seconds
        words[_STEP_SECONDS] = self._step_seconds or ABSENT
        words[_PROGRESS] = self._wall_offset + self._phase_began
        self._row.publish(now, self._wall_offset + now)
        if now >= self._tick_due:
            self._tick(now)
        if self._journal.is_dirty and now - self._recorder.state.published >= _STATE_SECONDS:
            self._journal.publish(now, self._wall_offset + now)

    def _split_steps(self) -> None:
        """Tell the mean times of the steps since this was done last."""
        words, seen = self._words, self._splits_seen
        words[_PHASE] = self._phase_code
        words[_LOSS_EMA] = ABSENT if self._losses.ema is None else self._losses.ema
        steps = self._step_count - self._splits_steps
        if not steps:
            return
        self._splits_steps = self._step_count
        for index, seconds_at, total_at in _SPLIT_TIMES:
            total = words[total_at]
            if total:
                words[seconds_at] = (total - seen[index]) / steps
                seen[index] = total

    def _publish_all(self, now: float, *, at_least_seconds: float = 0.0) -> None:
        """Publish both records, unless they were published a moment ago."""
        self._split_steps()
        self._publish(now)
        if now - self._recorder.state.published >= at_least_seconds:
            self._journal.publish(now, self._wall_offset + now)

    @guard
    def _tick(self, now: float) -> None:
        """Do what is done once a second."""
        self._tick_due = now + _TICK_SECONDS
        self._wall_offset = self._clock() - now
        words = self._words
        words[_ERRORS] = self.errors.count
        self._split_steps()
        self._upkeep.do(now)
        self._take_late()
        for reader in self._readers.values():
            if reader.unreadable:
                self._tell_once(reader.unreadable)
        while self._inbox:
            values, split = self._inbox.popleft()
            self._log(values, split)
        if now - self._window_began >= _WINDOW_SECONDS:
            self._window_began = now
            for index, (window_at, at) in enumerate(_WINDOW):
                words[window_at] = self._window[index]  # the window is the last one and this one
                self._window[index] = max(words[at], 0.0)  # tokens may be unknown
