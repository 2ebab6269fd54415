"""CPU, memory, disk and network as a training process sees them, under the names of its CSV.

Nothing here waits: every rate is the mean since the reading before. What a system does not tell
(process I/O on macOS, pressure outside Linux) has no key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from trainvitals.training.tree import ProcessTree, TreeReading

_MIB = 1 << 20
_LOOPBACK = re.compile(r"lo\d*$|Loopback")


class HostSampler:
    """Reads the machine and this process with its descendants, with psutil.

    The first rates are means since this was made.

    Args:
        clock: Seconds that never go back.
        procfs: Where `/proc` is.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, procfs: Path = Path("/proc")
    ) -> None:
        self._clock = clock
        self._pressure_path = procfs / "pressure" / "io"
        self._tree = ProcessTree(clock=clock)
        self._machine_cpu = _read_machine_cpu()
        self._process_cpu = (clock(), self._tree.read().cpu_seconds)
        self._io = self._read_io()

    def read_cpu_memory(self) -> dict[str, float]:
        """Read CPU and memory.

        Returns:
            `cpu_percent` of the whole machine; `cpu_process_percent` of the process tree, 100 for
            each core; `memory_system_mb`, `memory_available_mb` and `memory_percent` (in use) of
            the machine; `memory_process_mb`, the resident memory of the process tree.
        """
        import psutil  # noqa: PLC0415 - the training client imports the standard library only

        memory = psutil.virtual_memory()
        tree = self._tree.read()
        return self._read_cpu(tree) | {
            "memory_system_mb": memory.total / _MIB,
            "memory_available_mb": memory.available / _MIB,
            "memory_percent": float(memory.percent),
            "memory_process_mb": tree.resident_bytes / _MIB,
        }

    def read_io(self) -> dict[str, float]:
        """Read disk and network.

        Returns:
            `disk_read_mb` and `disk_write_mb` of the process tree since the reading before, and
            `io_read_rate_mbps` and `io_write_rate_mbps`, the same in MB/s; `net_sent_mbps` and
            `net_recv_mbps` of the machine without its loopback, in MB/s; `io_pressure_pct`, the
            share of the time in which a task of the machine waited for I/O.
        """
        before, now = self._io, self._read_io()
        self._io = now
        seconds = now["seconds"] - before["seconds"]
        grown = {name: now[name] - before[name] for name in now.keys() & before.keys()}
        values: dict[str, float] = {}
        for name, amount, rate in (
            ("read_bytes", "disk_read_mb", "io_read_rate_mbps"),
            ("write_bytes", "disk_write_mb", "io_write_rate_mbps"),
            ("sent_bytes", None, "net_sent_mbps"),
            ("received_bytes", None, "net_recv_mbps"),
        ):
            if name in grown:
                megabytes = max(grown[name], 0.0) / _MIB
                if amount is not None:
                    values[amount] = megabytes
                if seconds > 0:
                    values[rate] = megabytes / seconds
        if "stalled_seconds" in grown and seconds > 0:
            values["io_pressure_pct"] = min(100 * max(grown["stalled_seconds"], 0.0) / seconds, 100)
        return values

    def _read_cpu(self, tree: TreeReading) -> dict[str, float]:
        values: dict[str, float] = {}
        (busy_before, total_before), (busy, total) = self._machine_cpu, _read_machine_cpu()
        if total > total_before:
            self._machine_cpu = (busy, total)
            share = (busy - busy_before) / (total - total_before)
            values["cpu_percent"] = 100 * min(max(share, 0.0), 1.0)
        else:  # asked twice within one tick of the kernel
            values["cpu_percent"] = 0.0
        (at_before, seconds_before), now = self._process_cpu, self._clock()
        self._process_cpu = (now, tree.cpu_seconds)
        used = tree.cpu_seconds - seconds_before
        values["cpu_process_percent"] = 100 * used / (now - at_before) if now > at_before else 0.0
        return values

    def _read_io(self) -> dict[str, float]:
        values: dict[str, float] = {"seconds": self._clock()}
        tree = self._tree.read()
        if tree.read_bytes is not None and tree.write_bytes is not None:
            values["read_bytes"], values["write_bytes"] = tree.read_bytes, tree.write_bytes
        values.update(_read_network())
        stalled_seconds = _read_stalled_seconds(self._pressure_path)
        if stalled_seconds is not None:
            values["stalled_seconds"] = stalled_seconds
        return values


def _read_machine_cpu() -> tuple[float, float]:
    """Give the seconds in which the machine's cores were busy, and all."""
    import psutil  # noqa: PLC0415

    times = psutil.cpu_times()._asdict()
    for within_user in ("guest", "guest_nice"):
        times.pop(within_user, None)
    total = sum(times.values())
    return total - times["idle"] - times.get("iowait", 0.0), total


def _read_network() -> dict[str, float]:
    import psutil  # noqa: PLC0415

    try:
        devices = psutil.net_io_counters(pernic=True)
    except (OSError, RuntimeError):  # no /proc/net here
        return {}
    counted = [device for name, device in devices.items() if not _LOOPBACK.match(name)]
    return {
        "sent_bytes": float(sum(device.bytes_sent for device in counted)),
        "received_bytes": float(sum(device.bytes_recv for device in counted)),
    }


def _read_stalled_seconds(path: Path) -> float | None:
    """Give how long some task has waited for I/O since boot; None where nobody counts it."""
    try:
        some = path.read_text(encoding="utf-8").partition("\n")[0]
        return int(some.rpartition("total=")[2]) / 1_000_000
    except (OSError, ValueError):
        return None
