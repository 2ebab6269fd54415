"""What is done after the import of a framework: the observation of PyTorch, and added callbacks.

The functions are called with the module that was imported (see `imports`).
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from trainvitals.training.autolog import Autolog


def watch_torch(torch: ModuleType) -> None:
    """Observe the training loops of PyTorch in this process."""
    Autolog(torch).install()


def watch_transformers(module: Any) -> None:  # noqa: ANN401 - `transformers.trainer_callback`
    """Add the callback to each trainer of Transformers that lacks it."""
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
    """Add the callback to each trainer of Lightning that lacks it."""
    trainer = module.Trainer
    original = trainer.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        from trainvitals.lightning import ResourceMonitorCallback  # noqa: PLC0415 - needs it loaded

        original(self, *args, **kwargs)
        if not any(isinstance(each, ResourceMonitorCallback) for each in self.callbacks):
            self.callbacks.append(ResourceMonitorCallback())

    trainer.__init__ = init


def watch_keras(module: Any) -> None:  # noqa: ANN401 - `keras.src.callbacks.callback_list`
    """Add the callback to each training of Keras that lacks it."""
    container = module.CallbackList
    original = container.__init__

    @wraps(original)
    def init(self: Any, callbacks: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        from trainvitals.keras import TrainvitalsCallback  # noqa: PLC0415 - needs it loaded

        given = list(callbacks or ()) if isinstance(callbacks, list | tuple) else callbacks
        is_fit = bool(args[0] if args else kwargs.get("add_history"))
        lacks = not any(isinstance(each, TrainvitalsCallback) for each in given or ())
        if is_fit and lacks and (given is None or isinstance(given, list)):
            given = [*(given or ()), TrainvitalsCallback()]
        original(self, given, *args, **kwargs)

    container.__init__ = init
