"""All that a report tells, as it was found: seconds, bytes, joules and ratios.

None is unknown, which is never 0. Moments are seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.report.hardware import Accelerators, Hosts
from trainvitals.report.period import Kind
from trainvitals.report.points import Points
from trainvitals.report.training import Runs
from trainvitals.report.troubles import Deaths, Incident


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that cannot be told.

    Attributes:
        what: What it is.
        why: Why not, and what makes it known.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do next.

    Attributes:
        urgency: 0 now, 1 soon, 2 when there is time.
        what: What to do.
        because: The figure that it follows from.
    """

    urgency: int
    what: str
    because: str


@dataclass(frozen=True, slots=True)
class Totals:
    """A few figures of the period before, to compare with; None is unknown.

    Attributes:
        begin: When it began.
        end: When it ended.
        completed: Runs that finished.
        failed: Runs that died.
        busy_ratio: Share of the time in which accelerators were busy.
        wasted_ratio: Share of accelerator time that was wasted.
        energy_joules: The energy of all accelerators.
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
    """For which part of the period Prometheus has figures.

    Attributes:
        first: The first moment with figures.
        last: The last one.
        seconds: How long there are figures.
        holes: From when until when there were none, the borders of the period included.
    """

    first: float
    last: float
    seconds: float
    holes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """What energy costs.

    Attributes:
        per_kwh: The price of a kilowatt hour.
        currency: In which currency, as `EUR`.
    """

    per_kwh: float
    currency: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    Attributes:
        kind: `daily` or `weekly`.
        begin: When the period begins.
        planned_end: When it is over.
        end: Until when there can be figures.
        zone: The name of its time zone.
        utc_offset_seconds: What its clock was ahead of UTC at each change, from when on.
        asked: When it was made.
        source: The Prometheus that was asked.
        instances: The machines that it is limited to; empty for all.
        only_runs: The runs that it is limited to; empty for all.
        coverage: For which part there are figures.
        hosts: The machines.
        runs: The training.
        accelerators: The accelerators.
        incidents: The worst first.
        deaths: Of containers, the most first.
        before: The period before; None where nothing of it is known.
        price: What energy costs; None where nobody said.
        advice: What to do, the most urgent first.
        gaps: What cannot be told.
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
