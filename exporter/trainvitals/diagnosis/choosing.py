"""Which container is meant, and which died."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainvitals.diagnosis.scene import Scene
from trainvitals.errors import ConfigurationError
from trainvitals.sources.containers.cgroups import find_groups, find_name, identify
from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.containers.inspection import Listing, parse_inspection

_ID = re.compile("[0-9a-f]{4,64}")
_SAME_SECONDS = 5.0
_MOST_INSPECTED = 100
_MOST_NAMES = 5
_OVER = frozenset({"exited", "dead", "stopped", "created"})


@dataclass(frozen=True, slots=True)
class Known:
    """A container that somebody knows of.

    Attributes:
        id: Its ID.
        name: Its name.
        service: Its Compose service; empty for none.
    """

    id: str
    name: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """An end of a container.

    Attributes:
        id: The container's ID.
        name: Its name.
        time: When it ended.
    """

    id: str
    name: str
    time: float


def find_container(scene: Scene, words: str) -> Known | None:
    """Find the container that is meant: by its name, the beginning of its ID, or its service.

    Of several that had the name one after the other it is the newest.

    Raises:
        ConfigurationError: More than one may be meant.
    """
    everyone = list(list_known(scene))
    named = [known for known in everyone if known.name == words]
    if named:
        return named[0]
    lower = words.lower()
    found = [each for each in everyone if _ID.fullmatch(lower) and each.id.startswith(lower)]
    found = found or [known for known in everyone if known.service == words]
    if not found:
        return None
    names = sorted({known.name or known.id[:12] for known in found})
    if len(names) > 1:
        raise ConfigurationError(f"{words!r} may be {_join(names)}; write more of it")
    return found[0]


def list_known(scene: Scene) -> Iterator[Known]:
    """Give every container that somebody knows of, each once, those that are there first."""
    seen = set()
    for known in _list_all(scene):
        if known.id and known.id not in seen:
            seen.add(known.id)
            yield known


def suggest_names(scene: Scene, words: str, others: Iterable[str] = ()) -> str:
    """Name what may have been meant; the newest where nothing is alike."""
    names = list(dict.fromkeys([*(known.name for known in list_known(scene)), *others]))
    near = difflib.get_close_matches(words, names, _MOST_NAMES, 0.5)
    near = near or [name for name in names if words in name] or names
    return _join(near)


def find_ends(scene: Scene, since: float) -> list[End]:
    """Find all ends of containers since a time, the last first, by journal, engine and kernel."""
    ends: list[End] = []
    for source in (_list_journal(scene), _list_events(scene)):
        ends += [end for end in source if end.time >= since and not _is_among(end, ends)]
    ends += [end for end in _list_states(scene, since, tuple(ends)) if end.time >= since]
    ends += [
        end
        for end in _list_kernel(scene)
        if end.time >= since and end.id not in {each.id for each in ends}
    ]
    return sorted(ends, key=lambda end: end.time, reverse=True)


def _list_all(scene: Scene) -> Iterator[Known]:
    for listing in scene.listings:
        yield Known(listing.id, listing.name, listing.compose_service)
    for entry in scene.entries:
        evidence = entry.evidence
        if evidence.subject == "container":
            yield Known(evidence.id, evidence.name, evidence.compose_service)
    for event in reversed(scene.events or ()):
        yield Known(event.id, event.name, event.compose_service)
    if scene.is_local:
        for id_ in find_groups(scene.roots):
            yield Known(id_, find_name(id_, scene.roots) or id_[:12])
        for kill in scene.kernel.oom_kills if scene.kernel is not None else ():
            id_ = identify(kill.task_memcg) or ""
            yield Known(id_, find_name(id_, scene.roots) or id_[:12])


def _list_journal(scene: Scene) -> Iterator[End]:
    for entry in scene.entries:
        evidence = entry.evidence
        if evidence.subject == "container" and evidence.ended is not None:
            yield End(evidence.id, evidence.name, evidence.ended)


def _list_events(scene: Scene) -> Iterator[End]:
    for event in scene.events or ():
        if event.action == "die":
            yield End(event.id, event.name, event.time)


def _list_states(scene: Scene, since: float, ends: Sequence[End]) -> Iterator[End]:
    """Give the ends that no event tells of: those long ago, and starts that failed."""
    if scene.client is None:
        return
    known = {end.id for end in ends}
    over = [listing for listing in scene.listings if _may_have_ended(listing, since)]
    for listing in [each for each in over if each.id not in known][:_MOST_INSPECTED]:
        try:
            inspection = parse_inspection(scene.client.inspect(listing.id))
        except EngineError:  # removed in the meantime, or withheld
            continue
        state = inspection.state
        ended = state.finished
        if ended is None and (state.error or state.exit_code):
            ended = inspection.created
        if ended is not None:
            yield End(listing.id, listing.name, ended)


def _may_have_ended(listing: Listing, since: float) -> bool:
    if listing.status == "created":
        return listing.created is None or listing.created >= since
    return listing.status in _OVER


def _list_kernel(scene: Scene) -> Iterator[End]:
    if scene.kernel is None or not scene.is_local:
        return
    alive = {known.id for known in scene.listings} | set(find_groups(scene.roots))
    for kill in scene.kernel.oom_kills:
        id_ = identify(kill.task_memcg)
        if id_ is not None and id_ not in alive:
            yield End(id_, find_name(id_, scene.roots) or id_[:12], kill.time)


def _is_among(end: End, ends: Iterable[End]) -> bool:
    return any(each.id == end.id and abs(each.time - end.time) <= _SAME_SECONDS for each in ends)


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
