"""Tests for the machine state that is reported with a rank."""

from __future__ import annotations

from pathlib import Path

from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Measurements,
    ProcessMemory,
)
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.machine_state import MachineState

MACHINE = Path(__file__).parents[3] / "fixtures/machine"


def device(index: int, *pids: int, measurements: Measurements | None) -> AcceleratorReading:
    """Return a GPU and the processes that hold its memory."""
    return AcceleratorReading(
        Identity("gpu", index, f"GPU-{index}", "H100", "0000:01:00.0", "550"),
        "ok",
        1000.0,
        measurements,
        tuple(ProcessMemory(pid, 1 << 30) for pid in pids),
    )


def surround() -> MachineState:
    """Return the state of a machine with three GPUs, one of which cannot be read."""
    source = AcceleratorSource(vendors=())
    measured = Measurements(utilization_ratio=0.75, memory_used_bytes=5, power_watts=300.0)
    source.latest = AcceleratorsReading(
        (
            device(0, 41, 42, measurements=measured),
            device(1, 42, measurements=measured),
            device(2, measurements=None),
        )
    )
    return MachineState(source, roots=Roots(procfs=MACHINE / "proc"))


def test_a_process_holds_the_devices_whose_memory_it_has():
    """A process may hold several devices, and a device may be held by several processes."""
    assert surround().holders() == {41: ("GPU-0",), 42: ("GPU-0", "GPU-1")}


def test_the_machine_is_described_by_memory_and_by_the_devices_asked_for():
    """Values that a device does not report and devices that were not requested are left out."""
    assert surround().describe(["GPU-1", "GPU-2", "GPU-9"]) == {
        "memory_available_bytes": 8388608000.0,
        "memory_total_bytes": 16777216000.0,
        "gpu1_utilization_ratio": 0.75,
        "gpu1_memory_used_bytes": 5,
        "gpu1_power_watts": 300.0,
    }


def test_nothing_is_claimed_before_somebody_has_read_the_accelerators(tmp_path: Path):
    """Before the first reading of the accelerators, neither holders nor values are reported."""
    for source in (None, AcceleratorSource(vendors=())):
        machine = MachineState(source, roots=Roots(procfs=tmp_path))
        assert machine.holders() == {}
        assert machine.describe(["GPU-0"]) == {}


def test_memory_that_the_kernel_does_not_report_is_not_described(tmp_path: Path):
    """The total memory is reported even if the available memory is unknown."""
    (tmp_path / "meminfo").write_text("MemTotal: 2 kB\n")
    state = MachineState(None, roots=Roots(procfs=tmp_path))
    assert state.describe(()) == {"memory_total_bytes": 2048.0}
