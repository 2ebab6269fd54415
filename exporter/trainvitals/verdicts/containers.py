"""Container problems, according to the thresholds of the corresponding alerts."""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.sources.containers.reading import ContainerReading, ContainersReading, Death
from trainvitals.units import format_age, format_bytes_of
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.trouble import OUT_OF_HOST_MEMORY, Severity, Trouble

_FOR_MEMORY = "oom-"
# The causes of exits that a person or an orchestrator requested.
_WANTED = ("stop-graceful", "kill-operator", "interrupted")


def judge_containers(
    reading: ContainersReading, thresholds: Thresholds, now: float
) -> Iterator[Trouble]:
    """Yield a problem for each container that needs attention.

    Args:
        reading: The reading of the machine's containers.
        thresholds: The thresholds of the alerts, by name.
        now: The current time in Unix seconds.
    """
    for container in reading.containers:
        name, usage = container.name, container.usage
        yield from _judge_death(container, thresholds, now)
        used = usage.memory_working_set_bytes if usage else None
        limit = usage.memory_limit_bytes if usage else None
        if is_near_limit(used, limit, thresholds):
            yield _blame(
                name,
                "ContainerMemoryNearLimit",
                "at its memory limit",
                f"it uses {format_bytes_of(used, limit)} of its memory limit",
            )
        if container.health == "unhealthy" and container.status == "running":
            yield _blame(name, "ContainerUnhealthy", "unhealthy", "its health check fails")


def find_recent_death(death: Death | None, thresholds: Thresholds, now: float) -> Death | None:
    """Return a container's death if the death was not requested and its alert still fires.

    For any other death, the result is None.
    """
    if death is None or death.reason in _WANTED or death.reason == "finished":
        return None
    return death if is_recent(death, now, thresholds) else None


def is_recent(death: Death, now: float, thresholds: Thresholds) -> bool:
    """Return whether a container's death is recent enough for the death's alert to fire."""
    alert = "container_oom_killed" if _is_for_memory(death) else "container_died"
    return now - death.time < thresholds[f"{alert}:window_seconds"]


def is_near_limit(used: int | None, limit: int | None, thresholds: Thresholds) -> bool:
    """Return whether a container is close to an OOM kill; a limit of 0 means no limit."""
    if used is None or not limit:
        return False
    return used / limit > thresholds["container_memory_near_limit:ratio"]


def _judge_death(
    container: ContainerReading, thresholds: Thresholds, now: float
) -> Iterator[Trouble]:
    death = find_recent_death(container.last_death, thresholds, now)
    if death is None:
        return
    words = f"{death.summary} " if death.summary else ""
    summary = f"{words}({death.reason}, {format_age(death.time, now)})"
    if _is_for_memory(death):
        alert = "ContainerOOMKilled"
        yield _blame(container.name, alert, OUT_OF_HOST_MEMORY, summary, "critical")
    elif death.exit_code:
        yield _blame(container.name, "ContainerDied", "died", summary)


def _is_for_memory(death: Death) -> bool:
    return death.reason.startswith(_FOR_MEMORY)


def _blame(
    subject: str, alert: str, name: str, summary: str, severity: Severity = "warning"
) -> Trouble:
    return Trouble("container", subject, name, severity, summary, alert)
