"""Resource use of a process and its descendants, from `/proc` and the kernel's CPU clocks."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_CPU_CLOCK = 2  # CPUCLOCK_SCHED: nanoseconds, including threads that have ended
_PROC = Path("/proc")


class Memory(NamedTuple):
    """Memory of several processes, in MiB.

    Attributes:
        rss: The sum of their resident memory; a shared page counts once for each process.
        pss: Proportional: each page is divided among all processes that map it, in the tree or not.
        once: Resident, each page once: the memory used if no other program mapped the same files.
        main: Resident memory of the first process alone.
    """

    rss: float
    pss: float
    once: float
    main: float


class Tree:
    """A process and its descendants, determined again at each call.

    Args:
        pid: The root process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def pids(self) -> list[int]:
        """Return the ids of all living processes of the tree."""
        children: dict[int, list[int]] = {}
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    children.setdefault(parent, []).append(int(entry.name))
        found = [self.pid]
        for pid in found:
            found += children.get(pid, ())
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far."""
        total = 0.0
        for pid in self.pids():
            with suppress(OSError):
                total += time.clock_gettime((~pid << 3) | _CPU_CLOCK)
        return total

    def switches(self) -> int:
        """Return the number of voluntary and involuntary context switches of all threads so far."""
        total = 0
        for pid in self.pids():
            with suppress(OSError):
                for task in (_PROC / str(pid) / "task").iterdir():
                    for line in (task / "status").read_text().splitlines():
                        if "ctxt_switches" in line:
                            total += int(line.split()[1])
        return total

    def threads(self) -> int:
        """Return the number of threads."""
        return sum(len(list((_PROC / str(pid) / "task").iterdir())) for pid in self.pids())

    def memory(self) -> Memory:
        """Return the memory used at present."""
        rss = pss = anonymous = main = 0
        files: dict[str, int] = {}
        for pid in self.pids():
            own: dict[str, int] = {}
            for name, sizes in _read_mappings(pid):
                rss += sizes["Rss"]
                pss += sizes["Pss"]
                private = sizes["Private_Dirty"] if name else sizes["Rss"]
                anonymous += private
                own[name] = own.get(name, 0) + sizes["Rss"] - private
                main += sizes["Rss"] if pid == self.pid else 0
            for name, size in own.items():
                files[name] = max(files.get(name, 0), size)
        once = anonymous + sum(files.values())
        return Memory(rss / 1024, pss / 1024, once / 1024, main / 1024)


def _read_mappings(pid: int) -> list[tuple[str, dict[str, int]]]:
    """Return the file of each mapping (empty if it has none) and its sizes in KiB."""
    mappings: list[tuple[str, dict[str, int]]] = []
    for line in (_PROC / str(pid) / "smaps").read_text().splitlines():
        words = line.split(None, 5)
        if words[0].endswith(":"):
            if words[-1] == "kB":
                mappings[-1][1][words[0][:-1]] = int(words[1])
        else:
            mappings.append((words[5] if words[4] != "0" else "", {}))
    return mappings
