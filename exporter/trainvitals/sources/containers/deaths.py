"""Collect the evidence about a container's exit as soon as the exit is reported."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from trainvitals.errors import SourceError
from trainvitals.sources.containers.cgroup_files import find_number, read_data
from trainvitals.sources.containers.cgrouppaths import identify
from trainvitals.sources.containers.cgroups import to_sample
from trainvitals.sources.containers.container_state import Attempt, ContainerState, Ending
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.evidence import (
    EngineEvent,
    Evidence,
    Gap,
    Host,
    OomKill,
)
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inspection import parse_inspection
from trainvitals.sources.containers.judgement import Judgement
from trainvitals.sources.containers.reading import Death
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelLog, KernelNews
from trainvitals.sources.host.snapshot import read_host
from trainvitals.sources.signals import name_signal

# An OOM kill can be reported up to a second after the exit that it caused.
LATE_SECONDS = 1.0
_LOG_LINES = 200
_BEFORE_SECONDS = 60.0
# No engine restarts a container within this time after its end.
_LAST_LINES_SECONDS = 0.05
_MOST_KERNEL_LINES = 20
_CAUSES = frozenset({"kill", "oom"})
_LIMIT = "CONSTRAINT_MEMCG"
_MOST_KILLS = 64
# The kernel's and the engine's timestamps differ slightly.
_SLACK_SECONDS = 2.0


def fetch(ending: Ending, client: EngineClient, following: Following) -> None:
    """Fetch evidence that the engine may soon discard: the state after the end and log lines."""
    _fetch_inspection(ending, client)
    ending.log = _fetch_log(ending, client, following)


def _fetch_inspection(ending: Ending, client: EngineClient) -> None:
    try:
        inspection = parse_inspection(client.inspect(ending.container))
    except EngineError as error:
        if ending.inspection is None:
            ending.gaps.append(error.to_gap("the container's settings and state"))
        return
    ending.inspection = inspection
    finished = inspection.state.finished
    is_of_it = finished is not None and abs(finished - ending.time) <= _SLACK_SECONDS
    # If the engine restarted the container at once, the inspection describes the next start.
    if is_of_it or inspection.state.status not in {"running", "restarting", "paused"}:
        ending.state = inspection.state


def _fetch_log(
    ending: Ending, client: EngineClient, following: Following
) -> tuple[str, ...] | None:
    lines = following.read(ending)
    if lines is not None:
        return lines[-_LOG_LINES:]
    try:
        return client.logs(
            ending.container,
            tail=_LOG_LINES,
            since=ending.attempt.log_since,
            # The container may be running again and writing.
            until=ending.time + _LAST_LINES_SECONDS if ending.is_witnessed else None,
        )
    except EngineError as error:
        ending.gaps.append(error.to_gap("the container's log"))
        return None


class EvidenceBuilder:
    """Assembles the available evidence about a container's end.

    Args:
        kernel_log: The kernel log.
        registry: The registry of known containers, in which OOM kills are counted.
        roots: The paths of the host's file systems.
        clock: A function that returns the time, in seconds since 1970.
        read_host: A function that reads the machine's state.
    """

    def __init__(
        self,
        kernel_log: KernelLog,
        registry: ContainerRegistry,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
        read_host: Callable[..., Host] = read_host,
    ) -> None:
        self._kernel_log = kernel_log
        self._registry = registry
        self._lock = threading.Lock()
        self._is_first = True
        self._is_closed = False
        self._is_readable = kernel_log.is_readable
        self._roots = roots
        self._clock = clock
        self._read_host = read_host

    def catch_up(self) -> None:
        """Read the kernel log's new records, and count the OOM kills in the known containers."""
        with self._lock:
            if self._is_closed:
                return
            news = self._kernel_log.read()
            self._is_readable = self._kernel_log.is_readable
            is_first, self._is_first = self._is_first, False
        if is_first:  # these records were written before the exporter started
            return
        with self._registry.lock:
            for kill in news.oom_kills:
                known = self._find_killed(kill)
                if known is not None:
                    known.newest.count_oom_kills("kernel")

    def _find_killed(self, kill: OomKill) -> ContainerState | None:
        if kill.task_memcg:
            return self._registry.find(identify(kill.task_memcg) or "")
        for known in self._registry.containers.values():
            attempts = (
                [known.attempt] if known.ending is None else [known.attempt, known.ending.attempt]
            )
            if any(is_main_process(attempt, kill) for attempt in attempts):
                return known
        return None

    @property
    def can_read_kernel_log(self) -> bool:
        """Whether the kernel log was readable when it was last read."""
        return self._is_readable

    def close(self) -> None:
        """Close the kernel log."""
        with self._lock:
            self._is_closed = True
            self._kernel_log.close()

    def build(self, ending: Ending, *, engine: str, engine_started: float | None) -> Evidence:
        """Return the currently available evidence about a container's end.

        Args:
            ending: The end of the container.
            engine: The name and version of the engine, which is `docker` or `podman`; empty if the
                engine is unknown.
            engine_started: The time when the engine started; None if the time is unknown.
        """
        return replace(self._describe(ending), engine=engine, engine_started=engine_started)

    def _describe(self, ending: Ending) -> Evidence:
        attempt, inspection = ending.attempt, ending.inspection
        kernel, gap = self._look_up(ending)
        host = self._read_host_state(ending)
        host_oom_kills = self._count_host_kills(attempt)
        with self._registry.lock:
            known = ending.known.newest
            return Evidence(
                subject="container",
                name=known.name,
                id=ending.container,
                image=known.image,
                compose_project=known.compose_project,
                compose_service=known.compose_service,
                started=attempt.started,
                ended=ending.time,
                exit_code=ending.exit_code,
                is_exit_code_witnessed=ending.is_witnessed,
                events=list_events(attempt) if was_heard(ending) else None,
                state=ending.state,
                settings=inspection.settings if inspection is not None else None,
                log=ending.log,
                oom_kills=kernel.oom_kills if kernel is not None else None,
                xids=kernel.xids if kernel is not None else None,
                kernel_lines=tuple(line.text for line in kernel.lines) if kernel else (),
                sample=to_sample(attempt.usage) if attempt.usage is not None else None,
                host=host,
                host_oom_kills=host_oom_kills,
                restarts=known.restarts,
                earlier_deaths=ending.earlier,
                gaps=(*ending.gaps, *([gap] if gap is not None else [])),
            )

    def _look_up(self, ending: Ending) -> tuple[KernelNews | None, Gap | None]:
        """Return the kernel log's records from the start that ended.

        If the kernel log cannot be read, the first value is None, and the second value contains the
        reason.
        """
        recent = ending.time - _BEFORE_SECONDS
        started = ending.attempt.started
        since = min(recent, recent if started is None else started - _SLACK_SECONDS)
        with self._lock:
            if self._is_closed or not self._kernel_log.is_readable:
                return None, None if self._is_closed else self._kernel_log.why_not
            news = self._kernel_log.recall(since)
        # OOM kills in other containers are included: if two containers share a limit, only the
        # kernel log shows which container was killed.
        kills = tuple(_attribute(kill, ending) for kill in news.oom_kills[-_MOST_KILLS:])
        xids = tuple(xid for xid in news.xids if xid.time >= recent)
        lines = tuple(line for line in news.lines if line.time is None or line.time >= recent)
        return KernelNews(kills, xids, lines[-_MOST_KERNEL_LINES:]), None

    def _read_host_state(self, ending: Ending) -> Host | None:
        try:
            return self._read_host(roots=self._roots, clock=self._clock)
        except SourceError:
            ending.gaps.append(
                Gap("the machine", "its /proc cannot be read", "check --path.procfs")
            )
            return None

    def _count_host_kills(self, attempt: Attempt) -> int | None:
        before, now = attempt.host_oom_kills, count_host_oom_kills(self._roots)
        return None if before is None or now is None else max(0, now - before)


def was_heard(ending: Ending) -> bool:
    """Return whether the events of a start are complete enough to show how the container ended.

    The events are complete if they were followed from the beginning of the start. Otherwise, an
    event must have reported the end. In addition, events must have been followed for at least 60 s
    before the end, or must contain a kill or an OOM event.
    """
    attempt = ending.attempt
    if attempt.heard_since == -math.inf:
        return True
    is_long = attempt.heard_since <= ending.time - _BEFORE_SECONDS
    has_cause = any(event.action in _CAUSES for event in attempt.events)
    return ending.is_witnessed and (is_long or has_cause)


def is_main_process(attempt: Attempt, kill: OomKill) -> bool:
    """Return whether the PID and the time of an OOM kill match the main process of a start."""
    if attempt.pid is None or kill.pid != attempt.pid:
        return False
    started, ended = attempt.started, attempt.ended
    return (started is None or kill.time >= started - _SLACK_SECONDS) and (
        ended is None or kill.time <= ended + _SLACK_SECONDS
    )


def _attribute(kill: OomKill, ending: Ending) -> OomKill:
    """Return an OOM kill; if the main process was killed, a missing control group is added."""
    if kill.task_memcg or not is_main_process(ending.attempt, kill):
        return kill
    group = ending.attempt.cgroup or f"/{ending.container}"
    settings = ending.inspection.settings if ending.inspection is not None else None
    is_limited = settings is not None and settings.memory_limit_bytes is not None
    # The log line shows that a limit was exceeded, but not which one. The container's limit is the
    # nearest.
    is_own = is_limited and kill.constraint == _LIMIT and kill.oom_memcg is None
    return replace(kill, task_memcg=group, oom_memcg=group if is_own else kill.oom_memcg)


def list_events(attempt: Attempt) -> tuple[EngineEvent, ...]:
    """Return the events of a start, the oldest first."""
    return tuple(sorted(attempt.events, key=lambda event: event.time))


def count_host_oom_kills(roots: Roots) -> int | None:
    """Return the OOM kill count since boot from `/proc/vmstat`; None if the count is unknown."""
    return find_number(read_data(str(roots.procfs), "vmstat", comes_by_page=True), b"oom_kill")


def describe_death(evidence: Evidence, verdict: Judgement) -> Death:
    """Return the exported description of a container exit."""
    number = evidence.last_signal
    return Death(
        time=evidence.ended or 0.0,
        exit_code=evidence.exit_code,
        reason=verdict.reason,
        signal="" if number is None else name_signal(number).removeprefix("signal "),
        confidence=verdict.confidence,
        summary=verdict.summary,
    )
