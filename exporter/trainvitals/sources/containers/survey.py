"""Query all sources on this machine once: the engine, the journal and the kernel log."""

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
# The journal folder of an exporter that runs as root.
_SYSTEM_JOURNAL = Path("var/lib/trainvitals/deaths")
# If the engine is busy, a user would rather wait than get an error.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Survey:
    """The findings about all containers on this machine.

    Attributes:
        time: The time of the survey, in seconds since 1970.
        roots: The paths of this machine's file systems.
        client: The client for the container engine; None if no engine answered.
        engine: The name and version of the engine, which is `docker` or `podman`; empty if the
            engine is unknown.
        engine_root: The engine's data folder; empty if the folder is unknown.
        is_local: Whether the engine runs on this machine. If not, this machine's kernel log and
            control groups do not concern the containers.
        listings: The engine's list of all containers, running or not.
        events: The events that the engine still stores; None if the events could not be read.
        entries: The records in the journal, the newest first.
        journal: The folder of the journal.
        kernel: The events in the kernel log; None if the kernel log cannot be read.
        gaps: The sources of evidence that could not be read.
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
        """The level of access that the survey had to the sources.

        The level is 0 if only control groups and `/proc` could be read, 1 if the engine could be
        queried as well, and 2 if the kernel log could be read as well.
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
    """Query all sources; a source that cannot be read is recorded in `gaps`.

    Args:
        engine: The engine's address, or `none` for no engine; None to detect an engine.
        journal: The folder of the journal; None for the default folders.
        since_seconds: The maximum age of the requested events, in seconds.
        environ: The environment, from which variables such as `DOCKER_HOST` and
            `TRAINVITALS_JOURNAL_DIR` are read.
        roots: The paths of this machine's file systems.
        kmsg: The path of the kernel log.
        clock: A function that returns the time, in seconds since 1970.

    Raises:
        ConfigurationError: The engine's address is invalid, or a certificate cannot be read.
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
    """Return the kernel log's events and no gaps, or None and a gap if the log is unreadable."""
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
    except EngineError:  # refused by a proxy; the engine is assumed to be local
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
