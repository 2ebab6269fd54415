"""Counts of OOM kills in a control group.

Version 2 has them in the group's `memory.events`, version 1 in its `memory.oom_control`; both on
the line `oom_kill`.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainvitals.sources.containers.cgroup_files import find_number
from trainvitals.sources.containers.cgrouppaths import read_groups
from trainvitals.sources.runs.descriptors import require_room

_MOST_GROUPS = 64
_MOST_BYTES = 4096


def find_oom_file(
    pid: int, *, procfs: Path = Path("/proc"), cgroupfs: Path = Path("/sys/fs/cgroup")
) -> str | None:
    """Find the file that counts the OOM kills of a live process's control group.

    Returns:
        None if the process or the memory controller does not exist, or the group is not visible to
        the exporter. The file need not exist.
    """
    groups = {
        controller: path
        for controllers, path in read_groups(pid, procfs)
        for controller in controllers
    }
    if "memory" in groups:
        return _locate(cgroupfs / "memory", groups["memory"], "memory.oom_control")
    return _locate(cgroupfs, groups[""], "memory.events") if "" in groups else None


class OomKills:
    """Counts of OOM kills; many ranks share a group, so each file is read once a round."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}
        self._counts: dict[str, int | None] = {}

    def begin(self) -> None:
        """Begin a round: read counts again, and drop groups not asked for since the last."""
        for path in self._descriptors.keys() - self._counts.keys():
            os.close(self._descriptors.pop(path))
        self._counts = {}

    def count(self, path: str) -> int | None:
        """Return the number of kills as of this round; None if the file does not exist."""
        if path not in self._counts:
            self._counts[path] = self.count_now(path)
        return self._counts[path]

    def count_now(self, path: str) -> int | None:
        """Read the number of kills; None if the file does not exist, or its group was removed."""
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
        return find_number(data, b"oom_kill")

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}
        self._counts = {}


def _locate(mount: Path, group: str, name: str) -> str | None:
    parts = group.split("/")
    if ".." in parts:  # above the group that our own /sys/fs/cgroup begins with
        return None
    return "/".join([str(mount), *(part for part in parts if part), name])
