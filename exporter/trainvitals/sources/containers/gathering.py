"""Collect the evidence about one container on this machine from all sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainvitals.sources.containers.address import find_engine_start
from trainvitals.sources.containers.assembly import Pieces, assemble, fill, find_log_start
from trainvitals.sources.containers.cgrouppaths import find_groups
from trainvitals.sources.containers.cgroups import GroupFiles, to_sample
from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.evidence import Evidence, Gap, Host
from trainvitals.sources.containers.inspection import Inspection, parse_inspection
from trainvitals.sources.containers.journal import Entry
from trainvitals.sources.containers.survey import Survey
from trainvitals.sources.host.engine_log import read_engine_log
from trainvitals.sources.host.kernel_lines import DatedLine
from trainvitals.sources.host.snapshot import read_host

_SAME_SECONDS = 5.0
_SLACK_SECONDS = 0.5
_TAIL = 500
_NOT_FOUND = 404
_SERVE = (
    "let `trainvitals serve` run beside the engine: it keeps events, last lines and memory of each "
    "death"
)


def gather(
    survey: Survey, id_: str, name: str = "", *, ended: float | None = None, is_brief: bool = False
) -> Evidence:
    """Return the evidence about a container's exit, or about a running container's problem.

    The journal takes precedence over the engine's current answer, which may describe a later start.

    Args:
        survey: The findings about all containers on this machine.
        id_: The container's ID.
        name: The container's name, which is used if the engine no longer knows the container.
        ended: The time of the exit, in seconds since 1970; None for the last exit.
        is_brief: Whether to omit the machine's state and the engine's log.
    """
    inspection, gaps = _inspect(survey, id_)
    pieces = Pieces(
        name=name or id_[:12],
        id=id_,
        inspection=inspection,
        events=_choose_events(survey.events, id_, ended),
        engine=survey.engine,
        gaps=gaps,
    )
    pieces = _add_kernel(pieces, survey, id_)
    evidence = assemble(pieces)
    if ended is None:
        ended = evidence.ended
    if ended is None and inspection is None:  # the engine no longer knows the container
        ended = _recall_end(survey.entries, id_)
    entry = find_entry(survey.entries, id_, ended)
    if entry is None and inspection is not None and evidence.started is not None:
        pieces = replace(pieces, gaps=(*pieces.gaps, *_miss_journal(survey, evidence)))
    if entry is None or entry.evidence.log is None:
        pieces = _add_log(pieces, survey, evidence)
    if not is_brief:
        pieces = _add_surroundings(pieces, survey, evidence)
    found = assemble(pieces)
    if found.ended is None and found.state is None:
        found = replace(found, ended=ended)
    return found if entry is None else fill_record(entry.evidence, found)


def fill_record(record: Evidence, found: Evidence) -> Evidence:
    """Fill missing values of a journal record from later findings, and remove the filled gaps."""
    filled = fill(record, found)
    known = {
        "its log": filled.log is not None,
        "the engine's events": filled.events is not None,
        "the kernel log": filled.oom_kills is not None,
        "the engine": record.state is not None,
        "the container": filled.settings is not None and filled.log is not None,
    }
    gaps = [gap for gap in (*record.gaps, *found.gaps) if not known.get(gap.what, False)]
    return replace(filled, gaps=tuple({gap.what: gap for gap in gaps}.values()))


def find_entry(entries: Sequence[Entry], id_: str, ended: float | None) -> Entry | None:
    """Return the journal record of an exit; None if there is no record or `ended` is None."""
    if ended is None:
        return None
    near = [
        entry
        for entry in entries
        if entry.evidence.id == id_
        and entry.evidence.ended is not None
        and abs(entry.evidence.ended - ended) <= _SAME_SECONDS
    ]
    return min(near, key=lambda entry: abs((entry.evidence.ended or 0.0) - ended), default=None)


def _recall_end(entries: Sequence[Entry], id_: str) -> float | None:
    """Return when a container last ended according to the journal; None if no end is recorded."""
    ends = (entry.evidence.ended for entry in entries if entry.evidence.id == id_)
    return max((end for end in ends if end is not None), default=None)


def read_present(survey: Survey, evidence: Evidence | None = None) -> Host | None:
    """Return the machine's current state; None if the engine runs on another machine."""
    if not survey.is_local:
        return None
    paths = [survey.engine_root] if survey.engine_root else []
    if evidence is not None and evidence.settings is not None:
        paths += [source for source, _ in evidence.settings.mounts if source.startswith("/")]
    return read_host(paths, roots=survey.roots)


def _inspect(survey: Survey, id_: str) -> tuple[Inspection | None, tuple[Gap, ...]]:
    if survey.client is None:
        return None, survey.gaps
    try:
        return parse_inspection(survey.client.inspect(id_)), survey.gaps
    except EngineError as error:
        if error.status == _NOT_FOUND:
            gone = Gap(
                "the container",
                "it is gone, and with it its state, settings and log",
                f"run it without `--rm`, or {_SERVE}",
            )
            return None, (*survey.gaps, gone)
        return None, (*survey.gaps, error.to_gap("the container"))


def _choose_events(
    events: Sequence[ContainerEvent] | None, id_: str, ended: float | None
) -> tuple[ContainerEvent, ...] | None:
    """Return a container's events before the first start or exit after the requested exit.

    If no exit is requested, all events of the container are returned. The result is None if the
    engine's events are not known.
    """
    if events is None:
        return None
    own = sorted((event for event in events if event.id == id_), key=lambda event: event.time)
    if ended is not None:
        later = [e.time for e in own if e.action == "start" and e.time > ended + _SLACK_SECONDS]
        own = [event for event in own if not later or event.time < later[0]]
        after = [e.time for e in own if e.action == "die" and e.time > ended + _SLACK_SECONDS]
        own = [event for event in own if not after or event.time < after[0]]
    return tuple(own)


def _add_kernel(pieces: Pieces, survey: Survey, id_: str) -> Pieces:
    """Add a sample of the control group, the engine's start time and the kernel log's events."""
    if not survey.is_local:
        return pieces
    group = find_groups(survey.roots).get(id_)
    usage = None if group is None else GroupFiles(group, roots=survey.roots).read()
    pieces = replace(
        pieces,
        sample=None if usage is None else to_sample(usage),
        cgroup="" if group is None else group.cgroup,
        engine_started=None
        if survey.client is None
        else find_engine_start(survey.client.address, survey.roots),
    )
    if survey.kernel is None:
        return pieces
    lines = survey.kernel.lines
    return replace(
        pieces, oom_kills=survey.kernel.oom_kills, xids=survey.kernel.xids, kernel_lines=lines
    )


def _add_surroundings(pieces: Pieces, survey: Survey, evidence: Evidence) -> Pieces:
    """Add the machine's state and the lines of the engine's log."""
    if not survey.is_local:
        return pieces
    lines, gap = read_engine_log(evidence.ended or survey.time, rootfs=survey.roots.rootfs)
    return replace(
        pieces,
        engine_lines=lines,
        host=read_present(survey, evidence),
        gaps=pieces.gaps if gap is None else (*pieces.gaps, gap),
    )


def _add_log(pieces: Pieces, survey: Survey, evidence: Evidence) -> Pieces:
    """Add the log lines that the container wrote after the described start."""
    if survey.client is None or pieces.inspection is None:
        return pieces
    has_run_since = evidence.ended is not None and evidence.state is None
    try:
        lines = survey.client.logs(
            evidence.id,
            tail=_TAIL,
            since=find_log_start(evidence),
            until=(evidence.ended or 0.0) + _SLACK_SECONDS if has_run_since else None,
        )
    except EngineError as error:
        return replace(pieces, gaps=(*pieces.gaps, error.to_gap("its log")))
    return replace(pieces, log=tuple(DatedLine(None, line) for line in lines))


def _miss_journal(survey: Survey, evidence: Evidence) -> tuple[Gap, ...]:
    if evidence.ended is None:
        return ()
    what = "is no record of it" if survey.entries else "are no records"
    if evidence.events is None and survey.events is not None:
        return (
            Gap(
                "the engine's events",
                f"the engine has forgotten them, and there {what} in {survey.journal}",
                _SERVE,
            ),
        )
    return (Gap("the time before its death", f"there {what} in {survey.journal}", _SERVE),)
