"""What of a picture a person should look at, as the alerts have it."""

from __future__ import annotations

from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Container
from trainvitals.sources.containers.reading import Death

# Ends that somebody wanted; the alert ContainerDied leaves them out too.
_GOOD_ENDS = ("finished", "stop-graceful", "kill-operator", "interrupted")


def find_news(container: Container, now: float) -> Death | None:
    """Give the death that a person should hear of; None where there is none.

    It is one that nobody wanted, so short a time ago that its alert may still fire.

    Args:
        container: One container.
        now: Unix time.
    """
    death = container.last_death
    if death is None or death.reason in _GOOD_ENDS:
        return None
    return death if now - death.time <= LIMITS["container_died:window_seconds"] else None


def measure_memory(container: Container) -> float | None:
    """Give how much of its limit a container uses, 0 to 1; None where it has none."""
    used, limit = container.memory_used_bytes, container.memory_limit_bytes
    return None if used is None or not limit else used / limit


def is_nearly_full(container: Container) -> bool:
    """Tell whether a container is about to be killed for want of memory."""
    ratio = measure_memory(container)
    return ratio is not None and ratio >= LIMITS["container_memory_near_limit:ratio"]
