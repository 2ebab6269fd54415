"""Vital signs for machines that train models.

Importing this package loads only a small part of the standard library; each public name of the
package is loaded on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # True for type checkers; importing typing costs ten milliseconds
if TYPE_CHECKING:
    from trainvitals.retry import CircuitBreaker as CircuitBreaker
    from trainvitals.retry import CircuitState as CircuitState
    from trainvitals.retry import retry_with_backoff as retry_with_backoff
    from trainvitals.training.memory import MemoryMonitor as MemoryMonitor
    from trainvitals.training.memory import get_gpu_memory_usage as get_gpu_memory_usage
    from trainvitals.training.memory import log_gpu_memory as log_gpu_memory
    from trainvitals.training.monitor import TrainingMonitor as TrainingMonitor

__version__ = "0.1.0"

__all__ = [
    "CircuitBreaker",
    "CircuitState",
    "MemoryMonitor",
    "TrainingMonitor",
    "get_gpu_memory_usage",
    "log_gpu_memory",
    "retry_with_backoff",
]

_HOMES = {
    "CircuitBreaker": "trainvitals.retry",
    "CircuitState": "trainvitals.retry",
    "MemoryMonitor": "trainvitals.training.memory",
    "TrainingMonitor": "trainvitals.training.monitor",
    "get_gpu_memory_usage": "trainvitals.training.memory",
    "log_gpu_memory": "trainvitals.training.memory",
    "retry_with_backoff": "trainvitals.retry",
}


if not TYPE_CHECKING:  # so that type checkers report missing names

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'trainvitals' has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only when needed

        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
