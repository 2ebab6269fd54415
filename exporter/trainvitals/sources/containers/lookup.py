"""Find containers by name or ID, recent container exits, and recent OOM kills."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_text import join_names
from trainvitals.sources.containers.cgrouppaths import find_groups, identify
from trainvitals.sources.containers.cgroups import find_name
from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.containers.inspection import Listing, parse_inspection
from trainvitals.sources.containers.survey import Survey
from trainvitals.sources.host.oom_lines import OomKill

_ID = re.compile("[0-9a-f]{4,64}")
_SAME_SECONDS = 5.0
_MOST_INSPECTED = 100
_MOST_NAMES = 5
_OVER = frozenset({"exited", "dead", "stopped", "created"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A container that appears in one of the sources.

    Attributes:
        id: The container's ID.
        name: The container's name.
        service: The container's Compose service; empty if the container belongs to no service.
    """

    id: str
    name: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """An exit of a container.

    Attributes:
        id: The container's ID.
        name: The container's name.
        time: The time of the exit, in seconds since 1970.
    """

    id: str
    name: str
    time: float


def find_container(survey: Survey, words: str) -> Candidate | None:
    """Find a container by its name, a prefix of its ID, or its Compose service.

    If several containers had the name in succession, the newest container is returned. The result
    is None if no container matches.

    Raises:
        ConfigurationError: No container has the name, and the ID prefix or the service matches
            containers with different names.
    """
    candidates = list(list_candidates(survey))
    named = [known for known in candidates if known.name == words]
    if named:
        return named[0]
    lower = words.lower()
    found = [each for each in candidates if _ID.fullmatch(lower) and each.id.startswith(lower)]
    found = found or [known for known in candidates if known.service == words]
    if not found:
        return None
    names = sorted({known.name or known.id[:12] for known in found})
    if len(names) > 1:
        raise ConfigurationError(
            f"{words!r} may be {join_names(names, most=_MOST_NAMES)}; write more of it"
        )
    return found[0]


def list_candidates(survey: Survey) -> Iterator[Candidate]:
    """Yield every known container once, beginning with the containers in the engine's list."""
    seen = set()
    for known in _list_all(survey):
        if known.id and known.id not in seen:
            seen.add(known.id)
            yield known


def suggest_names(survey: Survey, words: str, others: Iterable[str] = ()) -> str:
    """Return a list, as text, of names similar to an unknown name, or else of the newest names."""
    names = list(dict.fromkeys([*(known.name for known in list_candidates(survey)), *others]))
    near = difflib.get_close_matches(words, names, _MOST_NAMES, 0.5)
    near = near or [name for name in names if words in name] or names
    return join_names(near, most=_MOST_NAMES)


def find_ends(survey: Survey, since: float) -> list[End]:
    """Return all known container exits since a given time, the most recent first.

    The exits are read from the journal, from the engine's answers and from the kernel log.
    """
    ends: list[End] = []
    for source in (_list_journal(survey), _list_events(survey)):
        ends += [end for end in source if end.time >= since and not _is_among(end, ends)]
    ends += [end for end in _list_states(survey, since, tuple(ends)) if end.time >= since]
    ends += [
        end
        for end in _list_kernel(survey)
        if end.time >= since and end.id not in {each.id for each in ends}
    ]
    return sorted(ends, key=lambda end: end.time, reverse=True)


def find_kills(survey: Survey, since: float, *, others: Iterable[int | None] = ()) -> list[OomKill]:
    """Return the OOM kills of processes outside containers since a given time, the latest first.

    Args:
        survey: The findings about all containers on this machine.
        since: The time of the earliest kill to return, in seconds since 1970.
        others: The PIDs of processes to omit.
    """
    kills = survey.kernel.oom_kills if survey.kernel is not None else ()
    known = set(others)
    found = [
        kill
        for kill in kills
        if kill.time >= since and kill.pid not in known and identify(kill.task_memcg) is None
    ]
    return sorted(found, key=lambda kill: kill.time, reverse=True)


def _list_all(survey: Survey) -> Iterator[Candidate]:
    for listing in survey.listings:
        yield Candidate(listing.id, listing.name, listing.compose_service)
    for entry in survey.entries:
        evidence = entry.evidence
        if evidence.subject == "container":
            yield Candidate(evidence.id, evidence.name, evidence.compose_service)
    for event in reversed(survey.events or ()):
        yield Candidate(event.id, event.name, event.compose_service)
    if survey.is_local:
        for id_ in find_groups(survey.roots):
            yield Candidate(id_, find_name(id_, survey.roots) or id_[:12])
        for kill in survey.kernel.oom_kills if survey.kernel is not None else ():
            id_ = identify(kill.task_memcg) or ""
            yield Candidate(id_, find_name(id_, survey.roots) or id_[:12])


def _list_journal(survey: Survey) -> Iterator[End]:
    for entry in survey.entries:
        evidence = entry.evidence
        if evidence.subject == "container" and evidence.ended is not None:
            yield End(evidence.id, evidence.name, evidence.ended)


def _list_events(survey: Survey) -> Iterator[End]:
    for event in survey.events or ():
        if event.action == "die":
            yield End(event.id, event.name, event.time)


def _list_states(survey: Survey, since: float, ends: Sequence[End]) -> Iterator[End]:
    """Yield exits and failed starts from the states of containers that are not in `ends`."""
    if survey.client is None:
        return
    known = {end.id for end in ends}
    over = [listing for listing in survey.listings if _may_have_ended(listing, since)]
    for listing in [each for each in over if each.id not in known][:_MOST_INSPECTED]:
        try:
            inspection = parse_inspection(survey.client.inspect(listing.id))
        except EngineError:  # the container was removed, or a proxy refused the request
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


def _list_kernel(survey: Survey) -> Iterator[End]:
    if survey.kernel is None or not survey.is_local:
        return
    alive = {known.id for known in survey.listings} | set(find_groups(survey.roots))
    for kill in survey.kernel.oom_kills:
        id_ = identify(kill.task_memcg)
        if id_ is not None and id_ not in alive:
            yield End(id_, find_name(id_, survey.roots) or id_[:12], kill.time)


def _is_among(end: End, ends: Iterable[End]) -> bool:
    return any(each.id == end.id and abs(each.time - end.time) <= _SAME_SECONDS for each in ends)
