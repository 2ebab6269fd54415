"""The callback for Lightning's Trainer: resources, alerts, a CSV, and the run for the exporter.

    from trainvitals.lightning import ResourceMonitorCallback

    trainer = Trainer(callbacks=[ResourceMonitorCallback(log_interval=50)])

It is a callback of both distributions, `lightning` and `pytorch-lightning`, whichever is installed.

- Phases, by the order of Lightning's hooks: data wait is from the end of a batch to the start of
  the next and includes the copy to the device; forward ends where backward begins; the optimizer's
  phase lasts from just before its step to the end of the batch. On a GPU these are times of the
  host, which launches the work. Saving a checkpoint ends, on ranks other than 0, with the next
  batch, because Lightning tells only rank 0 when the file is written.
- A step is an optimizer step. Samples and tokens of the batches accumulated for it are summed, and
  its loss is the mean of theirs, where Lightning itself divides each by their number.
- Named values come through a logger of our own, which gets what Lightning has already reduced over
  the ranks. Asking `trainer.callback_metrics` instead can hang a run of several ranks. Where a
  Trainer has no other logger, this makes it read the logged values off the device every
  `log_every_n_steps`, as any logger would.
- Nothing is read off the device otherwise, no rank waits for another, and an error in here ends no
  fit: it is logged, and after ten the callback switches itself off.
- Rank 0 of a machine looks at all GPUs that the Trainer uses there, every other rank at its own.

Source: lightning 2.6, `_TrainingEpochLoop.advance`, `_EvaluationLoop.on_run_end`.
"""

# ruff: noqa: ARG002 - Lightning decides about the parameters of its hooks

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from trainvitals.training.batch import count_samples, count_tokens
from trainvitals.training.monitor import TrainingMonitor
from trainvitals.training.outer import guard
from trainvitals.training.resourcemonitor import ResourceMonitor
from trainvitals.training.validationvalues import sort_validation

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers.logger import DummyLogger
    from torch import Tensor
    from torch.optim import Optimizer

_NAMES = ("lightning.pytorch", "pytorch_lightning")
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
# A callback of Lightning's own tells every logger 50 numbers and more.
_NOT_OURS = ("DeviceStatsMonitor",)
_TRAINING_NAMES = {
    "train_acc": "accuracy",
    "train_accuracy": "accuracy",
    "train/acc": "accuracy",
    "train/accuracy": "accuracy",
    "acc": "accuracy",
    "grad_norm": "gradient_norm",
}


def _import_packages() -> list[ModuleType]:
    found = [package for name in _NAMES if (package := _import_package(name)) is not None]
    if not found:
        raise ImportError("trainvitals.lightning needs Lightning: run `pip install lightning`")
    return found


def _import_package(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):  # it is there, and lacks something
            raise
        return None


_PACKAGES = _import_packages()

if not TYPE_CHECKING:

    class Callback(*(package.Callback for package in _PACKAGES)):
        """A callback of every Lightning that is installed."""

    class DummyLogger(*(package.loggers.logger.DummyLogger for package in _PACKAGES)):
        """A logger of every Lightning that is installed."""


class ResourceMonitorCallback(ResourceMonitor, Callback):
    """Watches the resources of a fit, and tells of the run in the run file.

    It takes the arguments of `ResourceMonitor`, those of the configuration file among them.

    Attributes:
        errors: What went wrong in the callback; it is logged once and never reaches the Trainer.
    """

    _hooks = _HOOKS

    def _begin(self, *, rank: int) -> None:
        super()._begin(rank=rank)
        self._open_step = _OpenStep()
        self._step_before = 0
        self._batch: int | None = None
        self._has_tokens = True
        self._validation: dict[str, object] | None = None
        self._is_saving = False
        self._is_own = self.monitor is None
        self._logger: _ValuesLogger | None = None

    @guard
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin a fit; validating, testing and predicting alone are not watched."""
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
                framework_version=_find_version(trainer),
                notify=self._notify,
            )
        logger = _ValuesLogger(self._take_values, self._end_saving, trainer.default_root_dir)
        self._logger = logger
        trainer.loggers = [*trainer.loggers, logger]

    @guard
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell how much there is to do, and where a resumed run goes on."""
        monitor = self._watched()
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
        """Begin an epoch: from here on the run waits for data."""
        self._end_saving()
        self.current_epoch = trainer.current_epoch
        self._batch = None
        self._has_tokens = True
        self._open_step = _OpenStep()
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
        """The batch is there: forward."""
        if self._is_saving:
            self._end_saving()
        self._pace.begin_batch()
        self._step_before = trainer.global_step
        self._watched().mark("forward")

    @guard
    def on_before_backward(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        loss: Tensor,
    ) -> None:
        """Forward is over."""
        self._watched().mark("backward")

    @guard
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Backward is over."""
        self._watched().mark("other")

    @guard
    def on_before_optimizer_step(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        optimizer: Optimizer,
    ) -> None:
        """Note the learning rate with which the step is made."""
        self._watched().mark("optimizer")
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
        """Count the batch, end the step where it was its last, and look at the resources."""
        samples = count_samples(batch) or 0
        is_automatic = pl_module.automatic_optimization
        tokens = count_tokens(batch) if self._has_tokens else None
        if self._batch is None:  # batches of a loader are alike
            self._has_tokens = tokens is not None
        self._open_step.add(samples, tokens, _find_loss(outputs))
        is_over = trainer.global_step != self._step_before or not is_automatic
        self._pace.end_batch(samples, steps=int(is_over))
        monitor = self._watched()
        if is_over:
            parts = trainer.accumulate_grad_batches if is_automatic else 1
            self._open_step.tell(monitor, parts=parts, global_step=trainer.global_step)
            self._open_step = _OpenStep()
        # Lightning's index cannot be relied on where a step takes the loader's iterator itself.
        self._batch = batch_idx if self._batch is None else self._batch + 1
        if self._batch % self.log_interval == 0:
            monitor.mark("other")
            self._look(self._batch, self._step_before, prints=trainer.is_global_zero)
            self._pace.wait()
        monitor.mark("data_wait")

    @guard
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The epoch is over."""
        self._end_saving()
        self._watched().mark("other")
        self._pace.pause()

    @guard
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation begins; Lightning's check of the first batches is none."""
        if self.monitor is None or trainer.sanity_checking:
            return
        self._end_saving()
        self._validation = {}
        self.monitor.mark("validation")
        self._pause()

    @guard
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell what validation gave."""
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
        """Saving a checkpoint begins."""
        if self.monitor is not None and self._logger is not None:
            self._end_saving()
            self._is_saving = True
            self.monitor.mark("checkpoint")
            self._pause()

    @guard
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training is over."""
        self._end_saving()
        self._watched().mark("idle")

    @guard
    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """The fit ends by an exception, whose class is recorded."""
        monitor = self._leave(trainer)
        if monitor is None:
            return
        if _is_from_loader(exception):
            monitor.count_data_error()
        if self._is_own:
            monitor.fail(exception)

    @guard
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """The fit is over."""
        self._end_saving()
        monitor = self._leave(trainer)
        if monitor is not None and self._is_own:
            monitor.finish()

    def _watched(self) -> TrainingMonitor:
        """Give the monitor, without which no fit was begun."""
        monitor = self.monitor
        if monitor is None:
            raise RuntimeError("setup was not called; add the callback before the fit begins")
        return monitor

    def _leave(self, trainer: Trainer) -> TrainingMonitor | None:
        """End a fit: give its monitor, None where there was no fit."""
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
                if isinstance(value, int | float) and name != "epoch" and not _is_foreign(name)
            }
        )

    @guard
    def _end_saving(self) -> None:
        """The checkpoint that was being saved, if one was, is safe."""
        if self.monitor is not None and self._is_saving:
            self._is_saving = False
            self.monitor.checkpoint_saved()
            self.monitor.mark("data_wait")
            self._go_on()


class _OpenStep:
    """What the batches of an optimizer step had until now."""

    __slots__ = ("_losses", "_samples", "_tokens", "learning_rate")

    def __init__(self) -> None:
        self.learning_rate: float | None = None
        self._samples = 0
        self._tokens: int | None = None
        self._losses: list[Tensor] = []

    def add(self, samples: int, tokens: int | None, loss: Tensor | None) -> None:
        self._samples += samples
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens
        if loss is not None:
            self._losses.append(loss)

    def tell(self, monitor: TrainingMonitor, *, parts: int, global_step: int) -> None:
        """End the step; each loss was divided by `parts`, however many there are."""
        loss: Tensor | None = None
        for part in self._losses:
            loss = part if loss is None else loss + part
        if loss is not None and len(self._losses) != parts:
            loss = loss * (parts / len(self._losses))
        monitor.update_batch(
            self._samples,
            loss=loss,
            tokens=self._tokens,
            learning_rate=self.learning_rate,
            global_step=global_step,
        )


class _ValuesLogger(DummyLogger):
    """Gets the values that Lightning logs, and nothing else that a logger is asked for.

    Where it is the Trainer's only logger, checkpoints go where they would without one.
    """

    def __init__(
        self,
        take: Callable[[Mapping[str, object]], object],
        end_saving: Callable[[], object],
        save_dir: str,
    ) -> None:
        super().__init__()
        self._take = take
        self._end_saving = end_saving
        self._save_dir = save_dir

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return self._save_dir

    def log_metrics(self, metrics: Mapping[str, object], step: int | None = None) -> None:
        self._take(metrics)

    def after_save_checkpoint(self, checkpoint_callback: object) -> None:
        self._end_saving()


def _find_version(trainer: Trainer) -> str:
    used = (package for package in _PACKAGES if isinstance(trainer, package.Trainer))
    return str(next(used, _PACKAGES[0]).__version__)


def _known(number: float | None) -> int | None:
    """Give a number of Lightning's; its -1 and infinity mean that there is none."""
    return int(number) if number is not None and 0 < number < math.inf else None


def _count_epoch_steps(trainer: Trainer) -> int | None:
    batches = _known(trainer.num_training_batches)
    return None if batches is None else math.ceil(batches / trainer.accumulate_grad_batches)


def _choose_gpus(trainer: Trainer) -> list[int] | None:
    """Give the GPUs to look at, as in `cuda:1`; None for all where the Trainer uses none."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return None
    if trainer.local_rank == 0:
        return list(trainer.device_ids)
    return [device.index or 0]


def _find_loss(outputs: object) -> Tensor | None:
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    detach = getattr(loss, "detach", None)
    return detach() if detach is not None else None


def _is_foreign(name: str) -> bool:
    return name.startswith(_NOT_OURS)


def _is_from_loader(exception: BaseException) -> bool:
    """Tell whether an exception comes from the iteration of a loader."""
    trace = exception.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).endswith("pytorch.loops.fetchers"):
            return True
        trace = trace.tb_next
    return False
