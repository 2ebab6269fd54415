"""The registry of all known containers; a removed container is kept until its series end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trainvitals.sources.containers.container_state import Attempt, ContainerState

_MOST_KNOWN = 1024
_SHORT_ID = 12


class ContainerRegistry:
    """The registry of the containers that exist or were removed recently.

    Args:
        forget_after_seconds: The time for which a removed container is kept, in seconds.
        clock: A function that returns the time, in seconds since 1970.

    Attributes:
        lock: The lock that must be held while the registry is read or changed.
        containers: The states of the containers, by container name.
    """

    def __init__(
        self, *, forget_after_seconds: float = 600.0, clock: Callable[[], float] = time.time
    ) -> None:
        self.lock = threading.RLock()
        self.containers: dict[str, ContainerState] = {}
        self.forget_after_seconds = forget_after_seconds
        self._by_id: dict[str, ContainerState] = {}
        self._clock = clock

    def find(self, container: str) -> ContainerState | None:
        """Return the state of a container by its full ID; None if the ID is unknown."""
        return self._by_id.get(container)

    def list_present(self) -> list[ContainerState]:
        """Return the states of the containers that have not been removed."""
        return [known for known in self.containers.values() if known.removed is None]

    def take_up(self, name: str, container: str) -> ContainerState:
        """Add a container, and return its state.

        If the name is known, the new container continues the counts of the previous container.
        """
        name = name or container[:_SHORT_ID]
        known = self.containers.get(name)
        if known is None:
            self._make_room()
            known = self.containers[name] = ContainerState(name, container)
        elif known.id != container:
            self._by_id.pop(known.id, None)
            known.id, known.inspection, known.pid = container, None, None
            known.health = known.status = None
            known.starts = 0
            known.attempt = Attempt()
            known.accelerators = ()
        known.removed = None
        known.changed = self._clock()
        self._by_id[container] = known
        return known

    def rename(self, known: ContainerState, name: str) -> None:
        """Record a container's new name, unless another existing container has the name.

        If a removed container had the name, the renamed container continues that container's
        counts, because Compose renames containers when it recreates a service.
        """
        holder = self.containers.get(name)
        if not name or holder is known or (holder is not None and holder.removed is None):
            return
        if holder is not None:
            self._forget(holder)
            known.absorb(holder)
        self.containers.pop(known.name, None)
        known.name = name
        self.containers[name] = known

    def remove(self, known: ContainerState) -> None:
        """Record that a known container was removed."""
        if known.removed is None:
            known.removed = known.changed = self._clock()
        known.health = known.pid = None
        known.accelerators = ()
        if known.status is not None:
            known.status = "exited"

    def tidy(self) -> None:
        """Drop the containers that were removed at least `forget_after_seconds` ago."""
        now = self._clock()
        for known in list(self.containers.values()):
            if known.removed is not None and now - known.removed >= self.forget_after_seconds:
                self._forget(known)

    def _make_room(self) -> None:
        if len(self.containers) >= _MOST_KNOWN:
            self._forget(
                min(self.containers.values(), key=lambda each: (each.removed is None, each.changed))
            )

    def _forget(self, known: ContainerState) -> None:
        self.containers.pop(known.name, None)
        if self._by_id.get(known.id) is known:
            del self._by_id[known.id]
