"""Sample the control groups of all containers periodically, on the schedule's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from trainvitals.sources.accelerators.reading import Identity
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.cgrouppaths import (
    GroupPaths,
    find_container,
    find_group,
    find_groups,
)
from trainvitals.sources.containers.cgroups import GroupFiles, find_name
from trainvitals.sources.containers.container_state import Attempt, ContainerState
from trainvitals.sources.containers.deaths import EvidenceBuilder, count_host_oom_kills
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.containers.schedule import report_failure
from trainvitals.sources.files import Roots, read_small
from trainvitals.workers import WorkerPool

_WORKERS = 8
_RUNNING = frozenset({"running", "paused", None})
_SHARED_NETWORKS = ("host", "container:", "none")


class Sampler:
    """Samples the resource usage of containers.

    Args:
        registry: The registry of known containers.
        builder: The evidence builder, which reads the kernel log.
        client: The client for the container engine, which returns statistics if a control group
            cannot be read. If there is no engine, the client is None, and containers are detected
            by their control groups.
        accelerators: The source of the processes that use an accelerator; None to report no
            accelerators.
        roots: The paths of the host's file systems.
        clock: A function that returns the time, in seconds since 1970.
    """

    def __init__(
        self,
        registry: ContainerRegistry,
        builder: EvidenceBuilder,
        *,
        client: EngineClient | None,
        accelerators: AcceleratorSource | None = None,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._builder = builder
        self._client = client
        self._accelerators = accelerators
        self._roots = roots
        self._clock = clock
        self._files: dict[tuple[str, int | None], GroupFiles] = {}
        self._holders: dict[int, str | None] = {}
        self._sampled: float | None = None
        # An older engine needs a second to answer a request, and there may be many containers.
        self._pool = WorkerPool(name="container-statistics", limit=_WORKERS)

    @property
    def sampled(self) -> float | None:
        """The Unix time when all containers were last sampled; None before the first sample."""
        return self._sampled

    def sample(self) -> None:
        """Sample all running containers, and drop containers whose series have ended."""
        self._builder.catch_up()
        groups = find_groups(self._roots)
        if self._client is None:
            self._update_registry(groups)
        with self._registry.lock:
            running = [known for known in self._registry.list_present() if known.status in _RUNNING]
        host_oom_kills = count_host_oom_kills(self._roots)
        kept: dict[tuple[str, int | None], GroupFiles] = {}
        for known in running:
            self._read(known, groups, kept, host_oom_kills)
        self._files = kept
        self._join_accelerators()
        with self._registry.lock:
            self._registry.tidy()
        self._sampled = self._clock()

    def close(self) -> None:
        """Stop the threads that request statistics from the engine."""
        self._pool.close()

    def _update_registry(self, groups: Mapping[str, GroupPaths]) -> None:
        with self._registry.lock:
            for known in self._registry.list_present():
                if known.id not in groups:
                    self._registry.remove(known)
            present = {known.id for known in self._registry.list_present()}
        for container in groups.keys() - present:
            name = find_name(container, self._roots) or ""
            with self._registry.lock:
                holder = self._registry.containers.get(name)
                is_taken = holder is not None and holder.removed is None
                self._registry.take_up("" if is_taken else name, container)

    def _read(
        self,
        known: ContainerState,
        groups: Mapping[str, GroupPaths],
        kept: dict[tuple[str, int | None], GroupFiles],
        host_oom_kills: int | None,
    ) -> None:
        container, pid, attempt = known.id, known.pid, known.attempt
        key = (container, pid)
        files = self._files.get(key) or self._open(known, groups)
        if files is not None:
            kept[key] = files
            self._take(known, attempt, files.read(), host_oom_kills)
        elif self._client is not None and not self._pool.is_running(container):
            client = self._client
            self._pool.submit(
                container,
                lambda: self._take(known, attempt, ask_for_usage(client, container), None),
                report_failure,
            )
            self._pool.wake(1)

    def _take(
        self,
        known: ContainerState,
        attempt: Attempt,
        usage: Usage | None,
        host_oom_kills: int | None,
    ) -> None:
        with self._registry.lock:
            if usage is not None and known.attempt is attempt and not attempt.is_over:
                known.take_usage(usage, host_oom_kills)

    def _open(self, known: ContainerState, groups: Mapping[str, GroupPaths]) -> GroupFiles | None:
        group = groups.get(known.id)
        pid = known.pid if _is_of(known.pid, known.id, self._roots) else None
        if group is None and pid is not None:
            group = find_group(pid, self._roots)
        if group is None or group.id != known.id:
            return None
        known.attempt.cgroup = group.cgroup
        inspection = known.inspection
        has_own = None
        if inspection is not None:
            has_own = not inspection.settings.network_mode.startswith(_SHARED_NETWORKS)
        return GroupFiles(
            group, pid=pid, has_own_network=has_own, roots=self._roots, clock=self._clock
        )

    def _join_accelerators(self) -> None:
        """Update each container's list of accelerators that its processes use."""
        latest = self._accelerators.latest if self._accelerators is not None else None
        held: dict[str, list[Identity]] = {}
        holders: dict[int, str | None] = {}
        for device in latest.devices if latest is not None else ():
            for pid in {process.pid for process in device.processes}:
                if pid not in holders:
                    holders[pid] = self._holders.get(pid) or find_container(pid, self._roots)
                container = holders[pid]
                if container is not None and device.identity not in held.setdefault(container, []):
                    held[container].append(device.identity)
        self._holders = holders
        with self._registry.lock:
            for known in self._registry.list_present():
                known.accelerators = tuple(held.get(known.id, ()))


def _is_of(pid: int | None, container: str, roots: Roots) -> bool:
    """Return whether a PID on this machine belongs to a container; False for a remote engine."""
    return pid is not None and container in (read_small(roots.procfs / f"{pid}/cgroup") or "")


def ask_for_usage(client: EngineClient, container: str) -> Usage | None:
    """Return a container's resource usage from the engine.

    The result is None if the container is not running or the request fails.
    """
    try:
        return client.stats(container)
    except EngineError:
        return None
