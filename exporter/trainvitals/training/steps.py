"""The step record of a run, which is updated on every step within a few microseconds.

`mark` and `update_batch` set words of the step record, and `_publish` publishes the record. The
other methods after `update_batch` do work that is not necessary on every step.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Callable
from typing import SupportsFloat
from zlib import crc32

from trainvitals.runfile import (
    ABSENT,
    BUCKET_BOUNDS,
    COARSE,
    PHASE_NAMES,
    STEP,
    STEP_WORDS,
    Phase,
)
from trainvitals.training.guard import guard
from trainvitals.training.journal import Journal
from trainvitals.training.memory import DeviceRecorder
from trainvitals.training.notices import Notices
from trainvitals.training.recorder import Recorder
from trainvitals.training.tracing import Tracing
from trainvitals.training.values import (
    ACCURACY,
    COUNT_BITS,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    NONFINITE,
    ValueRecorder,
)

# Plain integers, because arithmetic with enumeration members is slower.
_DATA_WAIT, _OTHER = int(Phase.DATA_WAIT), int(Phase.OTHER)
_TRAINING_CODES = {name: code for code, name in enumerate(PHASE_NAMES) if COARSE[code] == "train"}
_PHASE, _PHASE_START, _LOSS_EMA = STEP["phase"], STEP["phase_start_time"], STEP["loss_ema"]
_SLOWEST, _OVERHEAD = STEP["slowest_step_seconds"], STEP["overhead_seconds"]
_ERRORS, _BUCKETS_AT = STEP["errors"], STEP["step_bucket_0"]
# The words that change on every step come first, and one call fills all of them.
_WORDS, _HOT_WORDS = len(STEP_WORDS), STEP["total_idle"] + 1
_pack_hot_words = struct.Struct(f"QQ{_HOT_WORDS - 2}d").pack_into
# The phases whose mean time per step has a word, each with the index of the word.
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
_FROM_ZERO = (NONFINITE, _SLOWEST, _OVERHEAD, _ERRORS, *_BUCKETS, *(at for at, _ in _WINDOW))
# Steps within this time are published together, because a store to a page on a disk may block.
PUBLISH_SECONDS, PUBLISH_ON_DISK_SECONDS = 0.001, 0.5
_STATE_SECONDS = 0.05


class StepRecorder(ValueRecorder):
    """A recorder that measures steps and phases and publishes the two records of a run."""

    # Access to slots is faster than access to members of a dictionary.
    __slots__ = (
        "_after_step",
        "_bucket_above",
        "_bucket_at",
        "_bucket_up_to",
        "_clock",
        "_coarse_began",
        "_codes",
        "_device",
        "_epoch_counts",
        "_full_review_due",
        "_global_before",
        "_is_training",
        "_live",
        "_monotonic",
        "_phase_began",
        "_phase_code",
        "_publish_due",
        "_publish_seconds",
        "_recorder",
        "_review_due",
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
        "_totals",
        "_tracing",
        "_train_seconds",
        "_wall_offset",
        "_window",
        "_window_began",
    )

    def _begin(
        self,
        recorder: Recorder,
        journal: Journal,
        *,
        device: DeviceRecorder,
        notices: Notices | None,
        tracing: Tracing | None,
        publish_seconds: float,
        monotonic: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """Start recording the steps and phases of a run.

        Args:
            recorder: The recorder of the step record and the state record.
            journal: The journal, which fills the state record.
            device: The recorder of the accelerator's memory, which is called about once a second.
            notices: The sender of messages; None to send no messages.
            tracing: The tracer of steps on request; None to disable traces.
            publish_seconds: The minimum time between two publications; steps that end within this
                time are published together.
            monotonic: A function that returns the time of a monotonic clock, in seconds.
            clock: A clock that returns Unix time in seconds.
        """
        words = recorder.step.words
        self._begin_values(words, journal, notices)
        self._recorder, self._device, self._tracing = recorder, device, tracing
        self._monotonic, self._clock = monotonic, clock
        self._publish_seconds = publish_seconds
        self._row, self._live = recorder.step, recorder.live
        now = monotonic()
        self._wall_offset = clock() - now
        for at in _FROM_ZERO:
            words[at] = 0.0
        words[_PHASE_START] = clock()
        words[_PHASE] = self._phase_code = int(Phase.INIT)
        self._totals = [0.0] * len(PHASE_NAMES)
        self._phase_began = self._coarse_began = self._tick_due = self._window_began = now
        self._is_training = False
        # The phases that `mark` handles directly: the phases of a step, once one of them has been
        # marked.
        self._codes: dict[str, int] = {}
        self._after_step = _OTHER
        # Floats, as in the record, which saves a conversion on every step.
        self._step_count = self._splits_steps = self._global_before = 0.0
        self._samples = self._tokens = 0
        self._epoch_counts: tuple[float, int, int] = (0.0, 0, 0)
        self._step_began = self._step_seconds = self._train_seconds = self._publish_due = 0.0
        self._bucket_at, self._bucket_above, self._bucket_up_to = _BUCKETS_AT, 0.0, 0.0
        self._slowest = self._slowest_before = 0.0
        self._review_due = self._full_review_due = float(_SLOWEST_OF)
        self._splits_seen = self._totals.copy()
        self._window = [0.0] * len(_WINDOW)

    # The hot path: the next two methods and `_publish` run on every step. They avoid function calls
    # at the cost of style.

    def mark(self, phase: str) -> None:
        """Record that a phase begins now and that the previous phase ends.

        Args:
            phase: The name of the phase: `data_wait`, `h2d`, `forward`, `backward`, `optimizer` or
                `other` within a step; `validation`, `checkpoint`, `compile` or `idle` outside of
                steps.
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
        """Record the end of a step and the values of the step.

        The method does not wait for a tensor on a device. Its value is recorded when it has been
        copied to the host.

        Args:
            batch_size: The number of samples in the step, over all accumulated batches.
            sequence_length: The number of tokens in each sample of the step.
            loss: The loss of the step, as a number or a tensor.
            accuracy: The accuracy of the step, 0 to 1.
            learning_rate: The learning rate of the step.
            gradient_norm: The norm of the gradients of the step.
            tokens: The number of tokens in the step, instead of `sequence_length`.
            global_step: The number of the step in the run. If None, the number of the previous step
                plus one is used.
        """
        clock = self._monotonic
        now = clock()
        if not self._is_training:
            self._enter_training(now)
        self._totals[self._phase_code] += now - self._phase_began
        self._phase_code = code = self._after_step
        self._phase_began = self._live[code] = now
        self._step_count = count = self._step_count + 1.0
        if type(batch_size) is not int or batch_size >> COUNT_BITS:
            batch_size = self._take_count(batch_size) or 0
        self._samples += batch_size
        if batch_size and sequence_length is not None:
            if type(sequence_length) is not int or sequence_length >> COUNT_BITS:
                sequence_length = self._take_count(sequence_length) or 0
            self._tokens += batch_size * sequence_length
        if tokens is not None:
            if type(tokens) is not int or tokens >> COUNT_BITS:
                tokens = self._take_count(tokens) or 0
            self._tokens += tokens
        if global_step is not None:
            if type(global_step) is not int or global_step >> COUNT_BITS:
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
                self._set_word(LOSS, loss)
        if learning_rate is not None:
            if type(learning_rate) is float:
                self._words[LEARNING_RATE] = learning_rate
            else:
                self._set_word(LEARNING_RATE, learning_rate)
        if accuracy is not None:
            self._set_word(ACCURACY, accuracy)
        if gradient_norm is not None:
            self._set_word(GRADIENT_NORM, gradient_norm)
        if now >= self._publish_due:
            self._publish(now)
        if count >= self._review_due:
            self._review_steps(now)

    # The methods below do work that is not done on every step.

    @guard
    def _enter_training(self, now: float) -> None:
        self._change_phase(now, PHASE_NAMES[self._after_step])
        if self._step_began == now:
            self._step_began = 0.0  # the start of this first step is unknown
        self._publish_due = now  # the next step may hang, so this step is published at once

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
            self._step_began += lasted  # interruptions are not part of a step's time
        if after == "train" and not self._step_began:
            self._step_began = now
        self._coarse_began = now
        self._is_training = after == "train"
        if self._tracing is not None and self._tracing.is_active and not self._is_training:
            self._tracing.interrupt(f"{after} began")
        words[_PHASE_START] = self._wall_offset + now
        self._publish_all(now)

    def _find_bucket(self, seconds: float) -> None:
        """Find the histogram bucket of a step, which is usually that of the next step as well."""
        number = bisect_left(BUCKET_BOUNDS, seconds)
        self._bucket_at = _BUCKETS[number]
        self._bucket_above, self._bucket_up_to = _EDGES[number], _EDGES[number + 1]

    def _keep_slowest(self, seconds: float) -> None:
        if self._step_count > 1:  # the first step includes compilation
            self._slowest = seconds
            self._words[_SLOWEST] = max(seconds, self._slowest_before)

    def _review_steps(self, began: float) -> None:
        """Record the slowest step and the overhead, every 64 steps.

        While a trace is requested or in progress, this method is called on every step to continue
        the trace.
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

    def _publish(self, now: float) -> None:
        """Publish the step record and, if due, do the periodic work."""
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
        """Record the mean forward, backward and optimizer times per step since the last call."""
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
        """Publish both records; publish the state record at most once in `at_least_seconds`."""
        self._split_steps()
        self._publish(now)
        if now - self._recorder.state.published >= at_least_seconds:
            self._journal.publish(now, self._wall_offset + now)

    @guard
    def _tick(self, now: float) -> None:
        """Do the work that is necessary once a second."""
        self._tick_due = now + _TICK_SECONDS
        self._wall_offset = self._clock() - now
        words = self._words
        words[_ERRORS] = self.errors.count
        self._split_steps()
        self._device.record(now)
        if self._tracing is not None:
            self._tracing.check_request(now)
            if self._tracing.is_active:
                self._review_due = min(self._review_due, self._step_count)
        self._take_late()
        for reader in self._readers.values():
            if reader.unreadable:
                self._warn_once(reader.unreadable)
        while self._inbox:
            values, split = self._inbox.popleft()
            self._log(values, split)
        if now - self._window_began >= _WINDOW_SECONDS:
            self._window_began = now
            for index, (window_at, at) in enumerate(_WINDOW):
                words[window_at] = self._window[index]  # the window spans the last two intervals
                self._window[index] = max(words[at], 0.0)  # the number of tokens may be unknown
