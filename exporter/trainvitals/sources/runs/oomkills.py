"""Read the OOM kill counts of control groups.

The OOM kill count is on the line `oom_kill` of the control group's file `memory.events` in cgroup
v2, and `memory.oom_control` in cgroup v1.
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
    """Return the path of the file with the OOM kill count of a living process's control group.

    Returns:
        The path of the file, which need not exist; None if the process or the memory controller
        does not exist, or the control group is not visible to the exporter.
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
    """The OOM kill counts of control groups.

    The file of a control group is read once per round, since many ranks may share a control
    group.
    """

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}
        self._counts: dict[str, int | None] = {}

    def begin(self) -> None:
        """Begin a round of readings, and drop control groups that the last round did not use."""
        for path in self._descriptors.keys() - self._counts.keys():
            os.close(self._descriptors.pop(path))
        self._counts = {}

    def count(self, path: str) -> int | None:
        """Return a control group's OOM kill count as of this round; None if it is unreadable."""
        if path not in self._counts:
            self._counts[path] = self.count_now(path)
        return self._counts[path]

    def count_now(self, path: str) -> int | None:
        """Read a control group's current OOM kill count.

        The result is None if the count cannot be read or the control group was removed.
        """
        descriptor = self._descriptors.get(path)
        try:
            if descriptor is None:
                if len(self._descriptors) >= _MOST_GROUPS:
                    return None
                descriptor = require_room(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                self._descriptors[path] = descriptor
            data = os.pread(descriptor, _MOST_BYTES, 0)
        except OSError:
            if path in self._descriptors:  # a new group may have the same name
                os.close(self._descriptors.pop(path))
            return None
        return find_number(data, b"oom_kill")

    def close(self) -> None:
        """Close the files that contain the counts."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}
        self._counts = {}


def _locate(mount: Path, group: str, name: str) -> str | None:
    parts = group.split("/")
    if ".." in parts:  # above the root of our own /sys/fs/cgroup
        return None
    return "/".join([str(mount), *(part for part in parts if part), name])
