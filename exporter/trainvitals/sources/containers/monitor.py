"""Start the threads that watch containers; imported only if the machine has containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.address import find_engine_start
from trainvitals.sources.containers.comparison import Comparison
from trainvitals.sources.containers.container_state import ContainerState, choose_shown
from trainvitals.sources.containers.death_handler import DeathHandler
from trainvitals.sources.containers.deaths import EvidenceBuilder
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.containers.events import EventFollower
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inspector import Inspector
from trainvitals.sources.containers.journal import Journal, default_journal
from trainvitals.sources.containers.judgement import Judge
from trainvitals.sources.containers.loglines import LogRing
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.containers.sampler import Sampler
from trainvitals.sources.containers.schedule import Schedule, TaskQueue
from trainvitals.sources.containers.source import ContainerOptions
from trainvitals.sources.containers.watch import Watch
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelLog
from trainvitals.workers import WorkerPool

_MOST_SHOWN = 128
_CLOSE_SECONDS = 1.0


class ContainerMonitor:
    """Watches all containers with threads that are started when the object is created."""

    def __init__(
        self,
        options: ContainerOptions,
        client: EngineClient | None,
        *,
        roots: Roots,
        accelerators: AcceleratorSource | None,
        journal: Journal,
        judge: Judge,
        clock: Callable[[], float],
    ) -> None:
        self._roots = roots
        self._kernel_log = KernelLog(roots.rootfs / "dev/kmsg", clock=clock)
        self._registry = ContainerRegistry(
            forget_after_seconds=options.forget_after_seconds, clock=clock
        )
        self._builder = EvidenceBuilder(self._kernel_log, self._registry, roots=roots, clock=clock)
        self._schedule = Schedule(name="container-sampler")
        self._tasks = TaskQueue(self._schedule)
        self._sampler = Sampler(
            self._registry,
            self._builder,
            client=client,
            accelerators=accelerators,
            roots=roots,
            clock=clock,
        )
        self._ring: LogRing | None = None
        self._handler: DeathHandler | None = None
        self._follower: EventFollower | None = None
        if client is not None:
            if options.follow != "none":
                self._ring = LogRing(client)
                self._ring.start()
            following = Following(self._ring, options.follow)
            self._follow(client, following, journal, judge, clock)
        self._schedule.repeat(options.interval_seconds, self._sampler.sample)
        self._schedule.start()

    def _follow(
        self,
        client: EngineClient,
        following: Following,
        journal: Journal,
        judge: Judge,
        clock: Callable[[], float],
    ) -> None:
        registry, tasks = self._registry, self._tasks
        handler = self._handler = DeathHandler(
            client,
            registry,
            self._builder,
            following,
            tasks,
            journal=journal,
            judge=judge,
            clock=clock,
        )
        inspector = Inspector(client, registry, handler, following, clock=clock)
        comparison = Comparison(
            client,
            registry,
            inspector,
            handler,
            tasks,
            journal=journal,
            # Sample again, in case the first sample was taken before any container was known.
            on_first=lambda: self._schedule.call_after(0.0, self._sampler.sample),
            clock=clock,
        )
        watch = Watch(registry, handler, inspector, comparison, following, tasks, clock=clock)
        self._follower = EventFollower(
            client,
            on_event=watch.take_event,
            on_connect=lambda: watch.note_connect(find_engine_start(client.address, self._roots)),
            on_gap=watch.note_gap,
        )
        self._follower.start()

    def read(self) -> ContainersReading:
        """Return the latest state of all containers."""
        with self._registry.lock:
            shown, omitted = choose_shown(self._registry.containers.values(), _MOST_SHOWN)
            containers = tuple(
                [describe(known, self._registry.forget_after_seconds) for known in shown]
            )
        follower, handler = self._follower, self._handler
        step = 0 if follower is None else 2 if self._builder.can_read_kernel_log else 1
        return ContainersReading(
            is_there=True,
            step=step,
            is_connected=None if follower is None else follower.is_connected,
            gaps=0 if follower is None else follower.gaps,
            sampled=self._sampler.sampled,
            containers=containers,
            omitted=omitted,
            complaint=(follower.complaint if follower is not None else None)
            or (handler.complaint if handler is not None else None),
        )

    def close(self) -> None:
        """Stop the threads that watch containers."""
        self._tasks.close()
        self._sampler.close()
        ends: dict[str, Callable[[], None]] = {
            "schedule": self._schedule.close,
            "kernel log": self._builder.close,
        }
        if self._follower is not None:
            ends["events"] = self._follower.close
        if self._ring is not None:
            ends["logs"] = self._ring.close
        pool = WorkerPool(name="container-end", limit=len(ends))  # each of these calls may block
        pool.gather(ends, _CLOSE_SECONDS)
        pool.close()


def describe(known: ContainerState, forget_after_seconds: float) -> ContainerReading:
    """Return the reading of a container from the container's state."""
    attempt = known.attempt
    return ContainerReading(
        name=known.name,
        id=known.id,
        image=known.image,
        compose_project=known.compose_project,
        compose_service=known.compose_service,
        status=known.status,
        health=known.health,
        started=attempt.started,
        restarts=known.restarts,
        deaths=dict(known.deaths),
        last_death=known.last_death,
        oom_kills=dict(known.oom_kills),
        usage=None if attempt.is_over or known.removed is not None else attempt.usage,
        accelerators=known.accelerators,
        ends_at=None if known.removed is None else known.removed + forget_after_seconds,
    )


def start_monitor(
    options: ContainerOptions,
    address: str | None,
    *,
    roots: Roots,
    accelerators: AcceleratorSource | None,
    environ: Mapping[str, str],
    judge: Judge,
    clock: Callable[[], float],
) -> ContainerMonitor:
    """Start the threads that watch this machine's containers.

    Args:
        options: The options of the container collector.
        address: The engine's address; None to detect containers only by their control groups.
        roots: The paths of the host's file systems.
        accelerators: The source of the processes that use an accelerator; None to report no
            accelerators.
        environ: The environment, which determines the journal's folder and the certificates for an
            engine's TCP address.
        judge: A function that returns the verdict on a container exit.
        clock: A function that returns the time, in seconds since 1970.

    Raises:
        ConfigurationError: The address is invalid, or the certificates cannot be read.
    """
    return ContainerMonitor(
        options,
        None if address is None else EngineClient(address, environ=environ),
        roots=roots,
        accelerators=accelerators,
        journal=Journal(options.journal or default_journal(environ)),
        judge=judge,
        clock=clock,
    )
