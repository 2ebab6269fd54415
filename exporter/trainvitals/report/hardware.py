"""What is told of accelerators and machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.report.points import Points


@dataclass(frozen=True, slots=True)
class Use:
    """What the time of accelerators went to.

    Attributes:
        cause: One of `waste.CAUSES`.
        seconds: Of all accelerators together.
        by_hour: The same in each hour; a point stands at the end of its hour.
    """

    cause: str
    seconds: float
    by_hour: Points = ()


@dataclass(frozen=True, slots=True)
class Heat:
    """The highest temperature of one accelerator.

    Attributes:
        instance: Its machine.
        device: As `gpu 3`.
        celsius: The temperature.
        time: The end of the hour in which it was reached.
    """

    instance: str
    device: str
    celsius: float
    time: float


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The accelerators of the period.

    Attributes:
        count: How many there were.
        seconds: How long they were there, all together.
        busy_seconds: For how long of that something ran.
        memory_used_bytes: At the end.
        memory_total_bytes: At the end.
        memory_peak_bytes: The most that was used at a time.
        celsius: The hottest at the end.
        hottest: The hottest of the period.
        power_watts: The mean of all together.
        energy_joules: What they used.
        is_energy_estimated: Whether some of it was estimated from power.
        uses: What their time went to, in the order of `waste.CAUSES`.
        busy_by_hour: The busy share of each hour.
        joules_by_hour: The energy of each hour.
        celsius_by_hour: The hottest in each hour.
    """

    count: int = 0
    seconds: float | None = None
    busy_seconds: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    memory_peak_bytes: float | None = None
    celsius: float | None = None
    hottest: Heat | None = None
    power_watts: float | None = None
    energy_joules: float | None = None
    is_energy_estimated: bool = False
    uses: tuple[Use, ...] = ()
    busy_by_hour: Points = ()
    joules_by_hour: Points = ()
    celsius_by_hour: Points = ()

    @property
    def busy_ratio(self) -> float | None:
        """The busy share; None unknown."""
        if not self.seconds or self.busy_seconds is None:
            return None
        return self.busy_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system at the end.

    Attributes:
        instance: Its machine.
        mountpoint: Where it is mounted.
        avail_bytes: What can still be written.
        size_bytes: How large it is.
    """

    instance: str
    mountpoint: str
    avail_bytes: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machines of the period.

    Attributes:
        names: All that were seen.
        environments: What their targets call their environment.
        memory_used_bytes: RAM of all, at the end.
        memory_total_bytes: The same.
        memory_peak_ratio: The fullest that one of them was.
        memory_peak_instance: Which.
        disks: The fullest first.
    """

    names: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    memory_peak_ratio: float | None = None
    memory_peak_instance: str = ""
    disks: tuple[Disk, ...] = ()
