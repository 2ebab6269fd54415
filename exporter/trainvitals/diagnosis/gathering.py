"""Gathering all that is known of one container on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from trainvitals.causes.evidence import Evidence, Gap, Host
from trainvitals.diagnosis.assembly import Pieces, assemble, fill, find_log_start
from trainvitals.diagnosis.dates import DatedLine
from trainvitals.diagnosis.enginelog import read_engine_log
from trainvitals.diagnosis.host import read_host
from trainvitals.diagnosis.scene import Scene
from trainvitals.sources.containers.cgroups import GroupFiles, find_groups, to_sample
from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.inspection import Inspection, parse_inspection
from trainvitals.sources.containers.journal import Entry

_SAME_SECONDS = 5.0
_SLACK_SECONDS = 0.5
_TAIL = 500
_NOT_FOUND = 404
_PID_FILE = Path("run/docker.pid")
_SERVE = (
    "let `trainvitals serve` run beside the engine: it keeps events, last lines and memory of each "
    "death"
)


def gather(
    scene: Scene, id_: str, name: str = "", *, ended: float | None = None, is_brief: bool = False
) -> Evidence:
    """Gather what is known of one container's death, or of its present trouble.

    The journal goes before what the engine says now, which may be of a later start.

    Args:
        scene: What was found out about all containers.
        id_: The container's ID.
        name: Its name, where the engine may not know it any more.
        ended: Which of its deaths; the last one when None.
        is_brief: Whether machine and engine's log are left out.
    """
    inspection, gaps = _inspect(scene, id_)
    pieces = Pieces(
        name=name or id_[:12],
        id=id_,
        inspection=inspection,
        events=_choose_events(scene.events, id_, ended),
        engine=scene.engine,
        gaps=gaps,
    )
    pieces = _add_kernel(pieces, scene, id_)
    evidence = assemble(pieces)
    if ended is None:
        ended = evidence.ended
    if ended is None and inspection is None:  # the engine has forgotten it
        ended = _recall_end(scene.entries, id_)
    entry = find_entry(scene.entries, id_, ended)
    if entry is None and inspection is not None and evidence.started is not None:
        pieces = replace(pieces, gaps=(*pieces.gaps, *_miss_journal(scene, evidence)))
    if entry is None or entry.evidence.log is None:
        pieces = _add_log(pieces, scene, evidence)
    if not is_brief:
        pieces = _add_surroundings(pieces, scene, evidence)
    found = assemble(pieces)
    if found.ended is None and found.state is None:
        found = replace(found, ended=ended)
    return found if entry is None else fill_record(entry.evidence, found)


def fill_record(record: Evidence, found: Evidence) -> Evidence:
    """Add to a record what a later look found out; what the record has is no gap any more."""
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
    """Find the record of a death; None where it is in none, or the container runs."""
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
    """Tell when a container last ended, by the journal; None where it has nothing of it."""
    ends = (entry.evidence.ended for entry in entries if entry.evidence.id == id_)
    return max((end for end in ends if end is not None), default=None)


def read_present(scene: Scene, evidence: Evidence | None = None) -> Host | None:
    """Look at the machine as it is now; None where the engine is another machine's."""
    if not scene.is_local:
        return None
    paths = [scene.engine_root] if scene.engine_root else []
    if evidence is not None and evidence.settings is not None:
        paths += [source for source, _ in evidence.settings.mounts if source.startswith("/")]
    return read_host(paths, roots=scene.roots)


def _inspect(scene: Scene, id_: str) -> tuple[Inspection | None, tuple[Gap, ...]]:
    if scene.client is None:
        return None, scene.gaps
    try:
        return parse_inspection(scene.client.inspect(id_)), scene.gaps
    except EngineError as error:
        if error.status == _NOT_FOUND:
            gone = Gap(
                "the container",
                "it is gone, and with it its state, settings and log",
                f"run it without `--rm`, or {_SERVE}",
            )
            return None, (*scene.gaps, gone)
        return None, (*scene.gaps, error.to_gap("the container"))


def _choose_events(
    events: Sequence[ContainerEvent] | None, id_: str, ended: float | None
) -> tuple[ContainerEvent, ...] | None:
    """Give the container's events, until its next start after the death that is asked for."""
    if events is None:
        return None
    own = sorted((event for event in events if event.id == id_), key=lambda event: event.time)
    if ended is not None:
        later = [e.time for e in own if e.action == "start" and e.time > ended + _SLACK_SECONDS]
        own = [event for event in own if not later or event.time < later[0]]
        after = [e.time for e in own if e.action == "die" and e.time > ended + _SLACK_SECONDS]
        own = [event for event in own if not after or event.time < after[0]]
    return tuple(own)


def _add_kernel(pieces: Pieces, scene: Scene, id_: str) -> Pieces:
    """Add what this machine's kernel knows of it."""
    if not scene.is_local:
        return pieces
    group = find_groups(scene.roots).get(id_)
    usage = None if group is None else GroupFiles(group, roots=scene.roots).read()
    pieces = replace(
        pieces,
        sample=None if usage is None else to_sample(usage),
        cgroup="" if group is None else group.cgroup,
        engine_started=_find_engine_start(scene),
    )
    if scene.kernel is None:
        return pieces
    lines = tuple(DatedLine(line.time, line.text) for line in scene.kernel.lines)
    return replace(
        pieces, oom_kills=scene.kernel.oom_kills, xids=scene.kernel.xids, kernel_lines=lines
    )


def _add_surroundings(pieces: Pieces, scene: Scene, evidence: Evidence) -> Pieces:
    """Add the machine as it is and what the engine logged."""
    if not scene.is_local:
        return pieces
    lines, gap = read_engine_log(evidence.ended or scene.time, rootfs=scene.roots.rootfs)
    return replace(
        pieces,
        engine_lines=lines,
        host=read_present(scene, evidence),
        gaps=pieces.gaps if gap is None else (*pieces.gaps, gap),
    )


def _add_log(pieces: Pieces, scene: Scene, evidence: Evidence) -> Pieces:
    """Add the container's own log, of this start alone."""
    if scene.client is None or pieces.inspection is None:
        return pieces
    has_run_since = evidence.ended is not None and evidence.state is None
    try:
        lines = scene.client.logs(
            evidence.id,
            tail=_TAIL,
            since=find_log_start(evidence),
            until=(evidence.ended or 0.0) + _SLACK_SECONDS if has_run_since else None,
        )
    except EngineError as error:
        return replace(pieces, gaps=(*pieces.gaps, error.to_gap("its log")))
    return replace(pieces, log=tuple(DatedLine(None, line) for line in lines))


def _miss_journal(scene: Scene, evidence: Evidence) -> tuple[Gap, ...]:
    if evidence.ended is None:
        return ()
    what = "is no record of it" if scene.entries else "are no records"
    if evidence.events is None and scene.events is not None:
        return (
            Gap(
                "the engine's events",
                f"the engine has forgotten them, and there {what} in {scene.journal}",
                _SERVE,
            ),
        )
    return (Gap("the time before its death", f"there {what} in {scene.journal}", _SERVE),)


def _find_engine_start(scene: Scene) -> float | None:
    """Tell when Docker's daemon was started; None where that cannot be found."""
    try:
        pid = int((scene.roots.rootfs / _PID_FILE).read_text(encoding="ascii"))
        return float(psutil.Process(pid).create_time())
    except (OSError, ValueError, psutil.Error):
        return None
