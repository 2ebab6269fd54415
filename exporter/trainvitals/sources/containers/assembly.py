"""Assemble the evidence about a container's exit from several sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainvitals.sources.containers.cgrouppaths import identify
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.evidence import (
    Evidence,
    Gap,
    Host,
    OomKill,
    Sample,
    XidError,
)
from trainvitals.sources.containers.inspection import Inspection
from trainvitals.sources.containers.last_start import LastStart, find_last_start
from trainvitals.sources.containers.log_owner import LogOwner, read_owner
from trainvitals.sources.host.kernel_lines import DatedLine
from trainvitals.units import format_duration

# The kernel and the engine use the same clock, but kernel log timestamps are relative to the boot.
_SLACK_SECONDS = 5.0
_GPU_BEFORE_SECONDS = 600.0
_AROUND_SECONDS = 60.0
_MOST_KERNEL_LINES, _MOST_ENGINE_ERRORS = 30, 20
_MOST_OTHER_KILLS = 3
# When the engine reports a start, the process may already have written output.
_LATE_SECONDS, _MOMENT = 2.0, 0.001
_NOTHING: tuple[object, ...] = (None, "", ())


@dataclass(frozen=True, slots=True)
class Pieces:
    """The data about one container from all sources; data from an unreadable source is None.

    Attributes:
        name: The container's name, which is used if no source contains a name.
        id: The container's ID, which is used if the inspection does not contain an ID.
        inspection: The engine's current inspection of the container.
        events: The engine's events, including the events of other containers.
        log: The last lines of the container's log. If the lines have timestamps, lines of earlier
            starts may be included.
        oom_kills: The kernel's OOM kills, including OOM kills in other control groups.
        xids: The GPU errors from the kernel log.
        kernel_lines: The relevant lines of the kernel log.
        is_kernel_dated: Whether the kernel log's lines have dates. Otherwise, the lines have only
            the time since boot.
        kernel_zone: The time zone of the kernel log's dates, such as `+0100`; empty if the dates
            have no time zone.
        engine_lines: The lines of the container engine's log.
        sample: A sample of the container's control group from before the container ended.
        host: The machine's state at the time of the evidence.
        engine: The name and version of the container engine, which is `docker` or `podman`.
        engine_started: The time when the container engine started.
        cgroup: The path of the container's control group.
        gaps: The sources of evidence that could not be read.
    """

    name: str
    id: str = ""
    inspection: Inspection | None = None
    events: tuple[ContainerEvent, ...] | None = None
    log: tuple[DatedLine, ...] | None = None
    oom_kills: tuple[OomKill, ...] | None = None
    xids: tuple[XidError, ...] | None = None
    kernel_lines: tuple[DatedLine, ...] = ()
    is_kernel_dated: bool = True
    kernel_zone: str = ""
    engine_lines: tuple[DatedLine, ...] = ()
    sample: Sample | None = None
    host: Host | None = None
    engine: str = ""
    engine_started: float | None = None
    cgroup: str = ""
    gaps: tuple[Gap, ...] = ()


def assemble(pieces: Pieces) -> Evidence:
    """Return the evidence about a container's last exit or current problem.

    If the container is running again without a problem, the evidence describes the last exit.
    """
    inspection = pieces.inspection
    own = _choose_events(pieces)
    id_ = _find_id(pieces, own)
    last_start = find_last_start(inspection, own)
    last = own[-1] if own else None
    is_container = bool(id_ or inspection or pieces.events or pieces.sample or pieces.engine_lines)
    evidence = Evidence(
        subject="container" if is_container else "process",
        name=_name(pieces, last),
        id=id_,
        image=inspection.image if inspection is not None else last.image if last else "",
        compose_project=_find_label(inspection, last, "compose_project"),
        compose_service=_find_label(inspection, last, "compose_service"),
        engine=pieces.engine,
        started=last_start.started,
        ended=last_start.ended,
        exit_code=last_start.exit_code,
        is_exit_code_witnessed=last_start.is_witnessed,
        events=last_start.events,
        state=last_start.state,
        settings=None if inspection is None else inspection.settings,
        restarts=None if inspection is None else inspection.restart_count,
        earlier_deaths=last_start.earlier_deaths,
        sample=pieces.sample,
        host=pieces.host,
        engine_started=pieces.engine_started,
        engine_errors=_choose_engine_lines(pieces.engine_lines, last_start, id_),
        cgroup=pieces.cgroup,
        gaps=pieces.gaps,
    )
    return _add_kernel(replace(evidence, log=_choose_lines(pieces.log, evidence)), pieces)


def find_log_start(evidence: Evidence) -> float | None:
    """Return the time from which log lines belong to the last start; None if it is unknown.

    This time can be earlier than the start time that the engine reports.
    """
    if evidence.started is None:
        return None
    before = evidence.started - _LATE_SECONDS
    return max(
        [before, *(time + _MOMENT for time in evidence.earlier_deaths if time < evidence.started)]
    )


def fill(record: Evidence, other: Evidence) -> Evidence:
    """Add evidence that was found later to the evidence in the journal record of the same exit."""
    return replace(
        record,
        **{
            name: getattr(other, name)
            for name in Evidence.__dataclass_fields__
            if getattr(record, name) in _NOTHING and getattr(other, name) not in _NOTHING
        },
    )


def _choose_events(pieces: Pieces) -> tuple[ContainerEvent, ...]:
    """Return the events of the container itself, the oldest first."""
    id_ = _find_id(pieces, pieces.events or ())
    own = [event for event in pieces.events or () if event.id == id_]
    return tuple(sorted(own, key=lambda event: event.time))


def _find_id(pieces: Pieces, own: Sequence[ContainerEvent]) -> str:
    if pieces.inspection is not None and pieces.inspection.id:
        return pieces.inspection.id
    if pieces.id:
        return pieces.id
    named = [event for event in own if event.name == pieces.name] or own
    dead = [event for event in named if event.action == "die"]
    if dead:
        return max(dead, key=lambda event: event.time).id
    common = Counter(event.id for event in named).most_common(1)
    return common[0][0] if common else ""


def _name(pieces: Pieces, last: ContainerEvent | None) -> str:
    if pieces.inspection is not None and pieces.inspection.name:
        return pieces.inspection.name
    return last.name if last is not None and last.name else pieces.name


def _find_label(inspection: Inspection | None, last: ContainerEvent | None, name: str) -> str:
    value = getattr(inspection, name, "") or getattr(last, name, "")
    return str(value or "")


def _choose_lines(lines: Sequence[DatedLine] | None, evidence: Evidence) -> tuple[str, ...] | None:
    """Return the log lines of the last start, and all log lines without a timestamp."""
    if lines is None:
        return None
    since = find_log_start(evidence) or 0.0
    until = float("inf") if evidence.ended is None else evidence.ended + _MOMENT
    return tuple(line.text for line in lines if line.time is None or since <= line.time <= until)


def _choose_engine_lines(
    lines: Sequence[DatedLine], last_start: LastStart, id_: str
) -> tuple[str, ...]:
    """Return the engine's log lines that are close to a container's end or contain its ID."""
    chosen = [
        line.text
        for line in lines
        if (id_ and id_[:12] in line.text)
        or line.time is None
        or last_start.ended is None
        or abs(line.time - last_start.ended) <= _AROUND_SECONDS
    ]
    return tuple(chosen[-_MOST_ENGINE_ERRORS:])


def choose_kills(
    kills: Sequence[OomKill], evidence: Evidence, owner: LogOwner | None = None
) -> tuple[OomKill, ...]:
    """Return the OOM kills between the start and the end that concern the evidence's subject.

    If the evidence contains no container ID, control group or PID, the OOM kills are chosen by the
    log. The result is then the last OOM kill that the log does not rule out, and the other such OOM
    kills in the same control group.
    """
    since = float("-inf") if evidence.started is None else evidence.started - _SLACK_SECONDS
    until = float("inf") if evidence.ended is None else evidence.ended + _SLACK_SECONDS
    of_now = [kill for kill in kills if since <= kill.time <= until]
    if evidence.id or evidence.cgroup:
        return tuple(kill for kill in of_now if _concerns(kill, evidence))
    pid = None if evidence.training is None else evidence.training.pid
    if pid is not None:
        return tuple(kill for kill in of_now if kill.pid == pid)
    owner = owner or read_owner(evidence.log)
    likely = [kill for kill in of_now if owner.may_own_kill(kill)]
    return tuple(kill for kill in likely if kill.task_memcg == likely[-1].task_memcg)


def _add_kernel(evidence: Evidence, pieces: Pieces) -> Evidence:
    kills = pieces.oom_kills
    owner = _find_owner(evidence, pieces)
    chosen = None if kills is None else choose_kills(kills, evidence, owner)
    if chosen and not (evidence.id or evidence.cgroup):
        id_ = identify(chosen[-1].task_memcg)
        evidence = replace(evidence, id=id_ or "", cgroup=chosen[-1].task_memcg)
        evidence = replace(evidence, subject="container") if id_ else evidence
    groups = [kill.task_memcg for kill in chosen or () if _is_own(kill, evidence)]
    return replace(
        evidence,
        cgroup=evidence.cgroup or (groups[0] if groups else ""),
        oom_kills=chosen,
        xids=None
        if pieces.xids is None
        else tuple(
            xid
            for xid in owner.select_xids(pieces.xids)
            if _is_near(xid.time, evidence, before=_GPU_BEFORE_SECONDS)
        ),
        kernel_lines=tuple(_describe_kernel(evidence, pieces, owner))[-_MOST_KERNEL_LINES:],
    )


def _find_owner(evidence: Evidence, pieces: Pieces) -> LogOwner:
    """Return the owner of the container's log, which is the program that wrote the log.

    The log is ignored if the evidence contains the subject's ID, control group, start or end.
    """
    is_known = evidence.id or evidence.cgroup or evidence.started or evidence.ended
    log = None if is_known else pieces.log
    return read_owner(log, is_dated=pieces.is_kernel_dated, zone=pieces.kernel_zone)


def _describe_kernel(evidence: Evidence, pieces: Pieces, owner: LogOwner) -> Iterable[str]:
    """Yield the kernel log's lines close to the end, and a line for up to three other OOM kills."""
    for line in owner.select(pieces.kernel_lines):
        if _is_near(line.time, evidence):
            yield line.text
    ended = evidence.ended
    if ended is None and not owner.has_log:
        return
    others = [
        kill
        for kill in pieces.oom_kills or ()
        if _is_near(kill.time, evidence)
        and owner.may_be_at(kill.time)
        and not _concerns(kill, evidence)
    ]
    last = max((kill.time for kill in others), default=0.0) if ended is None else ended
    for kill in sorted(others, key=lambda kill: abs(kill.time - last))[:_MOST_OTHER_KILLS]:
        yield _describe_other(kill, ended)


def _describe_other(kill: OomKill, ended: float | None) -> str:
    id_ = identify(kill.task_memcg)
    where = f"container {id_[:12]}" if id_ else kill.task_memcg or "an unnamed control group"
    text = f"OOM killer: {kill.task} (pid {kill.pid}) in {where}, {kill.constraint}"
    if ended is None:
        return f"{text}, which nothing ties to the log"
    apart = "before" if kill.time <= ended else "after"
    return f"{text}, {format_duration(abs(ended - kill.time))} {apart} this end"


def _is_own(kill: OomKill, evidence: Evidence) -> bool:
    if evidence.id:
        return evidence.id in kill.task_memcg
    return bool(evidence.cgroup) and kill.task_memcg == evidence.cgroup


def _concerns(kill: OomKill, evidence: Evidence) -> bool:
    """Return whether an OOM kill concerns the container.

    An OOM kill concerns the container if it happened in the container itself, or if the exceeded
    memory limit also applies to the container.
    """
    if _is_own(kill, evidence):
        return True
    if not kill.task_memcg:  # kernels before 5.0, or many kills in a row
        return evidence.ended is not None and abs(kill.time - evidence.ended) <= _SLACK_SECONDS
    limit = kill.oom_memcg
    if limit is None or limit == kill.task_memcg or identify(limit) is not None:
        return False
    if evidence.cgroup:
        return evidence.cgroup.startswith(limit.rstrip("/") + "/")
    ooms = [event.time for event in evidence.events or () if event.action == "oom"]
    return any(abs(kill.time - time) <= _SLACK_SECONDS for time in ooms)


def _is_near(time: float | None, evidence: Evidence, *, before: float = _AROUND_SECONDS) -> bool:
    """Return whether a time is close to the end or, if the end is unknown, after the start."""
    if time is None:
        return True
    if evidence.ended is None:
        return evidence.started is None or time >= evidence.started
    return evidence.ended - before <= time <= evidence.ended + _AROUND_SECONDS
