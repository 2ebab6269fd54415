"""Finding out about a container, or about all that died lately."""

from __future__ import annotations

from collections.abc import Iterable

from trainvitals.causes.evidence import Evidence, Gap
from trainvitals.causes.judge import judge
from trainvitals.diagnosis.choosing import End, Known, find_ends
from trainvitals.diagnosis.diagnosis import Death, Diagnosis, is_well
from trainvitals.diagnosis.gathering import find_entry, gather, read_present
from trainvitals.diagnosis.runs import read_process, read_run
from trainvitals.diagnosis.scene import Scene
from trainvitals.postmortem.cases import Run
from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.containers.inspection import parse_inspection

_MOST_DEATHS = 100
_MOST_OTHERS = 20
_RUNNING = "running"
_SAME_SECONDS = 5.0


def investigate(scene: Scene, known: Known, *, since_seconds: float) -> Diagnosis:
    """Find out about a container: its present trouble, else how it last ended.

    Args:
        scene: What was found out about all containers.
        known: The container.
        since_seconds: How long ago it may have ended, where it runs well now.
    """
    evidence = gather(scene, known.id, known.name)
    verdict = judge(evidence)
    if verdict.reason == _RUNNING:
        earlier = _find_earlier(scene, known, scene.time - since_seconds)
        if earlier is not None:
            return _conclude(scene, earlier)
    return _conclude(scene, evidence)


def investigate_last(scene: Scene, *, since_seconds: float) -> Diagnosis | None:
    """Find out about the container that last ended badly, else the one that last ended.

    Returns:
        None where none is known to have ended in that time.
    """
    deaths = list_deaths(scene, since_seconds=since_seconds, most=_MOST_OTHERS)
    if not deaths:
        return None
    chosen = next((death for death in deaths if not is_well(death.verdict)), deaths[0])
    evidence = gather(scene, chosen.id, chosen.name, ended=chosen.time)
    others = tuple(death for death in deaths if death is not chosen)
    return _conclude(scene, evidence, others)


def investigate_run(scene: Scene, run: Run) -> Diagnosis:
    """Find out about a training run by the file that it left."""
    return _conclude(scene, read_run(run, scene.kernel, _select_gaps(scene)), origin="its run file")


def investigate_process(scene: Scene, pid: int) -> Diagnosis | None:
    """Find out about a process of this machine; None where nothing is known of it."""
    evidence = read_process(pid, scene.kernel, _select_gaps(scene), roots=scene.roots)
    return (
        None if evidence is None else _conclude(scene, evidence, origin="/proc and the kernel log")
    )


def _select_gaps(scene: Scene) -> tuple[Gap, ...]:
    """Give what could not be read and tells of more than containers."""
    return tuple(gap for gap in scene.gaps if gap.what == "the kernel log")


def list_deaths(
    scene: Scene, *, since_seconds: float, most: int = _MOST_DEATHS
) -> tuple[Death, ...]:
    """Judge all that ended since then, the last first.

    Args:
        scene: What was found out about all containers.
        since_seconds: How long ago they may have ended.
        most: How many are judged.
    """
    ends = find_ends(scene, scene.time - since_seconds)[:most]
    return tuple(_judge_ends(scene, ends))


def _judge_ends(scene: Scene, ends: Iterable[End]) -> Iterable[Death]:
    for end in ends:
        entry = find_entry(scene.entries, end.id, end.time)
        evidence = (
            gather(scene, end.id, end.name, ended=end.time, is_brief=True)
            if entry is None
            else entry.evidence
        )
        yield Death(
            evidence.name,
            end.id,
            end.time if evidence.ended is None else evidence.ended,
            evidence.exit_code,
            judge(evidence),
        )


def _find_earlier(scene: Scene, known: Known, since: float) -> Evidence | None:
    """Find how what runs now, or had its name before, last ended badly."""
    for end in find_ends(scene, since):
        if end.name == known.name or end.id == known.id:
            evidence = gather(scene, end.id, end.name, ended=end.time)
            return None if is_well(judge(evidence)) else evidence
    return None


def _conclude(
    scene: Scene, evidence: Evidence, others: tuple[Death, ...] = (), *, origin: str = ""
) -> Diagnosis:
    is_container = evidence.subject == "container"
    entry = find_entry(scene.entries, evidence.id, evidence.ended) if is_container else None
    sources = ["the journal"] if entry is not None else []
    sources += ["the engine"] if scene.client is not None else []
    return Diagnosis(
        evidence=evidence,
        verdict=judge(evidence),
        asked=scene.time,
        origin=origin or " and ".join(sources) or "control groups and the kernel log",
        runs_since=_find_later_start(scene, evidence) if is_container else None,
        present=read_present(scene, evidence),
        reach=scene.reach if is_container else None,
        others=others,
    )


def _find_later_start(scene: Scene, evidence: Evidence) -> float | None:
    """Tell since when a container of the same name runs, where this one ended."""
    if evidence.ended is None or scene.client is None or not evidence.name:
        return None
    try:
        inspection = parse_inspection(scene.client.inspect(evidence.name))
    except EngineError:
        return None
    started = inspection.state.started
    if inspection.state.status != _RUNNING or started is None or started < evidence.ended:
        return None
    return started
