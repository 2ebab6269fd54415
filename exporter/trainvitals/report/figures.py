"""The figures of a report, in base units.

The units are seconds, bytes, joules, watts, degrees Celsius, and ratios from 0 to 1. Times are in
Unix seconds. None means that a figure is unknown; an unknown figure is never 0. Sums cover the time
for which Prometheus has data. "At the end" refers to the last sample at the end of the period.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trainvitals.report.period import Kind
from trainvitals.report.training import Deaths, Incident, Runs
from trainvitals.sources.prometheus import Points

TRAINING, OTHERS = "training", "others"

CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        TRAINING: "training at full speed",
        OTHERS: "busy without a known run",
        "data_wait": "input-bound: waiting for data",
        "stalled": "stalled: held by a run without progress",
        "throttled": "throttled by heat or the power brake",
        "evaluation": "validation or checkpoint",
        "starting": "init or compile",
        "paused": "idle on purpose: held by a run that waits",
        "held": "held idle: memory held by no run",
        "idle": "idle: held by no process",
        "lost": "lost: no answer",
    }
)
"""The names of the uses of accelerator time; all uses except the first two count as waste.

`docs/report.md` defines each use.
"""


@dataclass(frozen=True, slots=True)
class Use:
    """The accelerator time that is attributed to one use.

    Attributes:
        cause: The use, which is a key of `CAUSES`.
        seconds: The time of the use, summed over all accelerators.
        by_hour: The time of the use in each hour, summed over all accelerators; the time of a point
            is the end of the hour.
    """

    cause: str
    seconds: float
    by_hour: Points = ()

    @property
    def is_waste(self) -> bool:
        """Whether the time of this use counts as wasted."""
        return self.cause not in {TRAINING, OTHERS}


@dataclass(frozen=True, slots=True)
class Heat:
    """The highest temperature of one accelerator.

    Attributes:
        instance: The label `instance` of the accelerator's machine.
        device: The kind and the index of the accelerator, such as `gpu 3`.
        celsius: The highest temperature, in degrees Celsius. Source:
            accelerator_temperature_celsius, sensor core.
        time: The end of the hour in which the temperature was reached, in Unix seconds.
    """

    instance: str
    device: str
    celsius: float
    time: float


@dataclass(frozen=True, slots=True)
class Accelerators:
    """Figures about the accelerators that were observed in the period.

    Attributes:
        count: The number of observed accelerators, counted by UUID; 0 if no accelerator was
            observed.
        seconds: The time for which accelerators were observed, summed over all accelerators.
            Source: accelerator_up.
        busy_seconds: The part of `seconds` in which accelerators were busy. Source:
            accelerator_busy_seconds_total, else accelerator_utilization_ratio.
        memory_used_bytes: Device memory in use on all accelerators, at the end. Source:
            accelerator_memory_used_bytes.
        memory_total_bytes: Device memory of all accelerators, at the end. Source:
            accelerator_memory_total_bytes.
        memory_peak_bytes: The highest total of device memory in use on all accelerators.
        celsius: The temperature of the hottest accelerator at the end.
        hottest: The highest temperature of an accelerator in the period.
        power_watts: The mean of the total power of all accelerators. Source:
            accelerator_power_watts.
        energy_joules: The energy used by all accelerators. Source: accelerator_energy_joules_total;
            for accelerators without this metric, accelerator_power_watts.
        is_energy_estimated: Whether part of the energy was derived from the power draw.
        uses: The accelerator time of each use, in the order of `CAUSES`; an empty tuple if
            Prometheus refused a query.
        busy_by_hour: The busy share of accelerator time in each hour; the time of a point is the
            end of the hour.
        joules_by_hour: The energy used in each hour; the time of a point is the end of the hour.
        celsius_by_hour: The highest temperature in each hour; the time of a point is the end of the
            hour.
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
        """The busy share of accelerator time; None if the busy time is unknown."""
        if not self.seconds or self.busy_seconds is None:
            return None
        return self.busy_seconds / self.seconds

    @property
    def known_seconds(self) -> float:
        """The accelerator time that is attributed to a use, in seconds."""
        return sum(use.seconds for use in self.uses)

    @property
    def wasted_seconds(self) -> float:
        """The accelerator time of all uses that count as waste, in seconds."""
        return sum(use.seconds for use in self.uses if use.is_waste)

    @property
    def wasted_ratio(self) -> float | None:
        """The wasted share of the attributed accelerator time; None if no time is attributed."""
        return self.wasted_seconds / self.known_seconds if self.known_seconds else None


@dataclass(frozen=True, slots=True)
class Disk:
    """The state of a file system at the end of the period.

    Attributes:
        instance: The label `instance` of the file system's machine.
        mountpoint: The mount point of the file system.
        avail_bytes: The space available to unprivileged users. Source: host_filesystem_avail_bytes.
        size_bytes: The size of the file system. Source: host_filesystem_size_bytes.
    """

    instance: str
    mountpoint: str
    avail_bytes: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Hosts:
    """Figures about the machines that were observed in the period.

    Attributes:
        names: The sorted names of the machines that were observed. Source: the label `instance`.
        environments: The sorted values of the target labels `environment` or `env`; an empty tuple
            if no target has such a label.
        memory_used_bytes: The total memory minus the available memory of all machines, at the end.
        memory_total_bytes: The total memory of all machines that report available memory, at the
            end. Source: memory_total_bytes.
        memory_peak_ratio: The highest share of memory that was in use on one machine.
        memory_peak_instance: The machine on which the highest share of memory was in use; an empty
            string if the machine is unknown.
        disks: The fullest file systems, the fullest first, without small and read-only file
            systems.
    """

    names: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    memory_peak_ratio: float | None = None
    memory_peak_instance: str = ""
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """A figure that is unknown.

    Attributes:
        what: The description of the unknown figure.
        why: The reason why the figure is unknown, and a remedy if one is known.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation that is derived from a figure of the report.

    Attributes:
        urgency: The urgency of the action: 0 (now), 1 (soon) or 2 (when there is time).
        what: The recommended action, as an imperative sentence.
        because: The figure on which the recommendation is based.
    """

    urgency: int
    what: str
    because: str


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of the previous period for comparison; an unknown figure is None.

    Attributes:
        begin: The start of the previous period, in Unix seconds.
        end: The end of the previous period, in Unix seconds.
        completed: The number of run starts that finished.
        failed: The number of run starts that failed.
        busy_ratio: The busy share of accelerator time.
        wasted_ratio: The wasted share of accelerator time.
        energy_joules: The energy used by all accelerators.
    """

    begin: float
    end: float
    completed: int | None = None
    failed: int | None = None
    busy_ratio: float | None = None
    wasted_ratio: float | None = None
    energy_joules: float | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of the period for which Prometheus has data.

    Attributes:
        first: The time at which the data begins, in Unix seconds.
        last: The time at which the data ends, in Unix seconds.
        seconds: The total time for which there is data, in seconds.
        holes: The start and end of each interval without data, limited to the period.
    """

    first: float
    last: float
    seconds: float
    holes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """The price of electrical energy.

    Attributes:
        per_kwh: The price of one kilowatt hour.
        currency: The name of the currency, such as `EUR`.
    """

    per_kwh: float
    currency: str


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a daily or weekly report.

    Attributes:
        kind: The kind of the report: `daily` or `weekly`.
        begin: The start of the period, in Unix seconds.
        planned_end: The end of the period, in Unix seconds.
        end: The end of the data, in Unix seconds: `planned_end`, or the time of the query if the
            query is earlier.
        zone: The name of the time zone in which days start and end.
        utc_offset_seconds: The zone's offset from UTC at the start of the period and after each
            change, as pairs of the Unix time and the offset in seconds.
        asked: The time at which Prometheus was queried, in Unix seconds.
        source: The URL of the Prometheus server, without its password.
        instances: The machines that the report is limited to; an empty tuple means all machines.
        only_runs: The runs that the report is limited to; an empty tuple means all runs.
        coverage: The part of the period for which there is data.
        hosts: Figures about the machines.
        runs: Figures about the training runs.
        accelerators: Figures about the accelerators.
        incidents: The alerts that fired in the period, the most severe first.
        deaths: The container deaths in the period, the most frequent first.
        before: Figures of the previous period; None if Prometheus has too little data about the
            previous period.
        price: The price of electrical energy; None if no price is set.
        advice: The recommendations, the most urgent first.
        gaps: The figures that are unknown because Prometheus refused their queries or returned too
            many series.
    """

    kind: Kind
    begin: float
    planned_end: float
    end: float
    zone: str
    utc_offset_seconds: Points
    asked: float
    source: str
    instances: tuple[str, ...]
    only_runs: tuple[str, ...]
    coverage: Coverage
    hosts: Hosts
    runs: Runs
    accelerators: Accelerators
    incidents: tuple[Incident, ...] = ()
    deaths: tuple[Deaths, ...] = ()
    before: Totals | None = None
    price: Price | None = None
    advice: tuple[Advice, ...] = ()
    gaps: tuple[Gap, ...] = ()
