"""Derives the state of containers from readings of the collector `container`."""

from __future__ import annotations

from trainvitals.sources.containers.reading import ContainerReading, ContainersReading, Usage
from trainvitals.verdicts.containers import is_recent
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.views.machine.counters import Counters
from trainvitals.views.machine.picture import Container

_NOT_RUNNING = ("exited", "created")


class Containers:
    """The containers of a machine, with their earlier CPU times.

    The CPU usage of a container is derived from two readings. Scrapes do not export CPU usage, so
    readings are kept only when the machine state is requested.
    """

    def __init__(self) -> None:
        self._cpu: dict[str, Counters] = {}

    def draw(
        self, reading: ContainersReading, time: float, thresholds: Thresholds
    ) -> tuple[Container, ...] | None:
        """Return the containers, first those that died recently, the latest death first.

        The running containers follow by name, and then the other containers by name.

        Args:
            reading: The latest reading of the collector `container`.
            time: The current time, in Unix seconds.
            thresholds: The alert thresholds.

        Returns:
            The containers; None if the machine has neither a container engine nor a control group
            of a container.
        """
        if not reading.is_there:
            return None
        self._note(reading)
        drawn = [self._draw_container(container) for container in reading.containers]
        return tuple(sorted(drawn, key=lambda each: _rank(each, time, thresholds)))

    def _note(self, reading: ContainersReading) -> None:
        before, self._cpu = self._cpu, {}
        for container in reading.containers:
            if container.usage is None:
                continue
            counters = before.get(container.id) or Counters(most=12)
            # Use the time of the container's reading, which may be older than the scrape.
            counters.take(container.usage.time, (container.usage.cpu_seconds,))
            self._cpu[container.id] = counters

    def _draw_container(self, read: ContainerReading) -> Container:
        usage = read.usage or Usage(0, 0)
        counters = self._cpu.get(read.id)
        return Container(
            name=read.name,
            image=read.image,
            status=read.status,
            health=read.health,
            started=read.started,
            restarts=read.restarts,
            memory_used_bytes=usage.memory_working_set_bytes,
            memory_limit_bytes=usage.memory_limit_bytes,
            cpu_cores=counters.rate(0) if counters is not None else None,
            cpu_limit_cores=usage.cpu_limit_cores,
            processes=usage.processes,
            oom_kills=max(read.oom_kills.values(), default=0),
            deaths=sum(read.deaths.values()),
            last_death=read.last_death,
            devices=tuple(f"{each.kind}{each.index}" for each in read.accelerators),
        )


def _rank(drawn: Container, time: float, thresholds: Thresholds) -> tuple[int, float, str]:
    death = drawn.last_death
    if death is not None and is_recent(death, time, thresholds):
        return (0, -death.time, drawn.name)
    return (1 + (drawn.status in _NOT_RUNNING), 0.0, drawn.name)
