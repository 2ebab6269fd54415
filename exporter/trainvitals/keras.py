"""A callback for Keras 3 with any backend. In TensorFlow 2.16 and newer, `tf.keras` is Keras 3.

    from trainvitals.keras import TrainvitalsCallback

    model.fit(x, y, batch_size=32, callbacks=[TrainvitalsCallback(batch_size=32)])

Keras reports the end of a batch on another thread, late and in any order, and does not pass the
batch to callbacks. This has the following effects:

- A step lasts from the start of one batch to the start of the next batch, including the wait for
  data. Data wait, forward, backward and optimizer phases cannot be distinguished and count as phase
  `other`.
- With `steps_per_execution=N`, Keras reports every N-th batch. The callback then records N batches
  as one step, with the samples of all N batches. The global step counts batches.
- The number of samples is known only if `batch_size` is passed to the callback. The last batch of
  an epoch is counted as a full batch, although it may be smaller.
- The loss and metrics of a batch are means since the epoch began. These means are exported as they
  are, and are not checked for spikes. A single NaN makes the mean NaN for the rest of the epoch;
  each reported NaN mean counts as a non-finite loss.

Source: keras 3.15, `CallbackList` and the backends' `Trainer.fit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import Lock

from trainvitals.training.guard import Errors, guard
from trainvitals.training.monitor import TrainingMonitor

try:
    import keras
except ModuleNotFoundError as error:
    _missing = (error.name or "keras").partition(".")[0]
    raise ImportError(
        f"trainvitals.keras needs {_missing}, which is not installed: pip install {_missing}"
        + ("" if _missing == "keras" else ", or set KERAS_BACKEND to a backend that is")
    ) from error

Values = Mapping[str, float]


class TrainvitalsCallback(keras.callbacks.Callback):  # type: ignore[misc] # keras ships no types
    """A callback that reports a call of `fit` to the exporter.

    Args:
        run: The run name. If None, `TrainingMonitor` derives the name from the environment.
        monitor: An existing monitor of the run, which the caller must finish. Such a monitor
            treats each mean loss as the loss of a step. If None, each call of `fit` creates a
            monitor and finishes it.
        batch_size: The number of samples in a batch, as passed to `fit` or to the data set. If
            None, the number of samples is unknown.
        flops_per_sample: The number of floating-point operations that the forward and backward
            passes need for one sample. The model FLOPs utilization (MFU) is calculated from this
            number. The argument is ignored if `monitor` is passed.

    Attributes:
        monitor: The monitor of the current run. Unless a monitor was passed in, the value is None
            before and after training.
        errors: The counter of internal errors, which are logged once and never raised in Keras.
    """

    # Otherwise Keras would wait for the device after each batch to convert the batch's values.
    async_safe = True

    def __init__(
        self,
        run: str | None = None,
        *,
        monitor: TrainingMonitor | None = None,
        batch_size: int | None = None,
        flops_per_sample: float | None = None,
    ) -> None:
        super().__init__()
        self.monitor = monitor
        self.errors = (
            Errors("trainvitals' Keras callback", self._switch_off)
            if monitor is None
            else monitor.errors
        )
        self._run = run
        self._is_own = monitor is None
        self._batch_size = batch_size
        self._flops_per_sample = flops_per_sample
        self._is_off = False
        self._is_fitting = False
        self._is_first_epoch = True
        self._steps_done = 0  # the number of batches before this epoch
        self._epoch_batches = 0
        self._begun: int | None = None  # the first batch of the current step
        self._received = _BatchValues()

    @guard
    def on_train_begin(self, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """Begin the run, and record its total numbers of epochs and steps."""
        if self._is_off:
            return
        if self._is_own and self.monitor is not None:
            self.monitor.fail()  # the previous fit was interrupted, for example in a notebook
            self.monitor = None
        if self.monitor is None:
            self.monitor = _MeansMonitor(
                self._run,
                framework="keras",
                framework_version=f"{keras.__version__} ({keras.backend.backend()})",
                flops_per_sample=self._flops_per_sample,
            )
            self.errors = self.monitor.errors
        self._is_fitting = self._is_first_epoch = True
        self._steps_done = 0
        epochs, steps = self._read_parameter("epochs"), self._read_parameter("steps")
        self.monitor.set_totals(
            epochs=epochs,
            epoch_steps=steps,
            steps=epochs * steps if epochs is not None and steps is not None else None,
        )

    @guard
    def on_epoch_begin(self, epoch: int, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """Begin an epoch; before the first epoch of a `fit`, detect whether the run is resumed."""
        monitor = self.monitor
        if monitor is None:
            return
        if self._is_first_epoch:
            # The number is read here because Keras' BackupAndRestore restores the optimizer when
            # training begins.
            self._is_first_epoch = False
            self._steps_done = _count_batches_done(self.model)
            if self._steps_done:
                monitor.resume(self._steps_done)
        self._begun = None
        self._epoch_batches = 0
        self._received.clear()
        # No phase is marked during training, because the time between two batches cannot be
        # divided into phases.
        monitor.start_epoch(epoch, steps=self._read_parameter("steps"))

    @guard
    def on_train_batch_begin(self, batch: int, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """End the previous step and begin a new step; Keras calls this on the training thread."""
        if self.monitor is not None:
            self._end_step(batch)
            self._begun = batch
            self.monitor.log(self._received.take())

    @guard
    def on_train_batch_end(self, batch: int, logs: Values | None = None) -> None:
        """Store a batch's values; Keras calls this late, in any order, on another thread."""
        self._received.put(batch, logs or {})

    @guard
    def on_test_begin(self, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """End the last step of an epoch, and begin its validation."""
        if self.monitor is not None and self._is_fitting:
            self._end_step(self._find_end())
            self.monitor.mark("validation")

    @guard
    def on_test_end(self, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """End validation; the validation values are recorded at the end of the epoch."""
        if self.monitor is not None and self._is_fitting:
            self.monitor.mark("other")

    @guard
    def on_epoch_end(self, epoch: int, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """End an epoch, and record the epoch's means and validation values."""
        monitor = self.monitor
        if monitor is None:
            return
        self._end_step(self._find_end())
        self._steps_done += self._epoch_batches
        values = logs or {}
        monitor.log({name: values[name] for name in values if not name.startswith("val_")})
        evaluated = {
            name.removeprefix("val_"): values[name] for name in values if name.startswith("val_")
        }
        if evaluated:
            monitor.log_validation(**evaluated)

    @guard
    def on_train_end(self, logs: Values | None = None) -> None:  # noqa: ARG002 - Keras passes it
        """End the run, or mark it as idle if the monitor was passed in."""
        self._is_fitting = False
        if self.monitor is None:
            return
        if self._is_own:
            self.monitor.finish()
            self.monitor = None
        else:
            self.monitor.mark("idle")

    def _end_step(self, end: int) -> None:
        """End the current step, whose last batch is the batch before `end`."""
        begun = self._begun
        if self.monitor is None or begun is None or end <= begun:
            return
        self._begun = None
        self._epoch_batches = end
        self.monitor.update_batch(
            (self._batch_size or 0) * (end - begun), global_step=self._steps_done + end
        )

    def _find_end(self) -> int:
        """Return the number of batches in the epoch that has just ended."""
        begun = self._begun or 0
        if self._received.batches > begun:
            return self._received.batches
        # Keras has not reported the values of the epoch's last batch yet.
        end = begun + int(getattr(self.model, "steps_per_execution", None) or 1)
        return min(end, max(begun + 1, self._read_parameter("steps") or end))

    def _read_parameter(self, name: str) -> int | None:
        value = (self.params or {}).get(name)
        return value if isinstance(value, int) else None

    def _switch_off(self) -> None:
        self._is_off = True


class _MeansMonitor(TrainingMonitor):
    """A monitor whose losses are running means, which are not checked for spikes."""

    def _review_losses(self) -> None:
        for loss in self._fresh_losses:
            if not math.isfinite(loss):
                self.count_nonfinite("loss")
        self._fresh_losses.clear()


class _BatchValues:
    """The values of the latest batch, passed from Keras' threads to the training thread.

    Attributes:
        batches: The number of batches that Keras has reported in this epoch.
    """

    def __init__(self) -> None:
        self.batches = 0
        self._values: Values = {}
        self._lock = Lock()

    def clear(self) -> None:
        """Discard the batch values of the previous epoch."""
        with self._lock:
            self.batches = 0
            self._values = {}

    def put(self, batch: int, values: Values) -> None:
        """Store the values of a batch, unless the values of a later batch arrived first."""
        with self._lock:
            if batch >= self.batches:
                self.batches = batch + 1
                self._values = values

    def take(self) -> Values:
        """Return the latest batch's values; empty if none arrived since the previous call."""
        with self._lock:
            values, self._values = self._values, {}
            return values


def _count_batches_done(model: object) -> int:
    """Return the number of batches on which a model has already been trained.

    This call waits for the device and is therefore made only once per fit.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return 0
    return int(optimizer.iterations) * (optimizer.gradient_accumulation_steps or 1)
