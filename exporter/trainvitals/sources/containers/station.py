"""All that watches over containers, from the start to the end: it is loaded where there are some."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainvitals.crew import Crew
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.agenda import Agenda
from trainvitals.sources.containers.comparison import Comparison
from trainvitals.sources.containers.deaths import Registrar
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.containers.errands import Errands
from trainvitals.sources.containers.events import EventFollower
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inquest import Inquest
from trainvitals.sources.containers.inspector import Inspector
from trainvitals.sources.containers.journal import Journal, default_journal
from trainvitals.sources.containers.known import Known, choose_told
from trainvitals.sources.containers.loglines import LogRing
from trainvitals.sources.containers.options import ContainerOptions
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.containers.roster import Roster
from trainvitals.sources.containers.sampler import Sampler
from trainvitals.sources.containers.watch import Watch
from trainvitals.sources.files import Roots
from trainvitals.sources.kernel_log import KernelLog

_MOST_TOLD = 128
_CLOSE_SECONDS = 1.0
_ENGINE_PID_FILE = "run/docker.pid"


class Station:
    """All that watches: it begins when it is made."""

    def __init__(
        self,
        options: ContainerOptions,
        client: EngineClient | None,
        *,
        roots: Roots,
        accelerators: AcceleratorSource | None,
        journal: Journal,
        clock: Callable[[], float],
    ) -> None:
        self._roots = roots
        self._kernel_log = KernelLog(roots.rootfs / "dev/kmsg", clock=clock)
        self._roster = Roster(forget_after_seconds=options.forget_after_seconds, clock=clock)
        self._registrar = Registrar(self._kernel_log, self._roster, roots=roots, clock=clock)
        self._agenda = Agenda(name="container-sampler")
        self._errands = Errands(self._agenda)
        self._sampler = Sampler(
            self._roster,
            self._registrar,
            client=client,
            accelerators=accelerators,
            roots=roots,
            clock=clock,
        )
        self._ring: LogRing | None = None
        self._inquest: Inquest | None = None
        self._follower: EventFollower | None = None
        if client is not None:
            if options.follow != "none":
                self._ring = LogRing(client)
                self._ring.start()
            self._follow(client, Following(self._ring, options.follow), journal, clock)
        self._agenda.repeat(options.interval_seconds, self._sampler.sample)
        self._agenda.start()

    def _follow(
        self,
        client: EngineClient,
        following: Following,
        journal: Journal,
        clock: Callable[[], float],
    ) -> None:
        roster, errands = self._roster, self._errands
        inquest = self._inquest = Inquest(
            client, roster, self._registrar, following, errands, journal=journal, clock=clock
        )
        inspector = Inspector(client, roster, inquest, following, clock=clock)
        comparison = Comparison(
            client, roster, inspector, inquest, errands, journal=journal, clock=clock
        )
        watch = Watch(roster, inquest, inspector, comparison, following, errands, clock=clock)
        self._follower = EventFollower(
            client,
            on_event=watch.take_event,
            on_connect=lambda: watch.note_connect(find_engine_start(self._roots)),
            on_gap=watch.note_gap,
        )
        self._follower.start()

    def read(self) -> ContainersReading:
        """Tell what is known of all containers."""
        with self._roster.lock:
            told, omitted = choose_told(self._roster.containers.values(), _MOST_TOLD)
            containers = tuple(
                [describe(known, self._roster.forget_after_seconds) for known in told]
            )
        follower, inquest = self._follower, self._inquest
        step = 0 if follower is None else 2 if self._registrar.can_read_kernel_log else 1
        return ContainersReading(
            is_there=True,
            step=step,
            is_connected=None if follower is None else follower.is_connected,
            gaps=0 if follower is None else follower.gaps,
            sampled=self._sampler.sampled,
            containers=containers,
            omitted=omitted,
            complaint=(follower.complaint if follower is not None else None)
            or (inquest.complaint if inquest is not None else None),
        )

    def close(self) -> None:
        """Stop watching."""
        self._errands.close()
        self._sampler.close()
        ends: dict[str, Callable[[], None]] = {
            "agenda": self._agenda.close,
            "kernel log": self._registrar.close,
        }
        if self._follower is not None:
            ends["events"] = self._follower.close
        if self._ring is not None:
            ends["logs"] = self._ring.close
        crew = Crew(name="container-end", limit=len(ends))  # each of them may hang by itself
        crew.gather(ends, _CLOSE_SECONDS)
        crew.close()


def describe(known: Known, forget_after_seconds: float) -> ContainerReading:
    """Give what is served of a container."""
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


def find_engine_start(roots: Roots) -> float | None:
    """Give when Docker's daemon was started, by its PID file; None where that is not there."""
    try:
        return (roots.rootfs / _ENGINE_PID_FILE).stat().st_mtime
    except OSError:
        return None


def open_station(
    options: ContainerOptions,
    address: str | None,
    *,
    roots: Roots,
    accelerators: AcceleratorSource | None,
    environ: Mapping[str, str],
    clock: Callable[[], float],
) -> Station:
    """Begin to watch.

    Args:
        options: What is watched, and how.
        address: The engine's address; None to know containers by their control groups alone.
        roots: Where the host's file systems are.
        accelerators: Knows which processes hold an accelerator; None where nobody does.
        environ: Says where the journal is, and has the certificates of an engine by TCP.
        clock: The time of day, in seconds since 1970.

    Raises:
        ConfigurationError: No address is written like this, or the certificates cannot be read.
    """
    return Station(
        options,
        None if address is None else EngineClient(address, environ=environ),
        roots=roots,
        accelerators=accelerators,
        journal=Journal(options.journal or default_journal(environ)),
        clock=clock,
    )
