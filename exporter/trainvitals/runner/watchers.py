"""Observes PyTorch and adds callbacks to other frameworks, after the framework has been imported.

Each function is called with the imported module; see `imports`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from trainvitals.training.autolog.observer import Autolog


def watch_torch(torch: ModuleType) -> None:
    """Observe PyTorch's training loops in this process."""
    if Autolog.active is not None:  # PyTorch was loaded a second time
        return
    Autolog(torch).install()
    for name, watch in _PARTS_OF_TORCH.items():
        module = sys.modules.get(name)
        if module is not None:
            watch(module)


def watch_sharded_checkpoints(module: Any) -> None:  # noqa: ANN401 - `torch.distributed.checkpoint`
    """Observe the checkpoints that all ranks save together with PyTorch."""
    if Autolog.active is not None:
        Autolog.active.watch_saving(module, "save")
        Autolog.active.watch_saving(module, "async_save")


def watch_sharded_scaler(module: Any) -> None:  # noqa: ANN401 - `torch…fsdp.sharded_grad_scaler`
    """Observe FSDP's gradient scaler."""
    if Autolog.active is not None:
        Autolog.active.watch_scaler(module.ShardedGradScaler)


_PARTS_OF_TORCH: dict[str, Callable[[Any], None]] = {
    "torch.distributed.checkpoint": watch_sharded_checkpoints,
    "torch.distributed.fsdp.sharded_grad_scaler": watch_sharded_scaler,
}


def watch_safetensors(module: Any) -> None:  # noqa: ANN401 - `safetensors.torch`
    """Observe the checkpoints that are saved in the safetensors format."""
    if Autolog.active is not None:
        Autolog.active.watch_saving(module, "save_file")


def watch_stateful_loader(module: Any) -> None:  # noqa: ANN401 - `torchdata.stateful_dataloader…`
    """Observe the batches that torchdata's data loaders return."""
    if Autolog.active is not None:
        Autolog.active.watch_loader(module._BaseDataLoaderIter)  # noqa: SLF001 - no public one


def watch_accelerate(module: Any) -> None:  # noqa: ANN401 - `accelerate.accelerator`
    """Observe the loss that an `Accelerator` divides by the number of accumulated batches."""
    if Autolog.active is not None:
        Autolog.active.watch_backward(
            module.Accelerator,
            value_at=1,
            count_parts=lambda accelerator: accelerator.gradient_accumulation_steps,
        )


def watch_deepspeed(module: Any) -> None:  # noqa: ANN401 - `deepspeed.runtime.engine`
    """Observe the steps and the loss in DeepSpeed's engine."""
    if Autolog.active is not None:
        Autolog.active.watch_engine(module.DeepSpeedEngine)
        Autolog.active.watch_backward(
            module.DeepSpeedEngine,
            value_at=1,
            count_parts=lambda engine: engine.gradient_accumulation_steps(),
        )


def watch_transformers(module: Any) -> None:  # noqa: ANN401 - `transformers.trainer_callback`
    """Add `TrainvitalsCallback` to each Transformers trainer that does not have this callback."""
    handler = module.CallbackHandler
    original = handler.__init__

    @wraps(original)
    def init(self: Any, callbacks: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        from trainvitals.huggingface import TrainvitalsCallback  # noqa: PLC0415 - needs it loaded

        original(self, callbacks, *args, **kwargs)
        if not any(isinstance(each, TrainvitalsCallback) for each in self.callbacks):
            self.add_callback(TrainvitalsCallback())

    handler.__init__ = init


def watch_lightning(module: Any) -> None:  # noqa: ANN401 - `lightning.pytorch.trainer.trainer`
    """Add `ResourceMonitorCallback` to each Lightning trainer that does not have this callback.

    A Lightning entry point is not used. It would load the package in every Lightning training, even
    without `trainvitals run`, and would work only in the environment that contains the package.
    """
    trainer = module.Trainer
    original = trainer.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        from trainvitals.lightning import ResourceMonitorCallback  # noqa: PLC0415 - needs it loaded

        original(self, *args, **kwargs)
        if any(isinstance(each, ResourceMonitorCallback) for each in self.callbacks):
            return
        # The callback prints and writes nothing.
        self.callbacks.append(
            ResourceMonitorCallback(
                log_interval=50,
                gpu_monitoring=False,
                cpu_monitoring=False,
                io_monitoring=False,
                export_timeseries=False,
                write=_write_nothing,
            )
        )

    trainer.__init__ = init


def _write_nothing(_: str) -> None:
    """Discard the text.

    This is a module-level function, so that a trainer that refers to the function can be pickled.
    """


class _Keras:
    """The batch size of the most recent Keras data set; None if the batch size is unknown."""

    batch_size: int | None = None


def watch_keras_data(module: Any) -> None:  # noqa: ANN401 - `keras.src.trainers.epoch_iterator`
    """Record the batch size, which Keras does not pass to callbacks."""
    iterator = module.EpochIterator
    original = iterator.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        size = getattr(self.data_adapter, "batch_size", None)
        _Keras.batch_size = size if isinstance(size, int) else None

    iterator.__init__ = init


def watch_keras(module: Any) -> None:  # noqa: ANN401 - `keras.src.callbacks.callback_list`
    """Add `TrainvitalsCallback` to each call of Keras's `fit` that does not have this callback."""
    container = module.CallbackList
    original = container.__init__

    @wraps(original)
    def init(self: Any, callbacks: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        from trainvitals.keras import TrainvitalsCallback  # noqa: PLC0415 - needs it loaded

        given = list(callbacks or ()) if isinstance(callbacks, list | tuple) else callbacks
        is_fit = bool(args[0] if args else kwargs.get("add_history"))
        lacks = not any(isinstance(each, TrainvitalsCallback) for each in given or ())
        if is_fit and lacks and (given is None or isinstance(given, list)):
            given = [*(given or ()), TrainvitalsCallback(batch_size=_Keras.batch_size)]
        original(self, given, *args, **kwargs)

    container.__init__ = init
