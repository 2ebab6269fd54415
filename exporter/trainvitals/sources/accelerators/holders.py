"""Identifies the processes that hold accelerators, with their users, containers and runs.

The Slurm job and the pod of a process are derived only from the process's control group. Command
lines and environments are never part of the result, because they often contain secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Owner,
    ProcessMemory,
)
from trainvitals.sources.containers.cgrouppaths import identify, read_groups
from trainvitals.sources.files import Roots, read_small
from trainvitals.sources.host.processes import read_process_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # both import this package
    from trainvitals.sources.containers.reading import ContainersReading
    from trainvitals.sources.runs.reading import RunsReading

_KEPT_SECONDS, _MOST_KEPT = 30.0, 512
_USER_FIELDS = 3
_SHORT_ID = 12  # the length to which engines abbreviate container IDs

# systemd names a pod's control group kubepods-burstable-pod0a1b_..._f.slice; cgroupfs names it
# pod0a1b-...-f.
_POD = re.compile(r"(?:kubepods[a-z-]*-)?pod([0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12})")
_SLURM_JOB = re.compile(r"job_([0-9]{1,10})")


class Holders:
    """Finds the owners of processes that hold accelerators, and caches each owner for 30 seconds.

    Args:
        roots: The paths of `/proc` and of the host's root file system, which contains
            `/etc/passwd`.
    """

    def __init__(self, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        self._roots = roots
        self._kept: dict[int, tuple[float, Owner]] = {}
        self._users: tuple[float, dict[str, str]] | None = None

    def look_up(self, reading: AcceleratorsReading, time: float) -> AcceleratorsReading:
        """Return the reading with an owner for each process.

        Args:
            reading: The reading of the accelerators.
            time: The current time, in seconds; all calls must use the same clock.
        """
        if not any(device.processes for device in reading.devices):
            return reading
        devices = tuple(self._look_up(device, time) for device in reading.devices)
        return replace(reading, devices=devices)

    def _look_up(self, device: AcceleratorReading, time: float) -> AcceleratorReading:
        processes = tuple(replace(one, owner=self._find(one.pid, time)) for one in device.processes)
        return replace(device, processes=processes)

    def _find(self, pid: int, time: float) -> Owner:
        kept = self._kept.get(pid)
        if kept is None or not 0 <= time - kept[0] < _KEPT_SECONDS:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[pid] = time, self._read(pid, time)
        return kept[1]

    def _read(self, pid: int, time: float) -> Owner:
        name = read_process_name(pid, self._roots)
        if name is None:
            return Owner()
        groups = [path for _, path in read_groups(pid, self._roots.procfs)]
        return Owner(
            name=name,
            user=self._read_user(pid, time),
            container=next(filter(None, map(identify, groups)), None),
            slurm_job=next(filter(None, map(find_slurm_job, groups)), None),
            pod=next(filter(None, map(find_pod, groups)), None),
        )

    def _read_user(self, pid: int, time: float) -> str | None:
        try:
            user = str((self._roots.procfs / str(pid)).stat().st_uid)
        except OSError:
            return None
        if self._users is None or not 0 <= time - self._users[0] < _KEPT_SECONDS:
            self._users = time, self._read_users()
        return self._users[1].get(user, user)

    def _read_users(self) -> dict[str, str]:
        # Do not use getpwuid: it may query a directory service, which can hang.
        text = read_small(self._roots.rootfs / "etc/passwd") or ""
        rows = [line.split(":", _USER_FIELDS) for line in text.split(os.linesep)]
        return {row[2]: row[0] for row in reversed(rows) if len(row) > _USER_FIELDS}


def find_slurm_job(cgroup_path: str) -> str | None:
    """Return the ID of a control group's Slurm job; None if the group belongs to no job.

    Args:
        cgroup_path: A path from `/proc/PID/cgroup`, such as
            `/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0` with cgroup v2 or
            `/slurm/uid_1000/job_1234` with cgroup v1.
    """
    is_below = False
    for name in cgroup_path.split("/"):
        if is_below and (match := _SLURM_JOB.fullmatch(name)):
            return match[1]
        is_below = is_below or name.startswith("slurm") or name.endswith("slurmstepd.scope")
    return None


def find_pod(cgroup_path: str) -> str | None:
    """Return the UID of a control group's Kubernetes pod; None if the group belongs to no pod.

    Args:
        cgroup_path: A path from `/proc/PID/cgroup`.
    """
    for name in cgroup_path.split("/"):
        if match := _POD.fullmatch(name.removesuffix(".slice")):
            return match[1].replace("_", "-")
    return None


@dataclass(frozen=True, slots=True)
class Place:
    """The container and the run of a process that holds an accelerator.

    Attributes:
        container: The name of the process's container, or the container's short ID if the name is
            unknown; None if the process is not known to run in a container.
        compose_service: The Compose service of the container; None if the container is unknown or
            belongs to no service.
        run: The name of the process's training run; None if the process is not known to belong to a
            run.
    """

    container: str | None = None
    compose_service: str | None = None
    run: str | None = None


class Places:
    """Finds the container and the run of a process in the readings of containers and runs.

    Args:
        runs: The runs on this machine; None if the runs are unknown.
        containers: The containers on this machine; None if the containers are unknown.
    """

    def __init__(self, runs: RunsReading | None, containers: ContainersReading | None) -> None:
        self._runs: Mapping[int | None, str] = {
            rank.liveness.host_pid: rank.run
            for rank in (runs.ranks if runs else ())
            if rank.liveness is not None and rank.liveness.is_alive
        }
        known = containers.containers if containers else ()
        self._containers = {each.id: (each.name, each.compose_service) for each in known}

    def find(self, process: ProcessMemory) -> Place:
        """Return the container and the run of a process."""
        container = process.owner.container if process.owner else None
        service = ""
        if container is not None:
            container, service = self._containers.get(container, (container[:_SHORT_ID], ""))
        return Place(container, service or None, self._runs.get(process.pid))
