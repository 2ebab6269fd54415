"""The control groups of containers, in versions 1 and 2 and where both are mounted.

The path of a group is searched for, never constructed: it depends on the engine, on its cgroup
driver and on the parent group of the container.
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
# cri-containerd-<id>.scope, crio-<id>.scope, kubepods/.../<id>, and where containerd's cgroup
# driver is not the kubelet's, kubepods-....slice:cri-containerd:<id>.
_CONTAINER = re.compile(
    r"(?:[^/]*:|(?:docker|libpod|libpod-payload|cri-containerd|crio|nerdctl)-)?"
    r"([0-9a-f]{64})(?:\.scope)?"
)
_V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "blkio")
# The controller whose hierarchy is walked; the others have the same groups.
_V1_WALKED = ("memory", "pids", "cpuacct", "cpu", "blkio")
_DEEPEST = 8
_MOST_FOLDERS = 8192
# A folder of cgroupfs has a link for each folder in it, beside its own two.
_LINKS_OF_A_LEAF = 2
_MOST_CGROUP_BYTES = 1 << 16
# Units that run nothing.
_EMPTY_UNITS = (".mount", ".swap", ".socket", ".device", ".timer", ".target")


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The folders with the files of one control group.

    Attributes:
        id: The container's whole ID; empty for a group that belongs to no container.
        version: 1 or 2.
        cgroup: Its path as `/proc/PID/cgroup` has it, up to the container.
        memory: The folder of the memory controller; None if there is none. On version 2 all
            are the same folder.
        cpu: The folder of the CPU controller.
        cpuacct: The folder of the controller that counts CPU time.
        pids: The folder of the controller that counts processes.
        blkio: The folder of the controller of block devices.
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
        """The existing folders, each once."""
        folders = (self.memory, self.cpu, self.cpuacct, self.pids, self.blkio)
        return tuple(dict.fromkeys(folder for folder in folders if folder is not None))


def identify(cgroup_path: str) -> str | None:
    """Return the ID of the container that a control group belongs to.

    Args:
        cgroup_path: A path as in `/proc/PID/cgroup` or in a line `oom-kill:` of the kernel log.

    Returns:
        64 hexadecimal digits; for nested containers those of the outermost one; None if the path
        belongs to no container.
    """
    for name in cgroup_path.split("/"):
        if match := _CONTAINER.fullmatch(name):
            return match[1]
    return None


def find_container(pid: int, roots: Roots = Roots()) -> str | None:  # noqa: B008 - immutable
    """Return the ID of a process's container; None if there is none or the process is gone.

    Args:
        pid: The process, as `roots.procfs` numbers it.
        roots: The path of `/proc`.
    """
    found = (identify(path) for _, path in read_groups(pid, roots.procfs))
    return next((id_ for id_ in found if id_ is not None), None)


def find_group(pid: int, roots: Roots = Roots()) -> GroupPaths | None:  # noqa: B008 - immutable
    """Find the control group of a process's container, or of the process if it is in none.

    Args:
        pid: The process, as `roots.procfs` numbers it.
        roots: The paths of `/proc` and `/sys`.

    Returns:
        None if the process does not exist, is in the root group, which is the whole machine, or its
        group is outside of the exporter's cgroup namespace.
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
    # Some engines put a process into groups of some controllers only.
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
    """Find the control groups of all running containers, whatever engine runs them.

    Containers inside of containers are not searched for. A group without subgroups is not listed:
    the kernel counts a folder's subfolders in its links.

    Args:
        roots: The path of `/sys`.
        most: The maximum number of groups.

    Returns:
        The groups by container ID; empty if no control groups are mounted.
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
    """Return the paths for a folder with copied files of one group, of either version.

    Args:
        folder: The folder; it does not name the container.

    Returns:
        None if it holds no file of a control group.
    """
    try:
        names = set(os.listdir(folder))  # noqa: PTH208 - as everywhere in this module
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
    """Read `/proc/PID/cgroup`: controllers and path of each line, empty if it cannot be read.

    The line of version 2 has one controller, whose name is empty.
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
    """Return whether the group is below the root group, and visible to the exporter."""
    return path.strip("/") != "" and ".." not in path.split("/")


def _cut(path: str) -> str:
    """Remove the groups that a container creates below its own."""
    names = path.rstrip("/").split("/")
    for count, name in enumerate(names, 1):
        if _CONTAINER.fullmatch(name):
            return "/".join(names[:count])
    return "/".join(names)


def _walk(base: str, most: int) -> Iterator[tuple[str, str]]:
    """Return ID and path of each container's group, the nearest to the root first."""
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
    except OSError:  # it was removed in the meantime, or is not for us
        return []


def _has_folders(path: str) -> bool:
    try:
        return os.stat(path).st_nlink != _LINKS_OF_A_LEAF  # noqa: PTH116 - a thousand of them
    except OSError:
        return False
