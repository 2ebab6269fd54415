"""Events of a training loop other than steps: epochs, values, checkpoints, alerts and traces.

The methods in this module do not wait for a device and make no system calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import SupportsFloat, TypeVar

from trainvitals.runfile import PHASE_NAMES, STEP
from trainvitals.runfile.traces import TraceRequest
from trainvitals.training.guard import guard
from trainvitals.training.journal import Nonfinite
from trainvitals.training.steps import StepRecorder
from trainvitals.training.values import NONFINITE

Item = TypeVar("Item")
Value = SupportsFloat

_EPOCH_STEP, _GLOBAL_STEP = STEP["epoch_step"], STEP["global_step"]


class EventRecorder(StepRecorder):
    """A recorder of steps and of all other events that a training loop reports."""

    _is_open = False
    _thread = 0
    start_time: float | None = None

    @property
    def current_phase(self) -> str:
        """The name of the phase that was marked last."""
        return PHASE_NAMES[self._phase_code] if self._is_open else "idle"

    @guard
    def start_epoch(self, epoch: int | None = None, *, steps: int | None = None) -> None:
        """Record that an epoch of the run has begun.

        Args:
            epoch: The number of the epoch, starting from 0; None for the number after that of the
                previous epoch.
            steps: The number of steps in the epoch; None if it is the same as in the previous
                epoch.
        """
        now = self._monotonic()
        self._thread = get_ident()
        self.start_time = self._clock()
        journal = self._journal
        last = journal.get("epoch")
        number = float(epoch) if epoch is not None else (0.0 if last is None else last + 1.0)
        self._epoch_counts = (self._step_count, self._samples, self._tokens)
        self._words[_EPOCH_STEP] = 0.0
        journal.set("epoch", number)
        journal.set("epoch_start_time", self.start_time)
        if steps is not None:
            journal.set("epoch_steps", float(steps))
        journal.note("epoch", number)
        self._change_phase(now, PHASE_NAMES[self._after_step])
        self._publish_all(now)

    @guard
    def get_throughput(self) -> dict[str, float] | None:
        """Return the throughput of the current epoch.

        Returns:
            `samples_per_second`, `tokens_per_second` and `elapsed_time` (seconds since
            `start_epoch`); None if no epoch has begun.
        """
        if self.start_time is None:
            return None
        elapsed = max(self._clock() - self.start_time, 1e-9)
        _, samples, tokens = self._epoch_counts
        return {
            "samples_per_second": (self._samples - samples) / elapsed,
            "tokens_per_second": (self._tokens - tokens) / elapsed,
            "elapsed_time": elapsed,
        }

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for a phase; when the phase ends, the previous phase continues.

        Args:
            name: The name of a phase that `mark` accepts.
        """
        return PhaseContext(self, name)

    def batches(self, iterable: Iterable[Item]) -> Iterator[Item]:
        """Iterate over a data loader and measure the wait for each batch.

        An exception raised by the loader is counted as a data error and then propagates. The caller
        may continue the iteration afterwards.
        """
        return Batches(self, iterable)

    @guard
    def log(
        self,
        values: Mapping[str, Value] | None = None,
        /,
        *,
        split: str | None = None,
        **named: Value,
    ) -> None:
        """Record named values, such as `val_iou`. This method may be called from any thread.

        `loss`, `accuracy`, `learning_rate` (or `lr`), `gradient_norm` (or `grad_norm`),
        `val_loss` and `val_accuracy` have dedicated metrics. A value with any other name is
        exported as a user-defined metric with that name.

        Args:
            values: The values to record by name.
            split: `train`, `validation` or `test`; None to derive the split from each name's
                prefix.
            named: Further values by name, in addition to `values`.
        """
        everything: Mapping[str, object] = {**(values or {}), **named}
        if get_ident() != self._thread:
            # A queued value must not keep an entire autograd graph in memory.
            kept = {name: _detach(value) for name, value in everything.items()}
            self._inbox.append((kept, split))
            return
        self._log(everything, split)
        self._publish_all(self._monotonic(), at_least_seconds=self._publish_seconds)

    @guard
    def log_validation(
        self, /, loss: Value | None = None, accuracy: Value | None = None, **metrics: Value
    ) -> None:
        """Record the end of an evaluation and the values of the evaluation.

        Args:
            loss: The validation loss; None if the loss is unknown.
            accuracy: The validation accuracy; None if the accuracy is unknown.
            metrics: Further values of the evaluation by name, such as `iou`.
        """
        values = {"loss": loss, "accuracy": accuracy, **metrics}
        known = [
            pair
            for name, value in values.items()
            if value is not None
            for pair in self._read_named(name, value, "validation")
        ]
        self._journal.log_evaluation(known)
        self._publish_all(self._monotonic())

    @guard
    def checkpoint_saved(self) -> None:
        """Record that the run has written a checkpoint."""
        self._journal.add("checkpoints")
        self._journal.set("last_checkpoint_time", self._clock())
        self._journal.note("checkpoint", self._global_before + self._step_count)
        self._publish_all(self._monotonic())

    @guard
    def count_data_error(self) -> None:
        """Count an exception raised by the data loader."""
        self._journal.add("data_errors")
        self._journal.note("data_error")
        self._publish_all(self._monotonic())

    @guard
    def count_nonfinite(self, what: Nonfinite) -> None:
        """Count a NaN or infinite value that the monitor cannot detect itself."""
        if what == "loss":
            self._words[NONFINITE] += 1.0
        self._journal.count_nonfinite(what)

    @guard
    def set_nan_filter(self, active: bool) -> None:  # noqa: FBT001 - the name says it
        """Record whether the framework replaces NaN losses before logging them."""
        self._journal.set("nan_filter_active", float(active))

    @guard
    def set_totals(
        self, *, epochs: int | None = None, steps: int | None = None, epoch_steps: int | None = None
    ) -> None:
        """Set the totals that are used to compute progress; None leaves a total unchanged."""
        names = ("total_epochs", "total_steps", "epoch_steps")
        for name, value in zip(names, (epochs, steps, epoch_steps), strict=True):
            if value is not None:
                self._journal.set(name, float(value))

    @guard
    def resume(self, global_step: int) -> None:
        """Set the step from which a resumed run continues.

        Earlier steps count as progress of the run, but not as steps of this process.
        """
        done = self._read_count(global_step)
        self._global_before = done - self._step_count
        self._words[_GLOBAL_STEP] = done
        self._journal.set("first_global_step", float(done))
        if done:
            self._journal.note("resume", float(done))
        self._publish_all(self._monotonic())

    @guard
    def raise_alert(self, name: str, text: str | None = None) -> None:
        """Raise an alert, which stays active until it is cleared.

        Args:
            name: The name of the alert, one of `runfile.ALERTS`.
            text: The text of the message to send. If it is None, the message contains only the
                name of the alert. If it is empty, no message is sent.
        """
        is_new = self._journal.set_alert(name, is_active=True)
        if is_new and self._notices is not None and text != "":
            self._notices.send_alert(name, text or "")
        self._publish_all(self._monotonic())

    @guard
    def clear_alert(self, name: str, text: str | None = None) -> None:
        """Clear an alert that `raise_alert` raised.

        Args:
            name: The name of the alert, one of `runfile.ALERTS`.
            text: The text of the message to send; None and an empty text have the same meaning as
                in `raise_alert`.
        """
        is_new = self._journal.set_alert(name, is_active=False)
        if is_new and self._notices is not None and text != "":
            self._notices.send_alert(name, text or "", is_over=True)

    @guard
    def profile(
        self,
        steps: int = 5,
        *,
        record_shapes: bool = False,
        profile_memory: bool = True,
        with_stack: bool = False,
    ) -> None:
        """Trace the next steps with the PyTorch profiler, as `trainvitals profile` does.

        The files are written to TRAINVITALS_PROFILE_DIR, or to `trainvitals-profiles` in the
        working directory; the path is logged.

        Args:
            steps: The number of steps to trace, at most 100. A trace ends early after 60 s or
                100000 events.
            record_shapes: Whether to record the shapes of operator inputs.
            profile_memory: Whether to record the memory that operators allocate.
            with_stack: Whether to record the source lines that called the operators.
        """
        if self._tracing is None:
            return
        number = int.from_bytes(os.urandom(7), "little") + 1
        request = TraceRequest(number, steps, record_shapes, profile_memory, with_stack)
        if not self._tracing.ask(request):
            self._warn_once("a trace is being taken already; ask again when it is written")
        if self._tracing.is_active:
            self._review_due = min(self._review_due, self._step_count)

    @guard
    def set_baseline(
        self,
        *,
        step_seconds: float | None = None,
        samples_per_second: float | None = None,
        utilization_ratio: float | None = None,
        deviations: int = 0,
    ) -> None:
        """Set the usual values of this run; None means that the value is not yet known.

        Args:
            step_seconds: The usual duration of a step in seconds.
            samples_per_second: The usual throughput in samples per second.
            utilization_ratio: The usual utilisation of the accelerators, 0 to 1.
            deviations: The quantities that currently deviate from their usual values, as a sum of 1
                (step time), 2 (throughput) and 4 (utilisation).
        """
        journal = self._journal
        journal.set("baseline_step_seconds", step_seconds)
        journal.set("baseline_samples_per_second", samples_per_second)
        journal.set("baseline_utilization_ratio", utilization_ratio)
        journal.set("deviations", float(deviations))


class PhaseContext(AbstractContextManager[None]):
    """A context manager for a phase of a run; when the phase ends, the previous phase continues.

    Args:
        recorder: The recorder in which the phase is marked.
        name: The name of the phase.
    """

    __slots__ = ("_before", "_name", "_recorder")

    def __init__(self, recorder: EventRecorder, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def __enter__(self) -> None:
        self._before = self._recorder.current_phase
        self._recorder.mark(self._name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # an exception may have ended the run in this phase
            self._recorder.mark(self._before)


class Batches(Iterator[Item]):
    """An iterator over a loader's batches that records the wait for each batch.

    If the loader raises an exception, the caller may still request the next batch.

    Args:
        recorder: The recorder of the wait for each batch and of the loader's exceptions.
        iterable: The data loader, which yields batches.
    """

    __slots__ = ("_iterable", "_iterator", "_recorder")

    def __init__(self, recorder: EventRecorder, iterable: Iterable[Item]) -> None:
        self._recorder = recorder
        self._iterable = iterable
        self._iterator: Iterator[Item] | None = None

    def __next__(self) -> Item:
        recorder = self._recorder
        recorder.mark("data_wait")
        is_broken = True
        try:
            if self._iterator is None:  # `iter` starts the loader's workers
                self._iterator = iter(self._iterable)
            item = next(self._iterator)
            is_broken = False
        except (StopIteration, KeyboardInterrupt):
            is_broken = False
            raise
        finally:
            if is_broken:
                recorder.count_data_error()
        recorder.mark("other")
        return item


def _detach(value: object) -> object:
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()
