"""The choice of the containers whose logs are followed, so that their last lines are kept."""

from __future__ import annotations

from trainvitals.sources.containers.container_state import ContainerState, Ending
from trainvitals.sources.containers.loglines import LogRing
from trainvitals.sources.containers.source import Follow

_PATIENCE_SECONDS = 1.0


class Following:
    """Chooses the containers whose logs are followed.

    Args:
        ring: Follows logs; None for no following.
        follow: Whose: of those that are removed at their end, of all, of none.
    """

    def __init__(self, ring: LogRing | None, follow: Follow = "auto") -> None:
        self._ring = ring
        self._follow = follow

    def watch(self, known: ContainerState) -> None:
        """Follow the log of a running container, if it is chosen; the registry's lock is held."""
        inspection, attempt, ending = known.inspection, known.attempt, known.ending
        if self._ring is None or inspection is None or not attempt.is_running:
            return
        if ending is not None and not ending.is_fetched and ending.container == known.id:
            return  # the lines of the start before are still wanted
        is_wanted = self._follow == "all" or (
            self._follow == "auto" and inspection.settings.is_removed_at_end
        )
        if is_wanted:
            self._ring.watch(known.id, since=attempt.log_since)

    def read(self, ending: Ending) -> tuple[str, ...] | None:
        """Return the last lines of one that has died; None if it was not followed."""
        if self._ring is None:
            return None
        self._ring.await_end(ending.container, _PATIENCE_SECONDS)
        return self._ring.lines(ending.container)

    def forget(self, ending: Ending) -> None:
        """Drop the lines of one that has died, unless it runs again; the lock is held."""
        known = ending.known
        runs_again = known.id == ending.container and known.attempt is not ending.attempt
        if self._ring is not None and not runs_again:
            self._ring.forget(ending.container)
