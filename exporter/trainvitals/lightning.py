"""A callback for Lightning's Trainer that reports a fit to the exporter and monitors resources.

    from trainvitals.lightning import ResourceMonitorCallback

    trainer = Trainer(callbacks=[ResourceMonitorCallback(log_interval=50)])

The callback works with both distributions, `lightning` and `pytorch-lightning`.

- Phases follow the order of Lightning's hooks. The data wait lasts from the end of a batch to the
  start of the next batch, and includes the copy to the device; the forward phase ends when the
  backward phase begins; the optimizer phase lasts from just before the optimizer step to the end of
  the batch. For a GPU, these durations are measured on the host, which launches the work. On ranks
  other than 0, a checkpoint ends with the next batch, because Lightning notifies only rank 0 when
  the file has been written.
- A step is an optimizer step. The samples and tokens of the accumulated batches are summed, and the
  loss of the step is the mean of the batches' losses; Lightning divides each loss by the number of
  batches.
- The callback receives named values through its own logger, after Lightning has reduced the values
  over the ranks. Reading `trainer.callback_metrics` instead can hang a run with several ranks. If
  the Trainer has no other logger, Lightning copies the logged values from the device every
  `log_every_n_steps` steps, as it does for any logger.
- Apart from the named values, nothing is copied from the device, and no rank waits for another. An
  internal error does not end the fit: the error is logged, and after ten errors the callback
  disables itself.
- Rank 0 of a machine samples all GPUs that the Trainer uses on that machine; every other rank
  samples only its own GPU.

Source: lightning 2.6, `_TrainingEpochLoop.advance`, `_EvaluationLoop.on_run_end`.
"""

# ruff: noqa: ARG002 - Lightning defines the parameters of the hooks

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainvitals.training.accumulation import AccumulatedStep
from trainvitals.training.frameworks import count_samples, count_tokens, sort_validation
from trainvitals.training.guard import guard
from trainvitals.training.lightning_packages import Callback, ValuesLogger, find_version
from trainvitals.training.monitor import TrainingMonitor
from trainvitals.training.resourcemonitor import ResourceMonitor

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from torch import Tensor
    from torch.optim import Optimizer

_HOOKS = (
    "setup",
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_train_epoch_end",
    "on_train_end",
    "on_validation_start",
    "on_validation_end",
    "on_save_checkpoint",
    "on_exception",
    "teardown",
)
# This callback of Lightning passes 50 or more numbers to every logger.
_NOT_OURS = ("DeviceStatsMonitor",)
_TRAINING_NAMES = {
    "train_acc": "accuracy",
    "train_accuracy": "accuracy",
    "train/acc": "accuracy",
    "train/accuracy": "accuracy",
    "acc": "accuracy",
    "grad_norm": "gradient_norm",
}


class ResourceMonitorCallback(ResourceMonitor, Callback):
    """A callback that reports a fit to the exporter and monitors the machine's resources.

    The arguments are the same as those of `ResourceMonitor`.

    Attributes:
        monitor: The monitor of the current fit. Unless a monitor was passed in, the value is None
            before and after a fit.
        errors: The counter of internal errors, which are logged once and never raised in the
            Trainer.
    """

    _hooks = _HOOKS

    def _begin(self, *, rank: int) -> None:
        super()._begin(rank=rank)
        self._open_step = AccumulatedStep()
        self._step_before = 0
        self._batch: int | None = None
        self._has_tokens = True
        self._validation: dict[str, object] | None = None
        self._is_saving = False
        self._is_own = self.monitor is None
        self._logger: ValuesLogger | None = None

    @guard
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin a fit; validation, testing and prediction outside a fit are not recorded."""
        if stage != "fit":
            return
        self._begin(rank=trainer.global_rank)
        self._open_host()
        if self.monitor is None:
            self.monitor = TrainingMonitor(
                self._run,
                rank=trainer.global_rank,
                world_size=trainer.world_size,
                framework="lightning",
                framework_version=find_version(trainer),
                notify=self._notify,
            )
        logger = ValuesLogger(self._take_values, self._end_saving, trainer.default_root_dir)
        self._logger = logger
        trainer.loggers = [*trainer.loggers, logger]

    @guard
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the totals of the fit, and the step from which the fit resumes."""
        monitor = self._watched()
        self._step_before = trainer.global_step
        monitor.set_totals(
            epochs=_known(trainer.max_epochs),
            steps=_known(trainer.max_steps),
            epoch_steps=_count_epoch_steps(trainer),
        )
        if trainer.global_step:
            monitor.resume(trainer.global_step)
        self._follow_gpus(_choose_gpus(trainer))

    @guard
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin an epoch and the wait for the epoch's first batch."""
        self._end_saving()
        self.current_epoch = trainer.current_epoch
        self._batch = None
        self._has_tokens = True
        self._step_before = trainer.global_step
        self._open_step = AccumulatedStep()
        monitor = self._watched()
        monitor.start_epoch(trainer.current_epoch, steps=_count_epoch_steps(trainer))
        monitor.mark("data_wait")
        self._pace.pause()

    @guard
    def on_train_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: object,
        batch_idx: int,
    ) -> None:
        """End the wait for a batch, and begin the forward phase."""
        if self._is_saving:
            self._end_saving()
        self._pace.begin_batch()
        (self.monitor or self._watched()).mark("forward")

    @guard
    def on_before_backward(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        loss: Tensor,
    ) -> None:
        """Record that the forward phase ends and the backward phase begins."""
        (self.monitor or self._watched()).mark("backward")

    @guard
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record that the backward phase ends."""
        (self.monitor or self._watched()).mark("other")

    @guard
    def on_before_optimizer_step(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        optimizer: Optimizer,
    ) -> None:
        """Begin the optimizer step, and record the learning rate."""
        (self.monitor or self._watched()).mark("optimizer")
        rate = optimizer.param_groups[0]["lr"]
        self._open_step.learning_rate = rate if isinstance(rate, float) else None

    @guard
    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Count a batch; end its step and sample the resources if they are due."""
        samples = count_samples(batch) or 0
        is_automatic = pl_module.automatic_optimization
        tokens = count_tokens(batch) if self._has_tokens else None
        if self._batch is None:  # all batches of a loader have the same structure
            self._has_tokens = tokens is not None
        self._open_step.add(samples, tokens, _find_loss(outputs))
        step_before, self._step_before = self._step_before, trainer.global_step
        is_over = self._step_before != step_before or not is_automatic
        self._pace.end_batch(samples, steps=int(is_over))
        monitor = self.monitor or self._watched()
        if is_over:
            parts = trainer.accumulate_grad_batches if is_automatic else 1
            self._open_step.record(monitor, parts=parts, global_step=self._step_before)
            self._open_step = AccumulatedStep()
        # Lightning's index is wrong if the training step itself consumes the loader's iterator.
        self._batch = batch_idx if self._batch is None else self._batch + 1
        if self._batch % self.log_interval == 0:
            monitor.mark("other")
            self._sample_batch(self._batch, step_before, prints=trainer.is_global_zero)
            self._pace.wait()
        monitor.mark("data_wait")

    @guard
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End an epoch of the fit."""
        self._end_saving()
        self._watched().mark("other")
        self._pace.pause()

    @guard
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin validation, except for Lightning's sanity check."""
        if self.monitor is None or trainer.sanity_checking:
            return
        self._end_saving()
        self._validation = {}
        self.monitor.mark("validation")
        self._pause()

    @guard
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End validation, and record the validation values."""
        if self.monitor is None or self._validation is None:
            return
        loss, accuracy, others = sort_validation(self._validation)
        self._validation = None
        self.monitor.log_validation(loss, accuracy, **others)
        self.monitor.mark("data_wait")
        self._go_on()

    @guard
    def on_save_checkpoint(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        checkpoint: dict[str, object],
    ) -> None:
        """Record that Lightning begins to save a checkpoint."""
        if self.monitor is not None and self._logger is not None:
            self._end_saving()
            self._is_saving = True
            self.monitor.mark("checkpoint")
            self._pause()

    @guard
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record that training has ended and that the run is idle."""
        self._end_saving()
        self._watched().mark("idle")

    @guard
    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Record the exception that ends the fit; count a data error if a loader raised it."""
        monitor = self._leave(trainer)
        if monitor is None:
            return
        if _is_from_loader(exception):
            monitor.count_data_error()
        if self._is_own:
            monitor.fail(exception)

    @guard
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End the fit, and finish its monitor unless the monitor was passed in."""
        self._end_saving()
        monitor = self._leave(trainer)
        if monitor is not None and self._is_own:
            monitor.finish()

    def _watched(self) -> TrainingMonitor:
        """Return the monitor of the current fit.

        Raises:
            RuntimeError: `setup` was not called.
        """
        monitor = self.monitor
        if monitor is None:
            raise RuntimeError("setup was not called; add the callback before the fit begins")
        return monitor

    def _leave(self, trainer: Trainer) -> TrainingMonitor | None:
        """End a fit and return its monitor; return None if no fit was in progress."""
        monitor, logger = self.monitor, self._logger
        if logger is None:
            return None
        trainer.loggers = [each for each in trainer.loggers if each is not logger]
        self._logger = None
        if self._is_own:
            self.monitor = None
        self._end()
        return monitor

    @guard
    def _take_values(self, values: Mapping[str, object]) -> None:
        if self.monitor is None:
            return
        if self._validation is not None:
            self._validation.update(values)
            return
        self.monitor.log(
            {
                _TRAINING_NAMES.get(name, name): float(value)
                for name, value in values.items()
                if isinstance(value, int | float)
                and name != "epoch"
                and not name.startswith(_NOT_OURS)
            }
        )

    @guard
    def _end_saving(self) -> None:
        """Record that the checkpoint has been written if Lightning was saving a checkpoint."""
        if self.monitor is not None and self._is_saving:
            self._is_saving = False
            self.monitor.checkpoint_saved()
            self.monitor.mark("data_wait")
            self._go_on()


def _known(number: float | None) -> int | None:
    """Return a limit from Lightning; None if the limit is None, -1, 0 or infinite."""
    return int(number) if number is not None and 0 < number < math.inf else None


def _count_epoch_steps(trainer: Trainer) -> int | None:
    batches = _known(trainer.num_training_batches)
    return None if batches is None else math.ceil(batches / trainer.accumulate_grad_batches)


def _choose_gpus(trainer: Trainer) -> list[int] | None:
    """Return the indices of the GPUs to sample; None (all GPUs) if the Trainer uses no GPU."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return None
    if trainer.local_rank == 0:
        return list(trainer.device_ids)
    return [device.index or 0]


def _find_loss(outputs: object) -> Tensor | None:
    loss: Any = outputs.get("loss") if isinstance(outputs, dict) else outputs
    if not hasattr(loss, "detach"):
        return None
    detached: Tensor = loss.detach() if getattr(loss, "requires_grad", True) else loss
    return detached


def _is_from_loader(exception: BaseException) -> bool:
    """Return whether an exception was raised while a loader was being iterated."""
    trace = exception.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).endswith("pytorch.loops.fetchers"):
            return True
        trace = trace.tb_next
    return False
