"""Memory statistics of torch's allocators."""

from __future__ import annotations

import logging
from types import ModuleType, SimpleNamespace

import pytest

from trainvitals.training.memory import (
    MemoryMonitor,
    TorchMemory,
    get_gpu_memory_usage,
    log_gpu_memory,
    read_memory,
)

GIB = 1073741824


class Allocator:
    """A substitute for `torch.cuda` with two devices."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.initialized = initialized
        self.peaks = [3 * GIB, GIB // 2]
        self.resets = 0

    def is_initialized(self) -> bool:
        """Return whether the program has initialised the device."""
        return self.initialized

    def device_count(self) -> int:
        """Return the number of devices."""
        return 2

    def memory_stats_as_nested_dict(self, device: int | None) -> dict[str, object]:
        """Return statistics in torch's format, including unused ones."""
        index = device or 0
        allocated = {"current": (GIB * 3 // 2, 0)[index], "peak": self.peaks[index], "freed": 7}
        return {
            "allocated_bytes": {"all": allocated, "small_pool": {"current": 1, "peak": 1}},
            "reserved_bytes": {"all": {"current": (2 * GIB, GIB)[index], "peak": 9 * GIB}},
            "num_alloc_retries": 4,
            "num_ooms": index,
        }

    def reset_peak_memory_stats(self) -> None:
        """Count the calls."""
        self.resets += 1


def torch_with(**accelerators: object) -> ModuleType:
    """Return a module named torch with the given devices."""
    torch = ModuleType("torch")
    for name, accelerator in accelerators.items():
        setattr(torch, name, accelerator)
    return torch


def gaudi(stats: dict[str, int]) -> SimpleNamespace:
    """Return a substitute for `torch.hpu` with the given statistics."""
    return SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        memory_stats=lambda _device: stats,
    )


def test_the_allocator_of_the_current_device_is_read():
    """Sizes, retries and out-of-memory errors of the current device are read."""
    assert read_memory(torch_with(cuda=Allocator())) == TorchMemory(
        1610612736, 2147483648, 3221225472, 4, 0
    )


def test_another_device_can_be_named():
    """The statistics of the second device are read if its index is given."""
    assert read_memory(torch_with(cuda=Allocator()), 1) == TorchMemory(
        0, 1073741824, 536870912, 4, 1
    )


def test_reading_never_resets_the_peaks():
    """Reading the statistics does not reset the peaks, because other code relies on them."""
    allocator = Allocator()
    read_memory(torch_with(cuda=allocator))
    assert allocator.resets == 0


@pytest.mark.parametrize(
    "torch", [torch_with(), torch_with(cuda=Allocator(initialized=False), hpu=None)]
)
def test_a_device_that_nobody_uses_is_left_alone(torch: ModuleType):
    """A device that the program has not initialised is not queried."""
    assert read_memory(torch) is None


def test_a_device_without_counts_of_failures():
    """If an allocator does not count retries, their number is None."""
    stats = {"allocated_bytes": {"all": {"current": 1, "peak": 2}}}
    accelerator = SimpleNamespace(
        is_initialized=lambda: True, memory_stats_as_nested_dict=lambda _device: stats
    )
    assert read_memory(torch_with(xpu=accelerator)) == TorchMemory(1, None, 2, None, None)


def test_gaudi_is_read():
    """The statistics of a Gaudi card give the memory in use and its peak."""
    stats = {"Limit": 90, "InUse": 30, "MaxInUse": 60}
    assert read_memory(torch_with(hpu=gaudi(stats))) == TorchMemory(30, None, 60, None, None)


@pytest.mark.parametrize("stats", [{}, {"InUse": "much", "MaxInUse": 5}])
def test_statistics_that_are_not_understood_are_unknown(stats: dict[str, int]):
    """Statistics in an unexpected format give None, not 0."""
    assert read_memory(torch_with(hpu=gaudi(stats))) is None


def test_an_allocator_that_keeps_no_statistics_is_unknown():
    """If a pluggable allocator raises because it keeps no statistics, the reading is None."""

    def refuse(device: int | None) -> dict[str, object]:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

    accelerator = SimpleNamespace(is_initialized=lambda: True, memory_stats_as_nested_dict=refuse)
    assert read_memory(torch_with(cuda=accelerator)) is None


def test_the_monitor_remembers_the_highest_peak():
    """`update` returns the allocator's peak in GiB, and `max_allocated` the highest peak so far."""
    allocator = Allocator()
    monitor = MemoryMonitor(modules={"torch": torch_with(cuda=allocator)})
    assert monitor.max_allocated == 0
    assert monitor.update() == 3.0
    allocator.peaks[0] = GIB
    assert monitor.update() == 1.0
    assert monitor.max_allocated == 3.0


def test_the_monitor_can_be_reset():
    """`reset` clears the monitor's peak and the allocator's peak."""
    allocator = Allocator()
    monitor = MemoryMonitor(modules={"torch": torch_with(cuda=allocator)})
    monitor.update()
    monitor.reset()
    assert monitor.max_allocated == 0
    assert allocator.resets == 1


@pytest.mark.parametrize("modules", [{}, {"torch": torch_with(cuda=Allocator(initialized=False))}])
def test_without_a_device_the_monitor_says_zero(modules: dict[str, ModuleType]):
    """Without torch or an initialised device, the values are 0 and no line is logged."""
    monitor = MemoryMonitor(modules=modules)
    assert monitor.update() == 0.0
    monitor.reset()
    assert monitor.max_allocated == 0.0
    assert get_gpu_memory_usage(modules=modules) == (0.0, 0.0)
    assert log_gpu_memory(modules=modules) == ()


def test_the_usage_of_the_current_device():
    """`get_gpu_memory_usage` returns allocated and reserved memory in GiB."""
    assert get_gpu_memory_usage(modules={"torch": torch_with(cuda=Allocator())}) == (1.5, 2.0)


def test_each_gpu_has_a_line(capsys: pytest.CaptureFixture[str]):
    """Without a logger, `log_gpu_memory` prints a line for each GPU to standard output."""
    readings = log_gpu_memory(modules={"torch": torch_with(cuda=Allocator())})
    assert capsys.readouterr().out == (
        "GPU 0: 1.50GB allocated, 2.00GB reserved\nGPU 1: 0.00GB allocated, 1.00GB reserved\n"
    )
    assert [reading.ooms for reading in readings] == [0, 1]


def test_a_logger_gets_the_lines(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    """With a logger, the lines are logged and not printed, and a Gaudi card is named HPU."""
    torch = torch_with(hpu=gaudi({"InUse": GIB, "MaxInUse": 2 * GIB}))
    with caplog.at_level(logging.INFO):
        log_gpu_memory(logging.getLogger("run"), modules={"torch": torch})
    assert caplog.messages == ["HPU 0: 1.00GB allocated"]
    assert capsys.readouterr().out == ""
