"""Find the control groups of containers, in cgroup v1, cgroup v2 and hybrid mounts.

The path of a control group is always searched for, because it depends on the engine, the engine's
cgroup driver and the container's parent group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.sources.containers.cgroup_files import read_data
from trainvitals.sources.files import Roots

# docker/<id>, docker-<id>.scope, libpod-<id>(.scope), libpod-payload-<id>,
# cri-containerd-<id>.scope, crio-<id>.scope, kubepods/.../<id>, and, if containerd's cgroup
# driver differs from the kubelet's, kubepods-....slice:cri-containerd:<id>.
_CONTAINER = re.compile(
    r"(?:[^/]*:|(?:docker|libpod|libpod-payload|cri-containerd|crio|nerdctl)-)?"
    r"([0-9a-f]{64})(?:\.scope)?"
)
_V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "blkio")
# The controllers in order of preference. Only the hierarchy of the first available controller is
# searched, because the other hierarchies contain the same groups.
_V1_WALKED = ("memory", "pids", "cpuacct", "cpu", "blkio")
_DEEPEST = 8
_MOST_FOLDERS = 8192
# The link count of a cgroupfs folder is 2 plus the number of its subfolders.
_LINKS_OF_A_LEAF = 2
_MOST_CGROUP_BYTES = 1 << 16
# The systemd units that contain no processes.
_EMPTY_UNITS = (".mount", ".swap", ".socket", ".device", ".timer", ".target")


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The folders that contain one control group's files.

    In cgroup v2, all controllers have the same folder. If a controller is not available, its folder
    is None.

    Attributes:
        id: The container's full ID; empty for a control group that belongs to no container.
        version: The cgroup version, 1 or 2.
        cgroup: The control group's path in the format of `/proc/PID/cgroup`. Subgroups of the
            container's group are omitted.
        memory: The folder of the memory controller.
        cpu: The folder of the CPU controller.
        cpuacct: The folder of the controller that counts CPU time.
        pids: The folder of the controller that counts processes.
        blkio: The folder of the block device controller.
    """

    id: str
    version: int
    cgroup: str
    memory: str | None
    cpu: str | None
    cpuacct: str | None
    pids: str | None
    blkio: str | None

    @property
    def folders(self) -> tuple[str, ...]:
        """The control group's folders, without duplicates."""
        folders = (self.memory, self.cpu, self.cpuacct, self.pids, self.blkio)
        return tuple(dict.fromkeys(folder for folder in folders if folder is not None))


def identify(cgroup_path: str) -> str | None:
    """Return the ID of the container that a control group belongs to.

    Args:
        cgroup_path: A path in the format of `/proc/PID/cgroup` or of the kernel log's `oom-kill:`
            lines.

    Returns:
        The container's ID, which consists of 64 hexadecimal digits; for nested containers, the ID
        of the outermost container; None if the control group belongs to no container.
    """
    for name in cgroup_path.split("/"):
        if match := _CONTAINER.fullmatch(name):
            return match[1]
    return None


def find_container(pid: int, roots: Roots = Roots()) -> str | None:  # noqa: B008 - immutable
    """Return the ID of a process's container.

    The result is None if the process is not in a container or has exited.

    Args:
        pid: The process's PID in `roots.procfs`.
        roots: The path of `/proc`.
    """
    found = (identify(path) for _, path in read_groups(pid, roots.procfs))
    return next((id_ for id_ in found if id_ is not None), None)


def find_group(pid: int, roots: Roots = Roots()) -> GroupPaths | None:  # noqa: B008 - immutable
    """Return the control group of a process's container, or of the process if it has no container.

    Args:
        pid: The process's PID in `roots.procfs`.
        roots: The paths of `/proc` and `/sys`.

    Returns:
        The control group; None if the process does not exist, is outside the exporter's cgroup
        namespace, or is in the root group, which represents the whole machine.
    """
    groups = {
        controller: path
        for controllers, path in read_groups(pid, roots.procfs)
        for controller in controllers
    }
    base = f"{roots.sysfs}/fs/cgroup"
    if not any(controller in groups for controller in _V1_CONTROLLERS):
        return _find_unified(groups.get(""), base)
    places = {
        controller: _cut(groups[controller])
        for controller in _V1_CONTROLLERS
        if controller in groups and _is_below_root(groups[controller])
    }
    if not places:
        return None
    # Some engines assign a process to groups of only some controllers.
    path = places[next(controller for controller in _V1_WALKED if controller in places)]
    return GroupPaths(
        identify(path) or "",
        1,
        path,
        *(
            f"{base}/{controller}{places[controller]}" if controller in places else None
            for controller in _V1_CONTROLLERS
        ),
    )


def find_groups(
    roots: Roots = Roots(),  # noqa: B008 - immutable
    *,
    most: int = 512,
) -> Mapping[str, GroupPaths]:
    """Return the control groups of all running containers, regardless of the engine.

    Containers inside containers are not searched for. If the link count of a group's folder shows
    that the group has no subgroups, the folder is not listed.

    Args:
        roots: The path of `/sys`.
        most: The maximum number of control groups to return.

    Returns:
        The control groups, by container ID; empty if no cgroup file system is mounted.
    """
    base = f"{roots.sysfs}/fs/cgroup"
    if os.path.exists(f"{base}/cgroup.controllers"):  # noqa: PTH110 - every 10 s
        return {id_: _unified(id_, path, base) for id_, path in _walk(base, most)}
    mounted = [name for name in _V1_WALKED if os.path.isdir(f"{base}/{name}")]  # noqa: PTH112
    if not mounted:
        unified = f"{base}/unified"
        return {id_: _unified(id_, path, unified) for id_, path in _walk(unified, most)}
    return {
        id_: GroupPaths(
            id_,
            1,
            path,
            *(
                f"{base}/{controller}{path}" if controller in mounted else None
                for controller in _V1_CONTROLLERS
            ),
        )
        for id_, path in _walk(f"{base}/{mounted[0]}", most)
    }


def take_folder(folder: str) -> GroupPaths | None:
    """Return the paths for a folder that contains copies of one control group's files.

    Args:
        folder: The path of the folder, which need not contain the container's ID.

    Returns:
        The paths, with an empty container ID; None if the folder contains no control group file.
    """
    try:
        names = set(os.listdir(folder))  # noqa: PTH208 - paths are text in this module
    except OSError:
        return None
    is_v1 = any(
        name.endswith("_in_bytes")
        or name.startswith(("blkio.", "cpuacct."))
        or name in {"memory.oom_control", "cpu.cfs_quota_us"}
        for name in names
    )
    is_there = is_v1 or any(name.startswith(("memory.", "cpu.", "pids.", "io.")) for name in names)
    return GroupPaths("", 1 if is_v1 else 2, "", *(folder,) * 5) if is_there else None


def read_groups(pid: int, procfs: Path) -> list[tuple[list[str], str]]:
    """Read `/proc/PID/cgroup`, and return the controllers and the path in each line.

    For the line of cgroup v2, the controllers are a list with one empty name. The result is empty
    if the file cannot be read.
    """
    if pid <= 0:
        return []
    data = read_data(f"{procfs}/{pid}", "cgroup") or b""
    lines = [os.fsdecode(line).split(":", 2) for line in data[:_MOST_CGROUP_BYTES].splitlines()]
    return [(line[1].split(","), line[2]) for line in lines if len(line) == 3]  # noqa: PLR2004


def _find_unified(path: str | None, base: str) -> GroupPaths | None:
    if path is None or not _is_below_root(path):
        return None
    if not os.path.exists(f"{base}/cgroup.controllers"):  # noqa: PTH110
        base += "/unified"
    path = _cut(path)
    return _unified(identify(path) or "", path, base)


def _unified(id_: str, path: str, base: str) -> GroupPaths:
    return GroupPaths(id_, 2, path, *(base + path,) * 5)


def _is_below_root(path: str) -> bool:
    """Return whether a control group is below the root group and visible to the exporter."""
    return path.strip("/") != "" and ".." not in path.split("/")


def _cut(path: str) -> str:
    """Remove the control groups that a container created below its own group from a path."""
    names = path.rstrip("/").split("/")
    for count, name in enumerate(names, 1):
        if _CONTAINER.fullmatch(name):
            return "/".join(names[:count])
    return "/".join(names)


def _walk(base: str, most: int) -> Iterator[tuple[str, str]]:
    """Yield each container's ID and control group path; paths with fewer folders come first."""
    found = 0
    folders = [""]
    looked_at = 0
    for _ in range(_DEEPEST):
        deeper = []
        for folder in folders[: _MOST_FOLDERS - looked_at]:
            for path in _list_folders(base, folder):
                match = _CONTAINER.fullmatch(path.rpartition("/")[2])
                if match is None:
                    deeper.append(path)
                    continue
                if found == most:
                    return
                found += 1
                yield match[1], path
        looked_at += len(folders)
        folders = [path for path in deeper if _has_folders(base + path)]


def _list_folders(base: str, folder: str) -> list[str]:
    try:
        with os.scandir(base + folder) as entries:
            return [
                f"{folder}/{entry.name}"
                for entry in entries
                if not entry.name.endswith(_EMPTY_UNITS) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # the group was removed in the meantime, or cannot be read
        return []


def _has_folders(path: str) -> bool:
    try:
        return os.stat(path).st_nlink != _LINKS_OF_A_LEAF  # noqa: PTH116 - called for many folders
    except OSError:
        return False
