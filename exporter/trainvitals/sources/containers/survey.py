"""One query of all sources on this machine: the engine, the journal, the kernel log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.containers.address import find_engine
from trainvitals.sources.containers.documents import get_number, get_text
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.events import ContainerEvent, read_events
from trainvitals.sources.containers.evidence import Gap
from trainvitals.sources.containers.inspection import Listing, describe_engine, parse_listing
from trainvitals.sources.containers.journal import Entry, Journal, default_journal
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelLog, KernelNews
from trainvitals.sources.host.memory import read_memory

KMSG = Path("/dev/kmsg")
# Where an exporter that runs as root writes.
_SYSTEM_JOURNAL = Path("var/lib/trainvitals/deaths")
# A person would rather wait than read that a busy engine does not answer.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Survey:
    """The findings about all containers.

    Attributes:
        time: When.
        roots: The paths of this machine's file systems.
        client: The engine's client; None if no engine answers.
        engine: `docker` or `podman` with its version.
        engine_root: Where the engine keeps its data; empty if unknown.
        is_local: Whether the engine is this machine's, so that its kernel log and control groups
            are those of the containers.
        listings: The containers that there are, those that do not run as well.
        events: The events that the engine still has; None if it could not be asked.
        entries: The journal's records, the newest first.
        journal: The journal's folder.
        kernel: The events in the kernel log; None if it cannot be read.
        gaps: The sources that could not be read.
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
    def step(self) -> int:
        """The step of the ladder of privileges that this is.

        0: control groups and /proc alone; 1: the engine as well; 2: the kernel log as well.
        """
        if self.client is None:
            return 0
        return 1 if self.kernel is None else 2


def survey_machine(
    *,
    engine: str | None = None,
    journal: Path | None = None,
    since_seconds: float,
    environ: Mapping[str, str] = os.environ,
    roots: Roots = Roots(),  # noqa: B008 - immutable
    kmsg: Path = KMSG,
    clock: Callable[[], float] = time.time,
) -> Survey:
    """Query all sources; one that cannot be read is a gap.

    Args:
        engine: The engine's address; None to detect one, `none` for none.
        journal: The journal's folder; the one that the exporter writes to when None.
        since_seconds: The age of the oldest events to ask for.
        environ: The environment, of which `DOCKER_HOST` and the journal's place are read.
        roots: The paths of this machine's file systems.
        kmsg: The kernel log.
        clock: Returns the time.

    Raises:
        ConfigurationError: The engine's address cannot be understood.
    """
    folders = [journal or default_journal(environ)]
    if journal is None and "TRAINVITALS_JOURNAL_DIR" not in environ:
        folders.append(roots.rootfs / _SYSTEM_JOURNAL)
    survey = Survey(time=clock(), roots=roots, journal=folders[0])
    for folder in dict.fromkeys(folders):
        survey = _read_journal(survey, folder)
    kernel, gaps = read_kernel(kmsg)
    survey = replace(survey, kernel=kernel, gaps=(*survey.gaps, *gaps))
    return _ask_engine(survey, engine, environ, since_seconds)


def _read_journal(survey: Survey, folder: Path) -> Survey:
    try:
        entries = (*survey.entries, *Journal(folder).read_entries())
    except SourceError as error:
        why, _, remedy = str(error).partition("; ")
        return _add_gap(survey, Gap("the journal of deaths", why, remedy))
    newest = sorted(entries, key=lambda entry: entry.evidence.ended or 0.0, reverse=True)
    return replace(survey, entries=tuple(newest))


def read_kernel(kmsg: Path = KMSG) -> tuple[KernelNews | None, tuple[Gap, ...]]:
    """Return the records that the kernel log still has, or None and why it cannot be read."""
    with closing(KernelLog(kmsg)) as log:
        if log.is_readable:
            return log.read(), ()
        gap = log.why_not
    return None, () if gap is None else (replace(gap, remedy=f"run it as root, or {gap.remedy}"),)


def _ask_engine(
    survey: Survey, address: str | None, environ: Mapping[str, str], since_seconds: float
) -> Survey:
    found = find_engine(address, environ=environ, rootfs=survey.roots.rootfs)
    if found is None:
        return _add_gap(
            survey,
            Gap(
                "the engine",
                "none was asked for" if address else "no engine's socket was found",
                "name it with `--containers.engine unix:///PATH` or DOCKER_HOST",
            ),
        )
    client = EngineClient(found, timeout_seconds=_PATIENCE_SECONDS, environ=environ)
    try:
        version = client.version()
        survey = replace(survey, client=client, engine=describe_engine(version))
        listings = tuple(parse_listing(document) for document in client.list_containers())
        survey = replace(survey, listings=listings)
    except EngineError as error:
        return replace(_add_gap(survey, error.to_gap("the engine")), client=None)
    return _ask_events(_ask_info(survey, client), client, since_seconds)


def _ask_info(survey: Survey, client: EngineClient) -> Survey:
    try:
        info = client.info()
    except EngineError:  # a proxy may withhold it; then the engine is taken for this machine's
        return survey
    memory = get_number(info, "MemTotal")
    return replace(
        survey,
        engine_root=get_text(info, "DockerRootDir"),
        is_local=memory is None or memory == _read_memory(survey.roots),
    )


def _ask_events(survey: Survey, client: EngineClient, since_seconds: float) -> Survey:
    try:
        events = read_events(client, since=survey.time - since_seconds, until=survey.time)
    except EngineError as error:
        return _add_gap(survey, error.to_gap("the engine's events"))
    return replace(survey, events=events)


def _read_memory(roots: Roots) -> int | None:
    try:
        return read_memory(roots).total_bytes
    except SourceError:
        return None


def _add_gap(survey: Survey, gap: Gap) -> Survey:
    return replace(survey, gaps=(*survey.gaps, gap))
