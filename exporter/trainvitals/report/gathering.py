"""Making a report: asking for everything, comparing with the period before, and advising."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainvitals.errors import StackError
from trainvitals.report.accelerators import find_accelerators
from trainvitals.report.advice import advise
from trainvitals.report.archive import HOUR, Archive, Filters
from trainvitals.report.counting import count_completed, count_failed, find_wasted_ratio
from trainvitals.report.figures import Price, Report, Totals
from trainvitals.report.hosts import find_coverage, find_hosts
from trainvitals.report.incidents import find_deaths, find_incidents
from trainvitals.report.period import Period
from trainvitals.report.points import Points
from trainvitals.report.promapi import Prometheus
from trainvitals.report.runs import find_runs

# Sums over a part of a week say nothing beside those over a whole one.
_ENOUGH_TO_COMPARE = 0.9


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person wants of a report.

    Attributes:
        filters: What it is limited to.
        targets: What metrics should reach, by name.
        price: What energy costs; None where nobody says.
    """

    filters: Filters = Filters()  # noqa: RUF009 - immutable
    targets: Mapping[str, float] = field(default_factory=dict)
    price: Price | None = None


def make_report(
    prometheus: Prometheus, period: Period, wishes: Wishes | None = None, *, now: float
) -> Report:
    """Make the report of a period.

    Args:
        prometheus: Whom to ask.
        period: About what.
        wishes: What a person wants of it.
        now: The moment of asking.

    Raises:
        StackError: Prometheus does not answer, or has nothing of the period.
    """
    wishes = wishes or Wishes()
    archive = Archive(prometheus, period, wishes.filters)
    coverage = find_coverage(archive)
    if coverage is None:
        raise StackError(_tell_emptiness(archive))
    if wishes.filters.runs and not wishes.filters.instances:
        archive.filters = replace(wishes.filters, instances=_find_machines(archive))
    runs = find_runs(archive, wishes.targets)
    deaths = find_deaths(archive) if not wishes.filters.runs else ()
    report = Report(
        kind=period.kind,
        begin=period.begin,
        planned_end=period.planned_end,
        end=period.end,
        zone=_name_zone(period),
        utc_offset_seconds=_list_offsets(period),
        asked=now,
        source=prometheus.url,
        instances=wishes.filters.instances,
        only_runs=wishes.filters.runs,
        coverage=coverage,
        hosts=find_hosts(archive),
        runs=runs,
        accelerators=find_accelerators(archive),
        incidents=find_incidents(archive, runs, deaths),
        deaths=deaths,
        before=_look_back(archive),
        price=wishes.price,
    )
    gaps = tuple(dict.fromkeys(archive.gaps))
    return replace(report, gaps=gaps, advice=advise(report))


def _find_machines(archive: Archive) -> tuple[str, ...]:
    """Name the machines on which the chosen runs were.

    Raises:
        StackError: There was none of them.
    """
    seen = archive.ask_hours(
        "the machines of the runs",
        "group by (instance) (last_over_time(training_run_info{@run}[@hour]))",
    )
    names = tuple(sorted({each.labels.get("instance", "") for each in seen}))
    if not names:
        raise StackError(
            f"no run {' or '.join(archive.filters.runs)} was seen in that time; "
            "`trainvitals report` without --run lists those that were"
        )
    return names


def _tell_emptiness(archive: Archive) -> str:
    period, prometheus = archive.period, archive.prometheus
    if archive.gaps:
        return f"{prometheus.url}: {archive.gaps[0].why}"
    begin, end = (
        period.read_clock(each).strftime("%Y-%m-%d %H:%M") for each in (period.begin, period.end)
    )
    chosen = f" of {' or '.join(archive.filters.instances)}" if archive.filters.instances else ""
    return (
        f"{prometheus.url} has nothing{chosen} from {begin} to {end}: it did not run, it scrapes no "
        "trainvitals, or it has forgotten; see `trainvitals status`, or give another --date"
    )


def _look_back(archive: Archive) -> Totals | None:
    """Ask for a few figures of the period before; None where too little is known."""
    period = archive.period.step_back()
    before = Archive(archive.prometheus, period, archive.filters)
    coverage = find_coverage(before) if period.end > period.begin else None
    if coverage is None or coverage.seconds < _ENOUGH_TO_COMPARE * period.seconds:
        return None
    accelerators, runs = find_accelerators(before), find_runs(before, {})
    return Totals(
        begin=period.begin,
        end=period.end,
        completed=count_completed(runs),
        failed=count_failed(runs),
        busy_ratio=accelerators.busy_ratio,
        wasted_ratio=find_wasted_ratio(accelerators),
        energy_joules=accelerators.energy_joules,
    )


def _name_zone(period: Period) -> str:
    named = getattr(period.zone, "key", None)
    return str(named) if named else f"{period.read_clock(period.begin):%Z}"


def _list_offsets(period: Period) -> Points:
    offsets: list[tuple[float, float]] = []
    for moment in range(period.begin, period.planned_end + 1, HOUR // 2):
        offset = period.read_clock(moment).utcoffset()
        seconds = offset.total_seconds() if offset is not None else 0.0
        if not offsets or offsets[-1][1] != seconds:
            offsets.append((float(moment), seconds))
    return tuple(offsets)
