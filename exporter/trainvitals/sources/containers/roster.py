"""All containers that are known, by name and by ID, until their series go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trainvitals.sources.containers.known import Attempt, Known

_MOST_KNOWN = 1024
_SHORT_ID = 12


class Roster:
    """Who is there, and who was lately.

    Args:
        forget_after_seconds: How long a removed container is kept.
        clock: The time of day, in seconds since 1970.

    Attributes:
        lock: Held by whoever reads or changes what is kept here.
        containers: By name.
    """

    def __init__(
        self, *, forget_after_seconds: float = 600.0, clock: Callable[[], float] = time.time
    ) -> None:
        self.lock = threading.RLock()
        self.containers: dict[str, Known] = {}
        self.forget_after_seconds = forget_after_seconds
        self._by_id: dict[str, Known] = {}
        self._clock = clock

    def find(self, container: str) -> Known | None:
        """Find a container by its whole ID; None where it is not known."""
        return self._by_id.get(container)

    def list_present(self) -> list[Known]:
        """Give those that were not removed."""
        return [known for known in self.containers.values() if known.removed is None]

    def take_up(self, name: str, container: str) -> Known:
        """Know a container from now on; under a name that is known the counts go on."""
        name = name or container[:_SHORT_ID]
        known = self.containers.get(name)
        if known is None:
            self._make_room()
            known = self.containers[name] = Known(name, container)
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

    def rename(self, known: Known, name: str) -> None:
        """Note another name, unless another container has it.

        One that takes the name of a container that was removed goes on with its counts: so does
        Compose make a service anew.
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

    def remove(self, known: Known) -> None:
        """Note that it is gone."""
        if known.removed is None:
            known.removed = known.changed = self._clock()
        known.health = known.pid = None
        known.accelerators = ()
        if known.status is not None:
            known.status = "exited"

    def tidy(self) -> None:
        """Forget those that have been gone for long enough."""
        now = self._clock()
        for known in list(self.containers.values()):
            if known.removed is not None and now - known.removed >= self.forget_after_seconds:
                self._forget(known)

    def _make_room(self) -> None:
        if len(self.containers) >= _MOST_KNOWN:
            self._forget(
                min(self.containers.values(), key=lambda each: (each.removed is None, each.changed))
            )

    def _forget(self, known: Known) -> None:
        self.containers.pop(known.name, None)
        if self._by_id.get(known.id) is known:
            del self._by_id[known.id]
