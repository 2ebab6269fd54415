"""Vital signs for machines that train models.

Importing this package loads the standard library only, and little of it: what is named below is
loaded when it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true; importing typing costs ten milliseconds
if TYPE_CHECKING:
    from trainvitals.training.memory import MemoryMonitor as MemoryMonitor
    from trainvitals.training.memory import get_gpu_memory_usage as get_gpu_memory_usage
    from trainvitals.training.memory import log_gpu_memory as log_gpu_memory
    from trainvitals.training.monitor import TrainingMonitor as TrainingMonitor

__version__ = "0.1.0"

__all__ = ["MemoryMonitor", "TrainingMonitor", "get_gpu_memory_usage", "log_gpu_memory"]

_HOMES = {
    "MemoryMonitor": "trainvitals.training.memory",
    "TrainingMonitor": "trainvitals.training.monitor",
    "get_gpu_memory_usage": "trainvitals.training.memory",
    "log_gpu_memory": "trainvitals.training.memory",
}


if not TYPE_CHECKING:  # so that checkers refuse names that are not there

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'trainvitals' has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only for who asks

        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
