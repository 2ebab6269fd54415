"""The figures of a report, in base units: seconds, bytes, joules, watts, °C, ratios 0 to 1.

Times are Unix seconds. None means unknown; an unknown figure is never 0. Sums cover the time for
which Prometheus has data. "At the end" refers to the last sample at the end of the period.
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
"""Names of the uses of accelerator time; all but the first two count as waste.

`docs/report.md` defines each use.
"""


@dataclass(frozen=True, slots=True)
class Use:
    """The accelerator time that one use takes.

    Attributes:
        cause: A key of `CAUSES`.
        seconds: The sum over all accelerators.
        by_hour: The sum for each hour, at the end of the hour.
    """

    cause: str
    seconds: float
    by_hour: Points = ()

    @property
    def is_waste(self) -> bool:
        """Whether the time counts as wasted."""
        return self.cause not in {TRAINING, OTHERS}


@dataclass(frozen=True, slots=True)
class Heat:
    """The highest temperature of one accelerator.

    Attributes:
        instance: The machine.
        device: The kind and the index, such as `gpu 3`.
        celsius: The temperature. Source: accelerator_temperature_celsius, sensor core.
        time: Unix seconds of the end of the hour in which it was reached.
    """

    instance: str
    device: str
    celsius: float
    time: float


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The accelerators of the period.

    Attributes:
        count: The number of accelerators seen, counted by UUID; 0 if none was seen.
        seconds: The time for which accelerators were seen, summed over all accelerators. Source:
            accelerator_up.
        busy_seconds: The part of `seconds` in which accelerators were busy. Source:
            accelerator_busy_seconds_total, else accelerator_utilization_ratio.
        memory_used_bytes: Device memory in use on all accelerators, at the end. Source:
            accelerator_memory_used_bytes.
        memory_total_bytes: Device memory of all accelerators, at the end. Source:
            accelerator_memory_total_bytes.
        memory_peak_bytes: The highest sum of device memory in use.
        celsius: The temperature of the hottest accelerator at the end.
        hottest: The highest temperature in the period.
        power_watts: The mean total power of all accelerators. Source: accelerator_power_watts.
        energy_joules: The energy used by all accelerators. Source: accelerator_energy_joules_total,
            else power.
        is_energy_estimated: Whether part of the energy was derived from power.
        uses: The time taken by each use, in the order of `CAUSES`; empty if a query was refused.
        busy_by_hour: The busy share for each hour, at the end of the hour.
        joules_by_hour: The energy used in each hour, at the end of the hour.
        celsius_by_hour: The highest temperature in each hour, at the end of the hour.
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
        """The busy share of accelerator time; None if unknown."""
        if not self.seconds or self.busy_seconds is None:
            return None
        return self.busy_seconds / self.seconds

    @property
    def known_seconds(self) -> float:
        """The total time of all uses."""
        return sum(use.seconds for use in self.uses)

    @property
    def wasted_seconds(self) -> float:
        """The total time of the uses that count as waste."""
        return sum(use.seconds for use in self.uses if use.is_waste)

    @property
    def wasted_ratio(self) -> float | None:
        """The wasted share of the attributed time; None if no time is attributed."""
        return self.wasted_seconds / self.known_seconds if self.known_seconds else None


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system at the end of the period.

    Attributes:
        instance: The machine.
        mountpoint: The mount point.
        avail_bytes: Space available to unprivileged users. Source: host_filesystem_avail_bytes.
        size_bytes: The size. Source: host_filesystem_size_bytes.
    """

    instance: str
    mountpoint: str
    avail_bytes: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machines of the period.

    Attributes:
        names: The names of the machines seen, sorted. Source: the label instance.
        environments: The values of the target labels `environment` or `env`, sorted; empty if no
            target has one.
        memory_used_bytes: Total minus available memory of all machines, at the end.
        memory_total_bytes: Memory of all machines that report available memory, at the end. Source:
            memory_total_bytes.
        memory_peak_ratio: The highest share of memory in use on one machine.
        memory_peak_instance: The machine on which the peak occurred; empty if unknown.
        disks: The fullest file systems, the fullest first; small and read-only ones are left out.
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
        what: The figure.
        why: The reason, and where possible what to do about it.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation.

    Attributes:
        urgency: 0 now, 1 soon, 2 when there is time.
        what: The action, as an imperative.
        because: The figure on which the recommendation is based.
    """

    urgency: int
    what: str
    because: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Some figures of the previous period, for comparison; None means unknown.

    Attributes:
        begin: Unix seconds of the start of the period.
        end: Unix seconds of the end of the period.
        completed: The number of starts that finished.
        failed: The number of starts that failed.
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
        first: Unix seconds of the first data.
        last: Unix seconds of the last data.
        seconds: The duration of the time with data.
        holes: The start and end of each time without data, limited to the period.
    """

    first: float
    last: float
    seconds: float
    holes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """The price of energy.

    Attributes:
        per_kwh: The price of a kilowatt hour.
        currency: The name of the currency, such as `EUR`.
    """

    per_kwh: float
    currency: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    Attributes:
        kind: `daily` or `weekly`.
        begin: Unix seconds of the start of the period.
        planned_end: Unix seconds of the end of the period.
        end: The end of the data: `planned_end`, or the time of the query if that is earlier.
        zone: The name of the time zone.
        utc_offset_seconds: The zone's offset from UTC at the start of the period and after each
            change, as pairs of Unix seconds and offset.
        asked: Unix seconds of the query.
        source: The URL of the Prometheus server, without its password.
        instances: The machines that the report is limited to; empty for all machines.
        only_runs: The runs that the report is limited to; empty for all runs.
        coverage: The part of the period for which there is data.
        hosts: The machines.
        runs: The training runs.
        accelerators: The accelerators.
        incidents: Alerts that fired, the most severe first.
        deaths: Container deaths, the most frequent first.
        before: Figures of the previous period; None if Prometheus has too little data about it.
        price: The price of energy; None if no price is set.
        advice: Recommendations, the most urgent first.
        gaps: Figures that are unknown because their query was refused.
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
