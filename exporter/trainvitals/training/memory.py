"""What torch's allocator says about the memory of this process's accelerators.

All figures are counters that the allocator keeps on the host, so reading them waits for no device.
The driver is never asked (`mem_get_info` can hold up collectives), and torch is never imported here
nor its devices initialised: where the program did not, there is nothing to tell.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

_GIB = 1024**3
# The kinds of device whose allocators keep statistics, as torch names them.
_KINDS = ("cuda", "xpu", "hpu")


@dataclass(frozen=True, slots=True)
class TorchMemory:
    """The allocator's statistics of one device.

    Attributes:
        allocated_bytes: Memory in tensors.
        reserved_bytes: Memory taken from the driver; None where the allocator does not tell.
        peak_bytes: The most memory in tensors since the start or since the program reset it.
        alloc_retries: Allocations that succeeded only after cached memory was given back, a sign
            that memory is tight; None where the allocator does not count them.
        ooms: Allocations that failed for want of memory; None where it does not count them.
    """

    allocated_bytes: int
    reserved_bytes: int | None
    peak_bytes: int
    alloc_retries: int | None
    ooms: int | None


def read_memory(torch: ModuleType, device: int | None = None) -> TorchMemory | None:
    """Read the allocator's statistics.

    Sources: `torch.cuda.memory_stats_as_nested_dict`, its like of `torch.xpu`, and
    `torch.hpu.memory_stats`. Peaks are never reset.

    Args:
        torch: The module torch, as the program imported it.
        device: The index of the device; None for the current one.

    Returns:
        The statistics; None where no device is initialised or its allocator keeps none.
    """
    accelerator = _find_accelerator(torch)
    if accelerator is None:
        return None
    try:
        if not hasattr(accelerator, "memory_stats_as_nested_dict"):
            return _from_pool(accelerator.memory_stats(device))
        return _from_allocator(accelerator.memory_stats_as_nested_dict(device))
    except RuntimeError:  # an allocator from outside of torch keeps no statistics
        return None


def _find_accelerator(torch: ModuleType | None) -> ModuleType | None:
    """Find torch's module of the device that the program has initialised."""
    for kind in _KINDS:
        accelerator: ModuleType | None = getattr(torch, kind, None)
        is_initialized = getattr(accelerator, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return accelerator
    return None


def _from_allocator(stats: Mapping[str, object]) -> TorchMemory | None:
    allocated = _find_number(stats, "allocated_bytes", "all", "current")
    peak = _find_number(stats, "allocated_bytes", "all", "peak")
    if allocated is None or peak is None:
        return None
    return TorchMemory(
        allocated,
        _find_number(stats, "reserved_bytes", "all", "current"),
        peak,
        _find_number(stats, "num_alloc_retries"),
        _find_number(stats, "num_ooms"),
    )


def _from_pool(stats: Mapping[str, object]) -> TorchMemory | None:
    """Read Gaudi's statistics, which know no reserve beside the pool that is taken at the start."""
    allocated, peak = _find_number(stats, "InUse"), _find_number(stats, "MaxInUse")
    if allocated is None or peak is None:
        return None
    return TorchMemory(allocated, None, peak, None, None)


def _find_number(stats: object, *keys: str) -> int | None:
    for key in keys:
        if not isinstance(stats, Mapping):
            return None
        stats = stats.get(key)
    return stats if isinstance(stats, int) else None


class MemoryMonitor:
    """Remembers the most memory that tensors took on the current device.

    Args:
        modules: The modules that are loaded.

    Attributes:
        max_allocated: The highest reading of `update` since the start or the last `reset`, in GiB.
    """

    def __init__(self, *, modules: Mapping[str, ModuleType] = sys.modules) -> None:
        self.max_allocated = 0.0
        self._modules = modules

    def update(self) -> float:
        """Read the peak of allocated memory, in GiB; 0 where no device is initialised."""
        torch = self._modules.get("torch")
        memory = None if torch is None else read_memory(torch)
        if memory is None:
            return 0.0
        current = memory.peak_bytes / _GIB
        self.max_allocated = max(self.max_allocated, current)
        return current

    def reset(self) -> None:
        """Forget the peak, torch's own included: what else reads torch's peaks starts anew too."""
        accelerator = _find_accelerator(self._modules.get("torch"))
        if accelerator is not None:
            accelerator.reset_peak_memory_stats()
        self.max_allocated = 0.0


def get_gpu_memory_usage(*, modules: Mapping[str, ModuleType] = sys.modules) -> tuple[float, float]:
    """Give allocated and reserved memory of the current device, in GiB.

    Both are 0 where no device is initialised; a device that does not tell its reserve has 0 there.
    """
    torch = modules.get("torch")
    memory = None if torch is None else read_memory(torch)
    if memory is None:
        return 0.0, 0.0
    return memory.allocated_bytes / _GIB, (memory.reserved_bytes or 0) / _GIB


def log_gpu_memory(
    logger: logging.Logger | None = None, *, modules: Mapping[str, ModuleType] = sys.modules
) -> tuple[TorchMemory, ...]:
    """Log the memory of each device, one line for each.

    A line reads `GPU 0: 1.50GB allocated, 2.00GB reserved, 1.75GB max`, where GB is GiB.

    Args:
        logger: Takes the lines at level INFO; None writes them to standard output.
        modules: The modules that are loaded.

    Returns:
        The reading of each device in order; empty where no device is initialised.
    """
    torch = modules.get("torch")
    accelerator = _find_accelerator(torch)
    if torch is None or accelerator is None:
        return ()
    kind = "HPU" if hasattr(torch, "hpu") and accelerator is torch.hpu else "GPU"
    readings = []
    for index in range(accelerator.device_count()):
        memory = read_memory(torch, index)
        if memory is not None:
            readings.append(memory)
            _say(logger, f"{kind} {index}: {_describe(memory)}")
    return tuple(readings)


def _describe(memory: TorchMemory) -> str:
    parts = [f"{memory.allocated_bytes / _GIB:.2f}GB allocated"]
    if memory.reserved_bytes is not None:
        parts.append(f"{memory.reserved_bytes / _GIB:.2f}GB reserved")
    parts.append(f"{memory.peak_bytes / _GIB:.2f}GB max")
    return ", ".join(parts)


def _say(logger: logging.Logger | None, line: str) -> None:
    if logger is not None:
        logger.info(line)
    elif sys.stdout is not None:
        sys.stdout.write(line + "\n")
