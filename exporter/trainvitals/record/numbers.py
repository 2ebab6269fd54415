"""The numbers of a snapshot, and their names in CSV files and JSON Lines.

`trainvitals.lightning.ResourceMonitorCallback` uses the same names, so `trainvitals plot` can draw
the files of both. Sizes are in MiB, rates in MiB/s and shares in percent. Unknown values are left
out.

uptime_seconds          time since boot, from a monotonic clock that ignores changes of system time
cpu_percent             CPU utilization of all cores
io_wait_pct             share of CPU time spent waiting for I/O
load_1m                 the one-minute load average
memory_percent, memory_used_mb, memory_available_mb, memory_system_mb
                        RAM in use, RAM available without swapping, and total RAM
swap_percent, swap_used_mb
                        swap in use; left out if the machine has no swap
io_read_rate_mbps, io_write_rate_mbps
                        throughput of all disks since the last snapshot
net_recv_mbps, net_sent_mbps
                        throughput of all physical interfaces since the last snapshot
processes               the number of processes
oom_kills               OOM kills since the last snapshot
containers, containers_running, container_deaths
                        the number of containers that exist, that run, and that exited since the
                        last snapshot
gpu_0_up                1 if the device can be read, 0 if it is lost, hung or without a driver
gpu_0_util              utilization
gpu_0_memory_util       the share of time in which device memory was read or written
gpu_0_memory_pct, gpu_0_memory_used_mb, gpu_0_memory_free_mb, gpu_0_memory_total_mb
                        device memory: share in use, used, free and total
gpu_0_temp_c            chip temperature in degrees Celsius
gpu_0_power_w           power draw in watts
disk_/data_used_pct, disk_/data_free_mb
                        share in use and free space of the file system mounted at /data
gpu_0_name              the model of the device; in CSV only, last in the header

The names of Gaudi cards begin with `hpu_0_`.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.foreign_text import clean_text
from trainvitals.record.snapshot import Snapshot
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.host.filesystem import Filesystem
from trainvitals.sources.host.memory import MemoryReading

_MIB = 1 << 20

Number = tuple[str, float | None]


def list_numbers(snapshot: Snapshot) -> dict[str, float]:
    """Return the known numbers of a snapshot by column name, in the order of the columns."""
    numbers: list[Number] = [
        *_count_machine(snapshot),
        *_count_containers(snapshot),
    ]
    for device in snapshot.accelerators.devices if snapshot.accelerators else ():
        numbers += _count_device(device)
    for one in snapshot.filesystems.filesystems if snapshot.filesystems else ():
        numbers += _count_filesystem(one)
    return {name: value for name, value in numbers if value is not None}


def list_names(snapshot: Snapshot) -> dict[str, str]:
    """Return the models of the devices in a snapshot, by column name."""
    devices = snapshot.accelerators.devices if snapshot.accelerators else ()
    return {f"{_prefix(one)}_name": clean_text(one.identity.model) for one in devices}


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
        yield name, _mebibytes(rate)
    yield "processes", None if snapshot.processes is None else snapshot.processes.count
    yield "oom_kills", snapshot.oom_kills


def _count_memory(memory: MemoryReading) -> Iterator[Number]:
    yield "memory_percent", _percent(memory.used_bytes, memory.total_bytes)
    yield "memory_used_mb", _mebibytes(memory.used_bytes)
    yield "memory_available_mb", _mebibytes(memory.available_bytes)
    yield "memory_system_mb", _mebibytes(memory.total_bytes)
    if memory.swap_total_bytes:
        yield "swap_percent", _percent(memory.swap_used_bytes, memory.swap_total_bytes)
        yield "swap_used_mb", _mebibytes(memory.swap_used_bytes)


def _count_containers(snapshot: Snapshot) -> Iterator[Number]:
    if snapshot.containers is None:
        return
    containers = snapshot.containers.containers
    yield "containers", len(containers)
    yield "containers_running", sum(one.status in (None, "running") for one in containers)
    yield "container_deaths", len(snapshot.new_deaths)


def _count_device(device: AcceleratorReading) -> Iterator[Number]:
    name = _prefix(device)
    now = device.measurements
    yield f"{name}_up", float(now is not None)
    if now is None:
        return
    used, total = now.memory_used_bytes, now.memory_total_bytes
    yield f"{name}_util", _percent(now.utilization_ratio, 1.0)
    yield f"{name}_memory_util", _percent(now.memory_utilization_ratio, 1.0)
    yield f"{name}_memory_pct", _percent(used, total)
    yield f"{name}_memory_used_mb", _mebibytes(used)
    yield f"{name}_memory_free_mb", _mebibytes(now.memory_free_bytes)
    yield f"{name}_memory_total_mb", _mebibytes(total)
    yield f"{name}_temp_c", now.temperature_core_celsius
    yield f"{name}_power_w", now.power_watts


def _prefix(device: AcceleratorReading) -> str:
    return f"{device.identity.kind}_{device.identity.index}"


def _count_filesystem(one: Filesystem) -> Iterator[Number]:
    if one.space is None:
        return
    where = clean_text(one.mountpoint)  # A line break in a name would end the CSV line.
    size, free = one.space.size_bytes, one.space.avail_bytes
    yield f"disk_{where}_used_pct", _percent(size - free, size)
    yield f"disk_{where}_free_mb", free / _MIB


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


def _mebibytes(size: float | None) -> float | None:
    return None if size is None else size / _MIB
