"""The numbers of a snapshot, under the names that CSV files and JSON lines share.

`trainvitals.lightning.ResourceMonitorCallback` writes the same names for the same things, so that
`trainvitals plot` draws both. Sizes are MiB, rates MiB/s, shares percent.

| name | tells |
| --- | --- |
| `uptime_seconds` | since the machine was started; it goes on evenly when the clock is set |
| `cpu_percent`, `io_wait_pct` | CPU time of all cores that was used, that waited for I/O |
| `load_1m` | the load average of a minute |
| `memory_percent`, `memory_used_mb`, `memory_available_mb`, `memory_system_mb` | RAM in use, what can be had without swapping, and what there is |
| `swap_percent`, `swap_used_mb` | swap in use; left out where there is none |
| `io_read_rate_mbps`, `io_write_rate_mbps` | all disks, since the snapshot before |
| `net_recv_mbps`, `net_sent_mbps` | all physical interfaces, since the snapshot before |
| `processes` | how many there are |
| `oom_kills` | kills for want of memory since the snapshot before |
| `containers`, `containers_running`, `container_deaths` | how many are known, how many run, and how many died since the snapshot before |
| `gpu_0_up` | 1 where the device can be read, 0 where it is lost, hung or without a driver |
| `gpu_0_util` | use |
| `gpu_0_memory_pct`, `gpu_0_memory_used_mb`, `gpu_0_memory_total_mb` | memory that programs hold |
| `gpu_0_temp_c`, `gpu_0_power_w` | temperature of the chip in degrees Celsius, power draw |
| `disk_/data_used_pct`, `disk_/data_free_mb` | the file system that is mounted there |

Gaudi cards are `hpu_0_…`. What is not known has no number.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.record.snapshot import Snapshot
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.filesystem import Filesystem
from trainvitals.sources.memory import MemoryReading

_MIB = 1 << 20

Number = tuple[str, float | None]


def list_numbers(snapshot: Snapshot) -> dict[str, float]:
    """Give what is known, in the order in which files have it."""
    numbers: list[Number] = [
        *_count_machine(snapshot),
        *_count_containers(snapshot),
    ]
    for device in snapshot.accelerators.devices if snapshot.accelerators else ():
        numbers += _count_device(device)
    for one in snapshot.filesystems.filesystems if snapshot.filesystems else ():
        numbers += _count_filesystem(one)
    return {name: value for name, value in numbers if value is not None}


def _count_machine(snapshot: Snapshot) -> Iterator[Number]:
    cpu, flows = snapshot.cpu, snapshot.flows
    yield "uptime_seconds", snapshot.uptime_seconds
    if cpu is not None:
        yield "cpu_percent", cpu.utilization_percent
        yield "io_wait_pct", None if cpu.io_wait_ratio is None else 100 * cpu.io_wait_ratio
        yield "load_1m", cpu.load1
    if snapshot.memory is not None:
        yield from _count_memory(snapshot.memory)
    for name, rate in (
        ("io_read_rate_mbps", flows.read),
        ("io_write_rate_mbps", flows.written),
        ("net_recv_mbps", flows.received),
        ("net_sent_mbps", flows.transmitted),
    ):
        yield name, None if rate is None else rate / _MIB
    yield "processes", None if snapshot.processes is None else snapshot.processes.count
    yield "oom_kills", snapshot.oom_kills


def _count_memory(memory: MemoryReading) -> Iterator[Number]:
    yield "memory_percent", _percent(memory.used_bytes, memory.total_bytes)
    yield "memory_used_mb", memory.used_bytes / _MIB
    yield "memory_available_mb", memory.available_bytes / _MIB
    yield "memory_system_mb", memory.total_bytes / _MIB
    if memory.swap_total_bytes:
        yield "swap_percent", _percent(memory.swap_used_bytes, memory.swap_total_bytes)
        yield "swap_used_mb", memory.swap_used_bytes / _MIB


def _count_containers(snapshot: Snapshot) -> Iterator[Number]:
    if snapshot.containers is None:
        return
    containers = snapshot.containers.containers
    yield "containers", len(containers)
    yield "containers_running", sum(one.status in (None, "running") for one in containers)
    yield "container_deaths", len(snapshot.new_deaths)


def _count_device(device: AcceleratorReading) -> Iterator[Number]:
    name = f"{device.identity.kind}_{device.identity.index}"
    now = device.measurements
    yield f"{name}_up", float(now is not None)
    if now is None:
        return
    used, total = now.memory_used_bytes, now.memory_total_bytes
    utilization = now.utilization_ratio
    yield f"{name}_util", None if utilization is None else 100 * utilization
    yield f"{name}_memory_pct", _percent(used, total)
    yield f"{name}_memory_used_mb", None if used is None else used / _MIB
    yield f"{name}_memory_total_mb", None if total is None else total / _MIB
    yield f"{name}_temp_c", now.temperature_core_celsius
    yield f"{name}_power_w", now.power_watts


def _count_filesystem(one: Filesystem) -> Iterator[Number]:
    if one.space is None:
        return
    # A line of a CSV file must not end inside a name.
    where = "".join(letter if letter.isprintable() else "?" for letter in one.mountpoint)
    size, free = one.space.size_bytes, one.space.avail_bytes
    yield f"disk_{where}_used_pct", _percent(size - free, size)
    yield f"disk_{where}_free_mb", free / _MIB


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole
