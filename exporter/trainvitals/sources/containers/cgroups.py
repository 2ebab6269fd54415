"""What containers use, from their control groups, which tell it for next to nothing.

Reading ten files takes a tenth of a millisecond, where the engine's statistics take one to two
seconds, and any user may do it. What is not there or cannot be read is None, never 0.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainvitals.causes.evidence import Sample
from trainvitals.sources.containers import cgroup1, cgroup2
from trainvitals.sources.containers.blockdevices import BlockDevices
from trainvitals.sources.containers.cgrouppaths import (
    GroupPaths,
    find_container,
    find_group,
    find_groups,
    identify,
    take_folder,
)
from trainvitals.sources.containers.figures import parse_number, read_data
from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.files import Roots, open_regular

__all__ = [
    "GroupFiles",
    "GroupPaths",
    "find_container",
    "find_group",
    "find_groups",
    "find_name",
    "identify",
    "take_folder",
    "to_sample",
]

_ID = re.compile("[0-9a-f]{64}")
_NET_DEV_HEAD_LINES = 2
_NET_DEV_COLUMNS = 16
_NET_DEV_TRANSMIT = 8
_MOST_CONFIGURATION_BYTES = 1 << 22


class GroupFiles:
    """Reads what one container uses, again and again.

    Nothing is kept open, so that a container that is started again is read on under its ID.

    Args:
        group: Where its control group is.
        pid: One of its processes, whose network counts are read; None for no network counts.
        has_own_network: Whether its network is not the host's and not another container's; None to
            compare it with that of process 1, and to read no counts where that is not there.
        roots: Where `/proc` and `/sys` are.
        clock: The time of day, in seconds since 1970.
    """

    __slots__ = ("_clock", "_devices", "_group", "_network", "_read")

    def __init__(
        self,
        group: GroupPaths,
        *,
        pid: int | None = None,
        has_own_network: bool | None = None,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._group = group
        self._clock = clock
        self._devices = BlockDevices(roots.sysfs)
        self._read = cgroup1.read_usage if group.version == 1 else cgroup2.read_usage
        self._network: str | None = None
        if pid is not None and pid > 0:
            if has_own_network is None:
                has_own_network = _has_own_network(pid, roots.procfs)
            if has_own_network:
                self._network = f"{roots.procfs}/{pid}/net"

    def read(self) -> Usage | None:
        """Read the files as they are now; None where the group is gone."""
        usage = self._read(self._group, self._clock(), self._devices)
        traffic = read_traffic(self._network)
        if not any(map(_is_there, self._group.folders[:1])):
            return None
        if traffic is None:
            return usage
        return replace(usage, received_bytes=traffic[0], transmitted_bytes=traffic[1])

    def close(self) -> None:
        """Do nothing: nothing is kept open."""


def to_sample(usage: Usage) -> Sample:
    """Give what a death is judged by; a limit of 0, which is none, becomes None."""
    return Sample(
        time=usage.time,
        cgroup_version=usage.cgroup_version,
        memory_usage_bytes=usage.memory_usage_bytes,
        memory_working_set_bytes=usage.memory_working_set_bytes,
        memory_unreclaimable_bytes=usage.memory_unreclaimable_bytes,
        memory_peak_bytes=usage.memory_peak_bytes,
        memory_limit_bytes=usage.memory_limit_bytes or None,
        memory_pressure_ratio=usage.memory_pressure_ratio,
        oom_kills=usage.oom_kills,
        processes=usage.processes,
        processes_limit=usage.processes_limit or None,
        processes_refused=usage.processes_refused,
        cpu_throttled_seconds=usage.cpu_throttled_seconds,
    )


def find_name(id: str, roots: Roots = Roots()) -> str | None:  # noqa: A002, B008 - as the field
    """Give a container's name from the files of Docker or Podman, without asking either.

    Args:
        id: The container's whole ID.
        roots: Where the host's root directory is.

    Returns:
        None where neither knows it, or we may not read their files, which are root's.
    """
    if not _ID.fullmatch(id):
        return None
    library = roots.rootfs / "var/lib"
    docker = _read_json(library / "docker/containers" / id / "config.v2.json")
    if isinstance(docker, dict) and isinstance(docker.get("Name"), str):
        return str(docker["Name"]).removeprefix("/") or None
    podman = _read_json(library / "containers/storage/overlay-containers/containers.json")
    for container in podman if isinstance(podman, list) else []:
        if isinstance(container, dict) and container.get("id") == id:
            names = container.get("names")
            first = names[0] if isinstance(names, list) and names else None
            return first if isinstance(first, str) and first else None
    return None


def read_traffic(folder: str | None) -> tuple[int, int] | None:
    """Read how many bytes came in and went out over all interfaces but the loopback.

    Args:
        folder: `/proc/PID/net`; None where it is not to be read.
    """
    data = read_data(folder, "dev", comes_by_page=True)
    if data is None:
        return None
    received = transmitted = 0
    for line in data.splitlines()[_NET_DEV_HEAD_LINES:]:
        name, _, rest = line.rpartition(b":")
        columns = rest.split()
        if name.strip() == b"lo" or len(columns) < _NET_DEV_COLUMNS:
            continue
        received += parse_number(columns[0]) or 0
        transmitted += parse_number(columns[_NET_DEV_TRANSMIT]) or 0
    return received, transmitted


def _has_own_network(pid: int, procfs: Path) -> bool:
    try:
        # A namespace has files of its own, which anybody may compare; its link may not be read.
        own, host = (os.stat(f"{procfs}/{number}/net/dev") for number in (pid, 1))  # noqa: PTH116
    except OSError:
        return False
    return (own.st_dev, own.st_ino) != (host.st_dev, host.st_ino)


def _is_there(folder: str) -> bool:
    return os.path.isdir(folder)  # noqa: PTH112 - for every container every 10 s


def _read_json(path: Path) -> object:
    try:
        descriptor = open_regular(str(path))
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            data = file.read(_MOST_CONFIGURATION_BYTES)
        parsed: object = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return None
    return parsed
