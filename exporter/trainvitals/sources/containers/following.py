"""Select the containers whose logs are followed to keep their last log lines."""

from __future__ import annotations

from trainvitals.sources.containers.container_state import ContainerState, Ending
from trainvitals.sources.containers.loglines import LogRing
from trainvitals.sources.containers.source import Follow

_PATIENCE_SECONDS = 1.0


class Following:
    """Selects the containers whose logs are followed.

    Args:
        ring: The object that follows the logs; None to follow no logs.
        follow: The containers whose logs are followed: `auto` for the containers that are removed
            when they end, `all` for all containers, or `none` for no container.
    """

    def __init__(self, ring: LogRing | None, follow: Follow = "auto") -> None:
        self._ring = ring
        self._follow = follow

    def watch(self, known: ContainerState) -> None:
        """Follow a running container's log if the container is selected.

        The caller must hold the registry's lock.
        """
        inspection, attempt, ending = known.inspection, known.attempt, known.ending
        if self._ring is None or inspection is None or not attempt.is_running:
            return
        if ending is not None and not ending.is_fetched and ending.container == known.id:
            return  # the lines from the previous start are still needed
        is_wanted = self._follow == "all" or (
            self._follow == "auto" and inspection.settings.is_removed_at_end
        )
        if is_wanted:
            self._ring.watch(known.id, since=attempt.log_since)

    def read(self, ending: Ending) -> tuple[str, ...] | None:
        """Return the last log lines of an ended container; None if the log was not followed."""
        if self._ring is None:
            return None
        self._ring.await_end(ending.container, _PATIENCE_SECONDS)
        return self._ring.lines(ending.container)

    def forget(self, ending: Ending) -> None:
        """Drop the log lines of a container that has ended, unless it was restarted.

        The caller must hold the registry's lock.
        """
        known = ending.known
        runs_again = known.id == ending.container and known.attempt is not ending.attempt
        if self._ring is not None and not runs_again:
            self._ring.forget(ending.container)
