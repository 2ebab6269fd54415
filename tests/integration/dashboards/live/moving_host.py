"""A host's `/proc`, `/sys` and `/dev/kmsg` with growing counters, for a real exporter.

The files begin as copies of `tests/fixtures/machine`. They are changed in place, as the exporter
keeps them open.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_FIXTURE = Path(__file__).parents[3] / "fixtures/machine"
_UP_SECONDS = 5 * 24 * 3600
_CORES = 4
_TICKS_PER_SECOND = 100
_MOUNTPOINTS = ("data", "datasets", "mnt/scratch space", "dev/shm", "proc/1")

# The percentage of each core's time by mode, as of a data loader and four trainers.
_SHARES: Mapping[str, int] = MappingProxyType(
    {
        "user": 42,
        "nice": 2,
        "system": 10,
        "idle": 38,
        "iowait": 5,
        "irq": 0,
        "softirq": 2,
        "steal": 1,
        "guest": 0,
        "guest_nice": 0,
    }
)


class MovingHost:
    """The files that a host's kernel provides, in a directory.

    Args:
        directory: The existing directory in which the files are created.

    Attributes:
        root: The host's `/`.
        procfs: Its `/proc`.
        sysfs: Its `/sys`.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        shutil.copytree(_FIXTURE, self.root)
        self.procfs, self.sysfs = self.root / "proc", self.root / "sys"
        for mountpoint in _MOUNTPOINTS:
            (self.root / mountpoint).mkdir(parents=True, exist_ok=True)
        boot = self.procfs / "sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").symlink_to("/proc/sys/kernel/random/boot_id")
        # The exporter is a process of this machine, and so are the trainers.
        shutil.rmtree(self.procfs / "self")
        (self.procfs / "self").symlink_to("/proc/self")
        self._kmsg = self.root / "dev/kmsg"
        self._kmsg.write_text("", encoding="ascii")
        self._since = time.time()
        self._oom_kills = 2
        self._lines = 5000
        self._is_garbled = False
        self.move()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The flags with which an exporter reads this host."""
        return (
            f"--path.procfs={self.procfs}",
            f"--path.sysfs={self.sysfs}",
            f"--path.rootfs={self.root}",
        )

    def move(self) -> None:
        """Advance the counters to the current time."""
        seconds = time.time() - self._since + 1000
        rewrite(self.procfs / "stat", self._write_stat(seconds))
        rewrite(self.procfs / "diskstats", _write_diskstats(seconds))
        rewrite(self.procfs / "1/net/dev", write_net_dev(seconds))
        rewrite(self.procfs / "vmstat", self._write_vmstat(seconds))
        self._move_pressure(seconds)

    def _move_pressure(self, seconds: float) -> None:
        if self._is_garbled:
            for path in (self.procfs / "pressure").iterdir():
                rewrite(path, "what is this\n")
            return
        for resource, (some, full) in {"cpu": (80, 0), "memory": (9, 4), "io": (50, 30)}.items():
            rewrite(self.procfs / "pressure" / resource, _write_pressure(seconds, some, full))

    def garble(self) -> None:
        """Make the pressure files of all resources impossible to parse from the next `move` on."""
        self._is_garbled = True

    def show_process(self, pid: int, *, cgroup: str = "/user.slice") -> None:
        """Add a real process to the host's `/proc`, in a control group."""
        folder = self.procfs / str(pid)
        (folder / "net").mkdir(parents=True)
        for name in ("stat", "maps", "status"):
            (folder / name).symlink_to(f"/proc/{pid}/{name}")
        (folder / "cgroup").write_text(f"0::{cgroup}\n", encoding="ascii")
        (folder / "net/dev").write_text(write_net_dev(0), encoding="ascii")

    def hide_process(self, pid: int) -> None:
        """Remove a process from the host's `/proc`."""
        shutil.rmtree(self.procfs / str(pid), ignore_errors=True)

    def log(self, text: str) -> None:
        """Append a line to the kernel's log."""
        self._lines += 1
        with self._kmsg.open("a", encoding="ascii") as file:
            file.write(f"4,{self._lines},{time.monotonic_ns() // 1000},-;{text}\n")

    def count_oom_kill(self) -> None:
        """Count one more OOM kill of the kernel."""
        self._oom_kills += 1

    def _write_stat(self, seconds: float) -> str:
        ticks = [int(seconds * _TICKS_PER_SECOND / 100 * share) for share in _SHARES.values()]
        cores = [f"cpu{core} {' '.join(map(str, ticks))}" for core in range(_CORES)]
        whole = f"cpu  {' '.join(str(_CORES * count) for count in ticks)}"
        rest = f"intr 1200345 0 9\nctxt 9876543\nbtime {int(self._since) - _UP_SECONDS}\nprocesses 45678\n"
        return "\n".join([whole, *cores, rest]) + "procs_running 3\nprocs_blocked 1\n"

    def _write_vmstat(self, seconds: float) -> str:
        counts = {
            "nr_free_pages": 512_000,
            "nr_dirty": 128,
            "pswpin": int(12 * seconds),
            "pswpout": int(30 * seconds),
            "pgmajfault": int(4 * seconds),
            "oom_kill": self._oom_kills,
        }
        return "".join(f"{name} {count}\n" for name, count in counts.items())


def rewrite(path: Path, text: str) -> None:
    """Replace a file's text in one write, as programs that have the file open read it meanwhile."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        data = text.encode("ascii")
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def write_net_dev(seconds: float) -> str:
    """Return the text of `/proc/net/dev`, with some errors."""
    lines = [
        "Inter-|   Receive                                                |  Transmit",
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo",
    ]
    for name, megabytes in (("lo", 1), ("eth0", 12), ("eth1", 0)):
        bytes_, packets, bad = (int(seconds * megabytes * each) for each in (1e6, 900, 0.2))
        receive = f"{bytes_} {packets} {bad} {bad} 0 0 0 0"
        lines.append(f"{name}: {receive} {bytes_ // 4} {packets // 2} 0 0 0 0 0 0")
    return "\n".join(lines) + "\n"


def _write_diskstats(seconds: float) -> str:
    """Return the text of `diskstats` with a disk that a data loader reads and one for logs."""
    lines = []
    for number, name, load in ((259, "nvme0n1", 1.0), (8, "sda", 0.1)):
        reads, writes, busy = (int(seconds * load * each) for each in (100, 40, 300))
        columns = (reads, 0, reads * 256, reads // 2, writes, 0, writes * 256, writes, 1)
        lines.append(f"{number:4} 0 {name} {' '.join(map(str, columns))} {busy} {busy} 0 0 0 0 0 0")
    return "\n".join(lines) + "\n"


def _write_pressure(seconds: float, some: int, full: int) -> str:
    """Return a pressure file's text for shares of `some` and `full` in thousandths of the time."""
    lines = ((name, each) for name, each in (("some", some), ("full", full)))
    return "".join(
        f"{name} avg10={each / 10:.2f} avg60={each / 10:.2f} avg300={each / 10:.2f}"
        f" total={int(seconds * each * 1000)}\n"
        for name, each in lines
    )
