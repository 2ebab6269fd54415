"""Read the resource usage of containers from control groups.

Any user may read the files of control groups. Ten files are read in 0.1 ms, whereas a request for
the engine's statistics takes one to two seconds. If a value is missing or cannot be read, the value
is None and not 0.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainvitals.foreign_files import read_whole
from trainvitals.sources.containers.blockdevices import BlockDevices
from trainvitals.sources.containers.cgroup_files import parse_number, read_data
from trainvitals.sources.containers.cgroup_usage import read_usage
from trainvitals.sources.containers.cgrouppaths import GroupPaths
from trainvitals.sources.containers.evidence import Sample
from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.files import Roots

_ID = re.compile("[0-9a-f]{64}")
_NET_DEV_HEAD_LINES = 2
_NET_DEV_COLUMNS = 16
_NET_DEV_TRANSMIT = 8
_MOST_CONFIGURATION_BYTES = 1 << 22


class GroupFiles:
    """Reads the resource usage of one container repeatedly.

    No file is kept open, so that a container with the same ID can still be read after a restart.

    Args:
        group: The paths of the container's control group.
        pid: The PID of a process in the container, whose network counters are read; None if no
            network counters are read.
        has_own_network: Whether the container has a separate network, which is neither the host's
            nor another container's network; None to compare the container's network with the
            network of process 1. If the comparison fails, no network counters are read.
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns the time, in seconds since 1970.
    """

    __slots__ = ("_clock", "_devices", "_group", "_network")

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
        self._network: str | None = None
        if pid is not None and pid > 0:
            if has_own_network is None:
                has_own_network = _has_own_network(pid, roots.procfs)
            if has_own_network:
                self._network = f"{roots.procfs}/{pid}/net"

    def read(self) -> Usage | None:
        """Return the container's current usage; None if the control group no longer exists."""
        usage = read_usage(self._group, self._clock(), self._devices)
        traffic = read_traffic(self._network)
        if not any(map(_is_there, self._group.folders[:1])):
            return None
        if traffic is None:
            return usage
        return replace(usage, received_bytes=traffic[0], transmitted_bytes=traffic[1])


def to_sample(usage: Usage) -> Sample:
    """Convert a usage to a sample for evidence.

    A limit of 0 in the usage, which means no limit, becomes None in the sample.
    """
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


def find_name(id: str, roots: Roots = Roots()) -> str | None:  # noqa: A002, B008 - the field's name
    """Return a container's name from the files of Docker or Podman, without a query to the engine.

    Args:
        id: The container's full ID.
        roots: The path of the host's root directory.

    Returns:
        The container's name; None if the files do not contain the container, or if this user has no
        permission to read the files, which belong to root.
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
    """Return the numbers of bytes received and transmitted over all interfaces except loopback.

    Args:
        folder: The folder `/proc/PID/net`; None to read nothing.

    Returns:
        The numbers of received and transmitted bytes; None if the numbers cannot be read.
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
        # Any user may compare these files, but may be unable to read the links to the network
        # namespaces.
        own, host = (os.stat(f"{procfs}/{number}/net/dev") for number in (pid, 1))  # noqa: PTH116
    except OSError:
        return False
    return (own.st_dev, own.st_ino) != (host.st_dev, host.st_ino)


def _is_there(folder: str) -> bool:
    return os.path.isdir(folder)  # noqa: PTH112 - called for every container every 10 s


def _read_json(path: Path) -> object:
    try:
        parsed: object = json.loads(read_whole(path, _MOST_CONFIGURATION_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return parsed
