"""How many processes of a control group the kernel killed because its memory ran out.

Version 2 says so in the group's `memory.events`, version 1 in its `memory.oom_control`; both on
the line `oom_kill`.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainvitals.sources.training.descriptors import require_room

_MOST_GROUPS = 64
_MOST_BYTES = 4096


def find_oom_file(
    pid: int, *, procfs: Path = Path("/proc"), cgroupfs: Path = Path("/sys/fs/cgroup")
) -> str | None:
    """Find the file that counts the OOM kills of a live process's control group.

    Returns:
        None where the process or the memory controller is not there, or the group lies outside
        of what we can see. The file need not exist.
    """
    try:
        lines = Path(f"{procfs}/{pid}/cgroup").read_bytes().splitlines()
    except OSError:
        return None
    groups = {controllers: group for _, controllers, group in (_split(line) for line in lines)}
    for controllers, group in groups.items():
        if b"memory" in controllers.split(b","):
            return _locate(cgroupfs / "memory", group, "memory.oom_control")
    return _locate(cgroupfs, groups[b""], "memory.events") if b"" in groups else None


class OomKills:
    """Counts of OOM kills; many ranks share a group, so each file is read once a round."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}
        self._counts: dict[str, int | None] = {}

    def begin(self) -> None:
        """Begin a round: counts are read anew, and groups that nobody asked for are let go."""
        for path in self._descriptors.keys() - self._counts.keys():
            os.close(self._descriptors.pop(path))
        self._counts = {}

    def count(self, path: str) -> int | None:
        """Give the number of kills as of this round; None where the file is not there."""
        if path not in self._counts:
            self._counts[path] = self.count_now(path)
        return self._counts[path]

    def count_now(self, path: str) -> int | None:
        """Read the number of kills; None where the file is not there, or its group was removed."""
        descriptor = self._descriptors.get(path)
        try:
            if descriptor is None:
                if len(self._descriptors) >= _MOST_GROUPS:
                    return None
                descriptor = require_room(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                self._descriptors[path] = descriptor
            data = os.pread(descriptor, _MOST_BYTES, 0)
        except OSError:
            if path in self._descriptors:  # removed; another may come by that name
                os.close(self._descriptors.pop(path))
            return None
        _, found, rest = (b"\n" + data).partition(b"\noom_kill ")
        digits = rest.partition(b"\n")[0]
        return int(digits) if found and digits.isdigit() else None

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}
        self._counts = {}


def _split(line: bytes) -> tuple[bytes, bytes, bytes]:
    number, _, rest = line.partition(b":")
    controllers, _, group = rest.partition(b":")
    return number, controllers, group


def _locate(mount: Path, group: bytes, name: str) -> str | None:
    parts = group.split(b"/")
    if b".." in parts:  # above the group that our own /sys/fs/cgroup begins with
        return None
    return "/".join([str(mount), *(os.fsdecode(part) for part in parts if part), name])
