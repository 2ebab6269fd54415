"""What can be asked on this machine, asked once: the engine, the journal, the kernel log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainvitals.causes.evidence import Gap
from trainvitals.diagnosis.diagnosis import Reach
from trainvitals.errors import SourceError
from trainvitals.sources.containers.documents import get_number, get_text
from trainvitals.sources.containers.engine import EngineClient, EngineError, find_engine
from trainvitals.sources.containers.events import ContainerEvent, read_events
from trainvitals.sources.containers.inspection import Listing, describe_engine, parse_listing
from trainvitals.sources.containers.journal import Entry, Journal, default_journal
from trainvitals.sources.files import Roots
from trainvitals.sources.kernel_log import KernelLog, KernelNews
from trainvitals.sources.memory import MemorySource

# Where the exporter writes that runs as root, whoever asks.
_SYSTEM_JOURNAL = Path("var/lib/trainvitals/deaths")
# A person would rather wait than read that a busy engine does not answer.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What was found out about all containers.

    Attributes:
        time: When.
        roots: Where this machine's file systems are.
        client: Asks the engine; None where there is none that answers.
        engine: `docker` or `podman` with its version.
        engine_root: Where the engine keeps its data; empty where not known.
        is_local: Whether the engine is this machine's, so that its kernel log and control groups
            are those of the containers.
        listings: The containers that there are, those that do not run as well.
        events: What the engine still tells of; None where it could not be asked.
        entries: The journal's records, the newest first.
        journal: The journal's folder.
        kernel: What the kernel log still has; None where it cannot be read.
        gaps: What could not be asked.
    """

    time: float
    roots: Roots
    client: EngineClient | None = None
    engine: str = ""
    engine_root: str = ""
    is_local: bool = True
    listings: tuple[Listing, ...] = ()
    events: tuple[ContainerEvent, ...] | None = None
    entries: tuple[Entry, ...] = ()
    journal: Path = Path()
    kernel: KernelNews | None = None
    gaps: tuple[Gap, ...] = field(default=())

    @property
    def reach(self) -> Reach:
        """The step of the ladder of privileges that this is."""
        if self.client is None:
            return Reach(0)
        return Reach(1 if self.kernel is None else 2)


def survey(
    *,
    engine: str | None = None,
    journal: Path | None = None,
    since_seconds: float,
    environ: Mapping[str, str] = os.environ,
    roots: Roots = Roots(),  # noqa: B008 - immutable
    kmsg: Path = Path("/dev/kmsg"),
    clock: Callable[[], float] = time.time,
) -> Scene:
    """Ask everything that can be asked; what cannot is a gap.

    Args:
        engine: The engine's address; None to look for one, `none` for none.
        journal: The journal's folder; the one that the exporter writes to when None.
        since_seconds: How far back events are asked for.
        environ: Has `DOCKER_HOST` and what names the journal.
        roots: Where this machine's file systems are.
        kmsg: The kernel log.
        clock: Tells the time.

    Raises:
        ConfigurationError: The engine's address cannot be understood.
    """
    folders = [journal or default_journal(environ)]
    if journal is None and "TRAINVITALS_JOURNAL_DIR" not in environ:
        folders.append(roots.rootfs / _SYSTEM_JOURNAL)
    scene = Scene(time=clock(), roots=roots, journal=folders[0])
    for folder in dict.fromkeys(folders):
        scene = _read_journal(scene, folder)
    scene = _read_kernel(scene, kmsg)
    return _ask_engine(scene, engine, environ, since_seconds)


def _read_journal(scene: Scene, folder: Path) -> Scene:
    try:
        entries = (*scene.entries, *Journal(folder).read_entries())
    except SourceError as error:
        why, _, remedy = str(error).partition("; ")
        return _add_gap(scene, Gap("the journal of deaths", why, remedy))
    newest = sorted(entries, key=lambda entry: entry.evidence.ended or 0.0, reverse=True)
    return replace(scene, entries=tuple(newest))


def _read_kernel(scene: Scene, kmsg: Path) -> Scene:
    with closing(KernelLog(kmsg)) as log:
        if log.is_readable:
            return replace(scene, kernel=log.read())
        gap = log.why_not
    return (
        scene
        if gap is None
        else _add_gap(scene, replace(gap, remedy=f"run it as root, or {gap.remedy}"))
    )


def _ask_engine(
    scene: Scene, address: str | None, environ: Mapping[str, str], since_seconds: float
) -> Scene:
    found = find_engine(address, environ=environ, rootfs=scene.roots.rootfs)
    if found is None:
        return _add_gap(
            scene,
            Gap(
                "the engine",
                "none was asked for" if address else "no engine's socket was found",
                "name it with `--engine unix:///PATH` or DOCKER_HOST",
            ),
        )
    client = EngineClient(found, timeout_seconds=_PATIENCE_SECONDS, environ=environ)
    try:
        version = client.version()
        scene = replace(scene, client=client, engine=describe_engine(version))
        listings = tuple(parse_listing(document) for document in client.list_containers())
        scene = replace(scene, listings=listings)
    except EngineError as error:
        gap = error.to_gap("the engine")
        remedy = gap.remedy.replace("--containers.engine", "--engine")
        return replace(_add_gap(scene, replace(gap, remedy=remedy)), client=None)
    return _ask_events(_ask_info(scene, client), client, since_seconds)


def _ask_info(scene: Scene, client: EngineClient) -> Scene:
    try:
        info = client.info()
    except EngineError:  # a proxy may withhold it; then the engine is taken for this machine's
        return scene
    memory = get_number(info, "MemTotal")
    return replace(
        scene,
        engine_root=get_text(info, "DockerRootDir"),
        is_local=memory is None or memory == _read_memory(scene.roots),
    )


def _ask_events(scene: Scene, client: EngineClient, since_seconds: float) -> Scene:
    try:
        events = read_events(client, since=scene.time - since_seconds, until=scene.time)
    except EngineError as error:
        return _add_gap(scene, error.to_gap("the engine's events"))
    return replace(scene, events=events)


def _read_memory(roots: Roots) -> int | None:
    source = MemorySource(roots=roots)
    try:
        return source.read().total_bytes
    except SourceError:
        return None
    finally:
        source.close()


def _add_gap(scene: Scene, gap: Gap) -> Scene:
    return replace(scene, gaps=(*scene.gaps, gap))
