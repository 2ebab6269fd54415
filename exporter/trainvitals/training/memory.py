"""The accelerator memory of this process, as counted by torch's allocator.

The allocator keeps its counters on the host, so reading them does not wait for a device. The driver
is never queried, because `mem_get_info` can delay collective operations. This module never imports
torch and never initialises a device: if the program itself has not initialised one, nothing is
reported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from trainvitals.training.flops import find_peak_flops

if TYPE_CHECKING:
    from trainvitals.training.journal import Journal

_GIB = 1024**3
# The device types whose allocators keep statistics, by their names in torch.
_KINDS = ("cuda", "xpu", "hpu")


@dataclass(frozen=True, slots=True)
class TorchMemory:
    """The statistics of one device's memory allocator.

    Attributes:
        allocated_bytes: The memory allocated for tensors.
        reserved_bytes: The memory reserved from the driver; None if the allocator does not report
            it.
        peak_bytes: The maximum of `allocated_bytes` since the start, or since the program last
            reset the peak.
        alloc_retries: The number of allocations that succeeded only after cached memory was
            released, which indicates a shortage of memory; None if the allocator does not count
            such allocations.
        ooms: The number of allocations that failed because memory was exhausted; None if the
            allocator does not count failures.
    """

    allocated_bytes: int
    reserved_bytes: int | None
    peak_bytes: int
    alloc_retries: int | None
    ooms: int | None


def read_memory(torch: ModuleType, device: int | None = None) -> TorchMemory | None:
    """Return the statistics of a device's memory allocator.

    The sources are `torch.cuda.memory_stats_as_nested_dict`, its equivalent in `torch.xpu`, and
    `torch.hpu.memory_stats`. The function never resets a peak.

    Args:
        torch: The module `torch`, as imported by the program.
        device: The index of the device in torch; None for the current device.

    Returns:
        The allocator's statistics; None if no device is initialised or the allocator keeps no
        statistics.
    """
    accelerator = _find_accelerator(torch)
    if accelerator is None:
        return None
    try:
        if not hasattr(accelerator, "memory_stats_as_nested_dict"):
            return _from_pool(accelerator.memory_stats(device))
        return _from_allocator(accelerator.memory_stats_as_nested_dict(device))
    except RuntimeError:  # a custom allocator keeps no statistics
        return None


def _find_accelerator(torch: ModuleType | None) -> ModuleType | None:
    """Return torch's module for the initialised device type; None if no device is initialised."""
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
    """Return the statistics of a Gaudi card, whose reserved memory is not reported."""
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
    """A monitor of the peak memory allocated for tensors on the current device.

    Args:
        modules: The loaded modules.

    Attributes:
        max_allocated: The highest value that `update` has returned since the start or the last
            `reset`, in GiB.
    """

    def __init__(self, *, modules: Mapping[str, ModuleType] = sys.modules) -> None:
        self.max_allocated = 0.0
        self._modules = modules

    def update(self) -> float:
        """Return the peak memory allocated on the current device in GiB; 0 without a device."""
        torch = self._modules.get("torch")
        memory = None if torch is None else read_memory(torch)
        if memory is None:
            return 0.0
        current = memory.peak_bytes / _GIB
        self.max_allocated = max(self.max_allocated, current)
        return current

    def reset(self) -> None:
        """Reset `max_allocated` and torch's own peak, which affects other readers of that peak."""
        accelerator = _find_accelerator(self._modules.get("torch"))
        if accelerator is not None:
            accelerator.reset_peak_memory_stats()
        self.max_allocated = 0.0


def get_gpu_memory_usage(*, modules: Mapping[str, ModuleType] = sys.modules) -> tuple[float, float]:
    """Return the allocated memory and the reserved memory of the current device, in GiB.

    Both values are 0 if no device is initialised. The reserved memory is 0 if the allocator does
    not report it.
    """
    torch = modules.get("torch")
    memory = None if torch is None else read_memory(torch)
    if memory is None:
        return 0.0, 0.0
    return memory.allocated_bytes / _GIB, (memory.reserved_bytes or 0) / _GIB


def log_gpu_memory(
    logger: logging.Logger | None = None, *, modules: Mapping[str, ModuleType] = sys.modules
) -> tuple[TorchMemory, ...]:
    """Log the allocated and reserved memory of each device, one line per device.

    A line has the form `GPU 0: 1.50GB allocated, 2.00GB reserved`, where GB means GiB.

    Args:
        logger: The logger that receives the lines at level INFO; None for standard output.
        modules: The loaded modules.

    Returns:
        The statistics of each device, ordered by device index; an empty tuple if no device is
        initialised.
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
            _write_line(logger, f"{kind} {index}: {_describe(memory)}")
    return tuple(readings)


def _describe(memory: TorchMemory) -> str:
    parts = [f"{memory.allocated_bytes / _GIB:.2f}GB allocated"]
    if memory.reserved_bytes is not None:
        parts.append(f"{memory.reserved_bytes / _GIB:.2f}GB reserved")
    return ", ".join(parts)


def _write_line(logger: logging.Logger | None, line: str) -> None:
    if logger is not None:
        logger.info(line)
    elif sys.stdout is not None:
        sys.stdout.write(line + "\n")


_MEMORY_SECONDS = 5.0


class DeviceRecorder:
    """A recorder of the allocator's counters every five seconds, and of the peak FLOP/s once.

    Args:
        journal: The journal in which the values are recorded.
        needs_peak: Whether to look up the device's peak FLOP/s, because the user has set FLOPs per
            sample or token but no peak.
    """

    __slots__ = ("_journal", "_memory_due", "_needs_peak")

    def __init__(self, journal: Journal, *, needs_peak: bool) -> None:
        self._journal = journal
        self._needs_peak = needs_peak
        self._memory_due = 0.0

    def record(self, now: float) -> None:
        """Record the device's memory if five seconds have passed since the last recording.

        This method is called on the training thread.

        Args:
            now: The current time of the monotonic clock, in seconds.
        """
        torch = sys.modules.get("torch")
        if torch is None or now < self._memory_due:
            return
        self._memory_due = now + _MEMORY_SECONDS
        memory = read_memory(torch)
        if memory is None:
            return
        journal = self._journal
        before = journal.get("memory_ooms") or 0.0
        journal.set("memory_allocated_bytes", memory.allocated_bytes)
        journal.set("memory_reserved_bytes", memory.reserved_bytes)
        journal.set("memory_peak_bytes", memory.peak_bytes)
        journal.set("memory_alloc_retries", memory.alloc_retries)
        journal.set("memory_ooms", memory.ooms)
        if (memory.ooms or 0) > before:
            journal.note_oom()
        if self._needs_peak:
            self._needs_peak = False
            journal.set("peak_flops", _find_peak(torch))


def _find_peak(torch: ModuleType) -> float | None:
    """Return the peak FLOP/s of the current device in bfloat16 or, if unknown, in float16."""
    for kind in ("cuda", "hpu"):
        device = getattr(torch, kind, None)
        if device is not None and device.is_initialized():
            name = str(device.get_device_name())
            return find_peak_flops(name) or find_peak_flops(name, "float16")
    return None
