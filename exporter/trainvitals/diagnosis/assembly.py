"""Making one body of evidence of what several sources say of a container."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainvitals.causes.evidence import (
    Evidence,
    Gap,
    Host,
    OomKill,
    Sample,
    XidError,
)
from trainvitals.diagnosis.dates import DatedLine
from trainvitals.diagnosis.life import Life, find_life
from trainvitals.sources.containers.cgrouppaths import identify
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.inspection import Inspection

# The kernel and the engine look at the same clock, but the kernel's lines are dated from its boot.
_SLACK_SECONDS = 5.0
_GPU_BEFORE_SECONDS = 600.0
_AROUND_SECONDS = 60.0
_MOST_KERNEL_LINES, _MOST_ENGINE_ERRORS = 30, 20
_MOST_OTHER_KILLS = 3
# The engine tells of a start when the process already writes.
_LATE_SECONDS, _MOMENT = 2.0, 0.001
_NOTHING: tuple[object, ...] = (None, "", ())


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the sources say of one container; None where one could not be asked.

    Attributes:
        name: Its name, where nothing else tells it.
        id: Its ID, where the inspection does not tell it.
        inspection: What the engine says of it now.
        events: Events, also of other containers.
        log: Its last lines, also of earlier starts where they are dated.
        oom_kills: Kills by the kernel, also in other control groups.
        xids: Errors of GPUs.
        kernel_lines: Telling lines of the kernel log.
        engine_lines: What the engine logged.
        sample: A look at its control group.
        host: The machine.
        engine: `docker` or `podman` with its version.
        engine_started: When the engine started.
        cgroup: The path of its control group.
        gaps: What could not be read.
    """

    name: str
    id: str = ""
    inspection: Inspection | None = None
    events: tuple[ContainerEvent, ...] | None = None
    log: tuple[DatedLine, ...] | None = None
    oom_kills: tuple[OomKill, ...] | None = None
    xids: tuple[XidError, ...] | None = None
    kernel_lines: tuple[DatedLine, ...] = ()
    engine_lines: tuple[DatedLine, ...] = ()
    sample: Sample | None = None
    host: Host | None = None
    engine: str = ""
    engine_started: float | None = None
    cgroup: str = ""
    gaps: tuple[Gap, ...] = ()


def assemble(pieces: Pieces) -> Evidence:
    """Put together what is known of a container's last death, or of its present trouble.

    Where it runs again after it died, and nothing is wrong with it now, the death is told.
    """
    inspection = pieces.inspection
    told = _choose_events(pieces)
    id_ = _find_id(pieces, told)
    life = find_life(inspection, told)
    last = told[-1] if told else None
    evidence = Evidence(
        subject="container",
        name=_name(pieces, last),
        id=id_,
        image=inspection.image if inspection is not None else last.image if last else "",
        compose_project=_find_label(inspection, last, "compose_project"),
        compose_service=_find_label(inspection, last, "compose_service"),
        engine=pieces.engine,
        started=life.started,
        ended=life.ended,
        exit_code=life.exit_code,
        is_exit_code_witnessed=life.is_witnessed,
        events=life.events,
        state=life.state,
        settings=None if inspection is None else inspection.settings,
        restarts=None if inspection is None else inspection.restart_count,
        earlier_deaths=life.earlier_deaths,
        sample=pieces.sample,
        host=pieces.host,
        engine_started=pieces.engine_started,
        engine_errors=_choose_engine_lines(pieces.engine_lines, life, id_),
        cgroup=pieces.cgroup,
        gaps=pieces.gaps,
    )
    return _add_kernel(replace(evidence, log=_choose_lines(pieces.log, evidence)), pieces)


def find_log_start(evidence: Evidence) -> float | None:
    """Tell from when on a log is of this start: its first lines may be older than `start`."""
    if evidence.started is None:
        return None
    before = evidence.started - _LATE_SECONDS
    return max(
        [before, *(time + _MOMENT for time in evidence.earlier_deaths if time < evidence.started)]
    )


def fill(record: Evidence, other: Evidence) -> Evidence:
    """Add to evidence of the journal what it lacks, from a look at the same death made later."""
    return replace(
        record,
        **{
            name: getattr(other, name)
            for name in Evidence.__dataclass_fields__
            if getattr(record, name) in _NOTHING and getattr(other, name) not in _NOTHING
        },
    )


def _choose_events(pieces: Pieces) -> tuple[ContainerEvent, ...]:
    """Give the container's own events, the oldest first."""
    id_ = _find_id(pieces, pieces.events or ())
    own = [event for event in pieces.events or () if event.id == id_]
    return tuple(sorted(own, key=lambda event: event.time))


def _find_id(pieces: Pieces, told: Sequence[ContainerEvent]) -> str:
    if pieces.inspection is not None and pieces.inspection.id:
        return pieces.inspection.id
    if pieces.id:
        return pieces.id
    named = [event for event in told if event.name == pieces.name] or told
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
    """Give the lines of this start alone; those without a date are taken for its own."""
    if lines is None:
        return None
    since = find_log_start(evidence) or 0.0
    until = float("inf") if evidence.ended is None else evidence.ended + _MOMENT
    return tuple(line.text for line in lines if line.time is None or since <= line.time <= until)


def _choose_engine_lines(lines: Sequence[DatedLine], life: Life, id_: str) -> tuple[str, ...]:
    """Give what the engine logged around the end, and what names the container."""
    chosen = [
        line.text
        for line in lines
        if (id_ and id_[:12] in line.text)
        or line.time is None
        or life.ended is None
        or abs(line.time - life.ended) <= _AROUND_SECONDS
    ]
    return tuple(chosen[-_MOST_ENGINE_ERRORS:])


def _add_kernel(evidence: Evidence, pieces: Pieces) -> Evidence:
    kills = pieces.oom_kills
    since = float("-inf") if evidence.started is None else evidence.started - _SLACK_SECONDS
    until = float("inf") if evidence.ended is None else evidence.ended + _SLACK_SECONDS
    chosen: tuple[OomKill, ...] | None = None
    if kills is not None:
        of_now = [kill for kill in kills if since <= kill.time <= until]
        chosen = tuple(kill for kill in of_now if _concerns(kill, evidence))
    groups = [kill.task_memcg for kill in chosen or () if _is_own(kill, evidence)]
    return replace(
        evidence,
        cgroup=evidence.cgroup or (groups[0] if groups else ""),
        oom_kills=chosen,
        xids=None
        if pieces.xids is None
        else tuple(
            xid for xid in pieces.xids if _is_near(xid.time, evidence, before=_GPU_BEFORE_SECONDS)
        ),
        kernel_lines=tuple(_tell_kernel(evidence, pieces))[-_MOST_KERNEL_LINES:],
    )


def _tell_kernel(evidence: Evidence, pieces: Pieces) -> Iterable[str]:
    """Give what the kernel logged around the end, and whom else it killed for memory then."""
    for line in pieces.kernel_lines:
        if _is_near(line.time, evidence):
            yield line.text
    ended = evidence.ended
    if ended is None:
        return
    others = [
        kill
        for kill in pieces.oom_kills or ()
        if _is_near(kill.time, evidence) and not _concerns(kill, evidence)
    ]
    for kill in sorted(others, key=lambda kill: abs(kill.time - ended))[:_MOST_OTHER_KILLS]:
        id_ = identify(kill.task_memcg)
        where = kill.task_memcg if id_ is None else f"container {id_[:12]}"
        apart = "before" if kill.time <= ended else "after"
        yield (
            f"OOM killer: {kill.task} (pid {kill.pid}) in {where}, {kill.constraint}, "
            f"{abs(ended - kill.time):.1f} s {apart} this end"
        )


def _is_own(kill: OomKill, evidence: Evidence) -> bool:
    if evidence.id:
        return evidence.id in kill.task_memcg
    return bool(evidence.cgroup) and kill.task_memcg == evidence.cgroup


def _concerns(kill: OomKill, evidence: Evidence) -> bool:
    """Whether a kill hit the container, or one beside it for a limit that both were under."""
    if _is_own(kill, evidence):
        return True
    limit = kill.oom_memcg
    if limit is None or limit == kill.task_memcg or identify(limit) is not None:
        return False
    if evidence.cgroup:
        return evidence.cgroup.startswith(limit.rstrip("/") + "/")
    ooms = [event.time for event in evidence.events or () if event.action == "oom"]
    return any(abs(kill.time - time) <= _SLACK_SECONDS for time in ooms)


def _is_near(time: float | None, evidence: Evidence, *, before: float = _AROUND_SECONDS) -> bool:
    """Whether something was around the end; of what runs, since it was started."""
    if time is None:
        return True
    if evidence.ended is None:
        return evidence.started is None or time >= evidence.started
    return evidence.ended - before <= time <= evidence.ended + _AROUND_SECONDS
