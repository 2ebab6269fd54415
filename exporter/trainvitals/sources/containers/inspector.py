"""Inspect containers through the engine, and update the registry."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trainvitals.sources.containers.container_state import Attempt, ContainerState
from trainvitals.sources.containers.death_handler import DeathHandler
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inspection import Inspection, parse_inspection
from trainvitals.sources.containers.registry import ContainerRegistry

# The maximum number of requests for one inspection; a request is repeated if an event arrives
# before the engine answers.
MOST_LOOKS = 3
_FAILED_START_CODES = frozenset({125, 126, 127, 128})

_log = logging.getLogger(__name__)


class Inspector:
    """Inspects containers, and updates the registry from the inspections.

    The engine's answer describes the container at some time after the request. Therefore, events
    that arrived after the request take precedence over the answer.

    Args:
        client: The client for the container engine.
        registry: The registry of known containers.
        handler: The handler for container exits.
        following: The object that selects the containers whose logs are followed.
        clock: A function that returns the time, in seconds since 1970.
    """

    def __init__(
        self,
        client: EngineClient,
        registry: ContainerRegistry,
        handler: DeathHandler,
        following: Following,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._registry = registry
        self._handler = handler
        self._following = following
        self._clock = clock

    def inspect(self, container: str) -> Inspection | None:
        """Return the inspection of a container.

        The result is None if the container was removed or the request failed.
        """
        try:
            return parse_inspection(self._client.inspect(container))
        except EngineError as error:
            _log.debug("%s", error)
            return None

    def refresh(self, known: ContainerState, container: str) -> None:
        """Update a container's state from an inspection, unless the inspection fails."""
        for _ in range(MOST_LOOKS):
            event_count = known.event_count
            inspection = self.inspect(container)
            with self._registry.lock:
                if inspection is None or known.id != container:
                    return
                known.take_settings(inspection)
                if known.event_count == event_count:
                    self.take(known, inspection)
                    return
                self._following.watch(known)

    def take(self, known: ContainerState, inspection: Inspection) -> None:
        """Update a container's state from an inspection that is newer than all events.

        The caller must hold the registry's lock.
        """
        known.take_settings(inspection)
        known.take_state(inspection)
        if inspection.name and inspection.name != known.name:
            self._registry.rename(known, inspection.name)
        attempt = known.attempt
        is_late = attempt.heard_since > 0 and attempt.started is None
        if inspection.pid is not None and is_late:
            attempt.started = inspection.state.started
        self._following.watch(known)

    def check_started(self, known: ContainerState, attempt: Attempt) -> None:
        """Inspect a container to find a failed start, because no event reports a failed start."""
        with self._registry.lock:
            container = known.id
            if known.attempt is not attempt or attempt.is_over or attempt.started is not None:
                return
        self.refresh(known, container)
        with self._registry.lock:
            if known.attempt is attempt and known.id == container:
                self.notice_failed_start(known)

    def notice_failed_start(self, known: ContainerState) -> None:
        """Handle a failed start, if there is one; the caller must hold the registry's lock."""
        inspection = known.inspection
        if inspection is None or known.attempt.is_over or known.attempt.started is not None:
            return
        if has_failed_to_start(inspection):
            exit_code = inspection.state.exit_code
            self._handler.begin(known, self._clock(), exit_code, is_witnessed=False)


def has_failed_to_start(inspection: Inspection) -> bool:
    """Return whether the engine created the container but could not start it."""
    state = inspection.state
    return state.status == "created" and bool(state.error or state.exit_code in _FAILED_START_CODES)
