"""The hot half of the training client: what happens on every step.

Each step fills words of the step record and publishes it; what is seldom done stands below.
"""

from __future__ import annotations

import logging
import math
import struct
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import SupportsFloat
from zlib import crc32

from trainvitals.runfile import (
    ABSENT,
    BUCKET_BOUNDS,
    COARSE,
    MOST_METRICS,
    PHASE_NAMES,
    STEP,
    STEP_WORDS,
    Phase,
)
from trainvitals.training.journal import Journal
from trainvitals.training.losses import LossWatch
from trainvitals.training.notices import Notices
from trainvitals.training.outer import Errors, guard
from trainvitals.training.recorder import Recorder
from trainvitals.training.tensors import Values
from trainvitals.training.tracing import Tracing
from trainvitals.training.upkeep import Upkeep

_log = logging.getLogger("trainvitals")
# Plain integers: an enumeration's members are slower to compute with.
_DATA_WAIT, _OTHER = int(Phase.DATA_WAIT), int(Phase.OTHER)
_TRAINING_CODES = {name: code for code, name in enumerate(PHASE_NAMES) if COARSE[code] == "train"}
(_PHASE, _PHASE_START, _ACCURACY, _LEARNING_RATE, _GRADIENT_NORM, _LOSS_EMA, _NONFINITE) = (
    STEP[name] for name in
    ("phase", "phase_start_time", "accuracy", "learning_rate", "gradient_norm", "loss_ema", "nonfinite_losses")
)  # fmt: skip
(_LOSS, _SLOWEST, _OVERHEAD, _ERRORS, _BUCKETS_AT) = (
    STEP[name] for name in
    ("loss", "slowest_step_seconds", "overhead_seconds", "errors", "step_bucket_0")
)  # fmt: skip
# The words that change on every step are the first ones, and one call fills them all.
_WORDS, _HOT_WORDS = len(STEP_WORDS), STEP["total_idle"] + 1
_pack_hot_words = struct.Struct(f"QQ{_HOT_WORDS - 2}d").pack_into
# The phases whose mean time in a step has a word, and the word.
_SPLIT_TIMES = tuple(
    (int(phase), STEP[f"{phase.name.lower()}_seconds"])
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
)
_WINDOW = tuple(
    (STEP[f"window_{name}"], STEP[name]) for name in ("train_seconds", "steps", "samples", "tokens")
)
_TICK_SECONDS, _WINDOW_SECONDS = 1.0, 10.0
_SLOWEST_OF = 64
_BUCKETS = range(_BUCKETS_AT, _BUCKETS_AT + len(BUCKET_BOUNDS) + 1)
_EDGES = (-math.inf, *BUCKET_BOUNDS, math.inf)
_FROM_ZERO = (_NONFINITE, _SLOWEST, _OVERHEAD, _ERRORS, *_BUCKETS, *(at for at, _ in _WINDOW))
# Steps shorter than this are published together; a store to a disk's page may have to wait.
PUBLISH_SECONDS, PUBLISH_ON_DISK_SECONDS = 0.001, 0.5
_STATE_SECONDS = 0.05
# A count has at most so many bits: far beyond any step, and a float64 counts thousands of them.
# Shifted by as many, what is left of a negative number is not 0 either.
_MOST_WAITING = 1000  # what other threads log while the loop takes no step
_COUNT_BITS = 40

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
        "_bucket_above",
        "_bucket_at",
        "_bucket_up_to",
        "_clock",
        "_coarse_began",
        "_codes",
        "_epoch_counts",
        "_fresh_losses",
        "_full_review_due",
        "_global_before",
        "_inbox",
        "_is_training",
        "_journal",
        "_late",
        "_live",
        "_loss",
        "_losses",
        "_monotonic",
        "_nonfinite",
        "_notices",
        "_phase_began",
        "_phase_code",
        "_publish_due",
        "_publish_seconds",
        "_readers",
        "_recorder",
        "_review_due",
        "_row",
        "_samples",
        "_slowest",
        "_slowest_before",
        "_spikes",
        "_splits_seen",
        "_splits_steps",
        "_step_began",
        "_step_count",
        "_step_seconds",
        "_tick_due",
        "_tokens",
        "_told",
        "_totals",
        "_tracing",
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
        notices: Notices | None = None,
        tracing: Tracing | None = None,
        publish_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin to record.

        Args:
            recorder: Where the records are written.
            journal: The state record.
            upkeep: What is to be done about once a second.
            notices: Tells people; None for nobody.
            tracing: Traces steps when somebody asks; None for never.
            publish_seconds: Steps that follow each other faster are published together.
            monotonic: Tells seconds on a clock that never jumps.
            clock: Tells Unix seconds.
        """
        self._recorder, self._journal, self._upkeep = recorder, journal, upkeep
        self._notices, self._tracing = notices, tracing
        self._monotonic, self._clock = monotonic, clock
        self._publish_seconds = publish_seconds
        self._row, self._live = recorder.step, recorder.live
        self._words = words = recorder.step.words
        self._losses = LossWatch()
        self._fresh_losses: list[float] = []
        self._nonfinite = self._spikes = 0
        self._was_spiking = False
        self._values = Values()
        self._readers = {at: Values() for at in _STEP_VALUES.values()}
        self._late: dict[tuple[str, str | None], Values] = {}
        self._told: set[str] = set()
        self._inbox: deque[tuple[Mapping[str, object], str | None]] = deque(maxlen=_MOST_WAITING)
        now = monotonic()
        self._wall_offset = clock() - now
        for at in _FROM_ZERO:
            words[at] = 0.0
        words[_PHASE_START] = clock()
        words[_PHASE] = self._phase_code = int(Phase.INIT)
        self._totals = [0.0] * len(PHASE_NAMES)
        self._phase_began = self._coarse_began = self._tick_due = self._window_began = now
        self._is_training = False
        # The phases that `mark` needs no help with: those of a step, once one of them was marked.
        self._codes: dict[str, int] = {}
        self._after_step = _OTHER
        # A float as the record has it, which saves a conversion on each step.
        self._step_count = self._splits_steps = self._global_before = 0.0
        self._samples = self._tokens = 0
        self._epoch_counts: tuple[float, int, int] = (0.0, 0, 0)
        self._step_began = self._step_seconds = self._train_seconds = self._publish_due = 0.0
        self._loss = ABSENT
        self._bucket_at, self._bucket_above, self._bucket_up_to = _BUCKETS_AT, 0.0, 0.0
        self._slowest = self._slowest_before = 0.0
        self._review_due = self._full_review_due = float(_SLOWEST_OF)
        self._splits_seen = self._totals.copy()
        self._window = [0.0] * len(_WINDOW)

    # The loop: these two and `_publish` run on every step and spend nothing on being tidy.

    def mark(self, phase: str) -> None:
        """Say that a phase begins now; the one before it ends.

        Args:
            phase: `data_wait`, `h2d`, `forward`, `backward`, `optimizer` or `other` in a step;
                `validation`, `checkpoint`, `compile` or `idle` outside.
        """
        clock = self._monotonic
        now = clock()
        try:
            code = self._codes[phase]
        except (KeyError, TypeError):
            self._change_phase(now, phase)
            return
        self._totals[self._phase_code] += now - self._phase_began
        self._phase_code = code
        self._phase_began = self._live[code] = now

    def update_batch(  # noqa: C901, PLR0912, PLR0915 - a call fewer on every step
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
        self._totals[self._phase_code] += now - self._phase_began
        self._phase_code = code = self._after_step
        self._phase_began = self._live[code] = now
        self._step_count = count = self._step_count + 1.0
        if type(batch_size) is not int or batch_size >> _COUNT_BITS:
            batch_size = self._take_count(batch_size) or 0
        self._samples += batch_size
        if batch_size and sequence_length is not None:
            if type(sequence_length) is not int or sequence_length >> _COUNT_BITS:
                sequence_length = self._take_count(sequence_length) or 0
            self._tokens += batch_size * sequence_length
        if tokens is not None:
            if type(tokens) is not int or tokens >> _COUNT_BITS:
                tokens = self._take_count(tokens) or 0
            self._tokens += tokens
        if global_step is not None:
            if type(global_step) is not int or global_step >> _COUNT_BITS:
                self._set_global_step(global_step)
            else:
                self._global_before = global_step - count
        began, self._step_began = self._step_began, now
        if began:
            self._step_seconds = seconds = now - began
            self._train_seconds += seconds
            if not self._bucket_above < seconds <= self._bucket_up_to:
                self._find_bucket(seconds)
            self._words[self._bucket_at] += 1.0
            if seconds > self._slowest:
                self._keep_slowest(seconds)
        if loss is not None:
            if type(loss) is float:
                self._loss = loss
                self._fresh_losses.append(loss)
            else:
                self._set_word(_LOSS, loss)
        if learning_rate is not None:
            if type(learning_rate) is float:
                self._words[_LEARNING_RATE] = learning_rate
            else:
                self._set_word(_LEARNING_RATE, learning_rate)
        if accuracy is not None:
            self._set_word(_ACCURACY, accuracy)
        if gradient_norm is not None:
            self._set_word(_GRADIENT_NORM, gradient_norm)
        if now >= self._publish_due:
            self._publish(now)
        if count >= self._review_due:
            self._review_steps(now)

    # What is seldom done on a step.

    @guard
    def _enter_training(self, now: float) -> None:
        self._change_phase(now, PHASE_NAMES[self._after_step])
        if self._step_began == now:
            self._step_began = 0.0  # nobody said when this first step began

    @guard
    def _take_count(self, value: object) -> int:
        return self._read_count(value)

    def _read_count(self, value: object) -> int:
        if not getattr(value, "is_cpu", True):
            self._tell_once(f"{type(value).__name__} on a device is no count; pass an int")
            return 0
        number = self._values.read(value)
        if number is None or not 0 <= number < 1 << _COUNT_BITS:
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
        self._totals[self._phase_code] += now - self._phase_began
        self._phase_code = code
        self._phase_began = self._live[code] = now
        if name in _TRAINING_CODES and name != "other":
            self._after_step = _DATA_WAIT
        is_marked = after == "train" and self._after_step == _DATA_WAIT
        self._codes = _TRAINING_CODES if is_marked else {}
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
        if self._tracing is not None and self._tracing.is_active and not self._is_training:
            self._tracing.interrupt(f"{after} began")
        words[_PHASE_START] = self._wall_offset + now
        self._publish_all(now)

    def _find_bucket(self, seconds: float) -> None:
        """Find the histogram's bucket for a step; the next one will most likely belong there too."""
        number = bisect_left(BUCKET_BOUNDS, seconds)
        self._bucket_at = _BUCKETS[number]
        self._bucket_above, self._bucket_up_to = _EDGES[number], _EDGES[number + 1]

    def _keep_slowest(self, seconds: float) -> None:
        if self._step_count > 1:  # the first step compiles, and says nothing of those to come
            self._slowest = seconds
            self._words[_SLOWEST] = max(seconds, self._slowest_before)

    def _review_steps(self, began: float) -> None:
        """Forget the slowest of the 64 steps before the last 64; measure what one call costs.

        While a trace is wanted, each step ends here.
        """
        if self._step_count >= self._full_review_due:
            self._full_review_due += _SLOWEST_OF
            self._review_slowest(began)
        self._review_due = self._full_review_due
        if self._tracing is not None and self._tracing.is_active:
            self._follow_trace(began)

    @guard
    def _follow_trace(self, now: float) -> None:
        if self._tracing is not None:
            self._tracing.step_over(now, self._step_seconds)
            if self._tracing.is_active:
                self._review_due = self._step_count + 1.0

    def _review_slowest(self, began: float) -> None:
        words = self._words
        words[_SLOWEST] = max(self._slowest, self._slowest_before)
        self._slowest_before = self._slowest
        self._slowest = 0.0
        words[_OVERHEAD] += (self._monotonic() - began) * _SLOWEST_OF
        self._review_losses()

    @guard
    def _set_word(self, at: int, value: object) -> None:
        """Take a value that may be no float, and may be on a device that does not have it yet."""
        number = value if type(value) is float else self._readers[at].read(value)
        if number is None:
            if not hasattr(value, "is_cpu"):
                self._tell_once(
                    f"a value of type {type(value).__name__} cannot be read without waiting; pass a "
                    "float where the loop has one anyway"
                )
            return
        if at == _LOSS:
            self._take_loss(number)
            return
        self._words[at] = number
        if at == _GRADIENT_NORM and number - number != 0.0:
            self._journal.count_nonfinite("gradient")

    def _take_loss(self, loss: float) -> None:
        self._loss = loss
        self._fresh_losses.append(loss)

    def _review_losses(self) -> None:
        """Judge the losses since this was done last: one by one they would cost thrice as much."""
        losses, journal = self._losses, self._journal
        losses.see(*self._fresh_losses)
        self._fresh_losses.clear()
        if losses.nonfinite != self._nonfinite:
            self._words[_NONFINITE] += losses.nonfinite - self._nonfinite
            self._nonfinite = losses.nonfinite
            journal.count_nonfinite("loss")
            if self._notices is not None:
                self._notices.tell_nonfinite()
        if losses.spikes != self._spikes:
            self._spikes = losses.spikes
            journal.set("loss_spikes", float(losses.spikes))
            journal.note("loss_spike", losses.spike_loss)
            if self._notices is not None:
                self._notices.tell_spike(losses.spike_loss)
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
        """Read a named value; one that a device does not have yet is read in a later second."""
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
        if now >= self._tick_due:
            self._tick(now)
        count, wall_offset = self._step_count, self._wall_offset
        wall_time = wall_offset + now
        (init, compiling, data_wait, h2d, forward, backward, optimizer, other,
         validation, checkpoint, idle) = self._totals  # fmt: skip
        row = self._row
        data = row.data
        row.number = number = row.number + 1
        _pack_hot_words(  # in the order of STEP_WORDS
            data, 0,
            number, _WORDS, now * 1e9, wall_time,
            wall_offset + self._phase_began,
            count,
            self._samples or (ABSENT if count else 0.0),
            self._tokens or ABSENT,
            self._global_before + count,
            count - self._epoch_counts[0],
            self._step_seconds or ABSENT,
            self._train_seconds,
            self._loss,
            init, compiling, data_wait, h2d, forward, backward, optimizer, other,
            validation, checkpoint, idle,
        )  # fmt: skip
        slot, checksum = row.slots[number & 1]
        slot[:] = data
        checksum[0] = crc32(data)
        self._publish_due = now + self._publish_seconds
        if self._journal.is_dirty and now - self._recorder.state.published >= _STATE_SECONDS:
            self._journal.publish(now, wall_time)

    def _split_steps(self) -> None:
        """Tell the mean times of the steps since this was done last."""
        words, seen = self._words, self._splits_seen
        self._review_losses()
        words[_PHASE] = self._phase_code
        words[_LOSS_EMA] = ABSENT if self._losses.ema is None else self._losses.ema
        steps = self._step_count - self._splits_steps
        if not steps:
            return
        self._splits_steps = self._step_count
        for code, at in _SPLIT_TIMES:
            total = self._totals[code]
            if total:
                words[at] = (total - seen[code]) / steps
                seen[code] = total

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
        if self._tracing is not None:
            self._tracing.look(now)
            if self._tracing.is_active:
                self._review_due = min(self._review_due, self._step_count)
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
