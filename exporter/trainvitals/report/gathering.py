"""Creation of a report, with a comparison with the previous period and with recommendations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainvitals.errors import StackError
from trainvitals.report.advice import advise
from trainvitals.report.archive import HOUR, Archive, Filters
from trainvitals.report.expected import find_expectations
from trainvitals.report.figures import Price, Report, Totals
from trainvitals.report.hardware import find_accelerators, find_coverage, find_hosts
from trainvitals.report.incidents import find_deaths, find_incidents
from trainvitals.report.period import Period
from trainvitals.report.runs import find_runs
from trainvitals.sources.prometheus import Points, Prometheus
from trainvitals.units import format_minute

# Sums over part of a period cannot be compared with sums over a whole period.
_ENOUGH_TO_COMPARE = 0.9


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options of a report.

    Attributes:
        filters: The machines and runs that the report is limited to.
        targets: The target values of metrics, by metric name.
        price: The price of electrical energy; None if no price is set.
    """

    filters: Filters = Filters()  # noqa: RUF009 - immutable
    targets: Mapping[str, float] = field(default_factory=dict)
    price: Price | None = None


def make_report(
    prometheus: Prometheus, period: Period, options: ReportOptions | None = None, *, now: float
) -> Report:
    """Return the report about a period.

    Args:
        prometheus: The Prometheus server to query.
        period: The period to report.
        options: The options of the report; None means the default options.
        now: The time of the query, in Unix seconds.

    Raises:
        PrometheusError: Prometheus does not respond.
        StackError: Prometheus has no data for the period or for the selected runs.
    """
    options = options or ReportOptions()
    archive = Archive(prometheus, period, options.filters)
    coverage = find_coverage(archive)
    if coverage is None:
        raise StackError(_explain_emptiness(archive))
    if options.filters.runs and not options.filters.instances:
        archive.filters = replace(options.filters, instances=_find_machines(archive))
    runs = replace(find_runs(archive, options.targets), expected=find_expectations(archive))
    deaths = find_deaths(archive) if not options.filters.runs else ()
    report = Report(
        kind=period.kind,
        begin=period.begin,
        planned_end=period.planned_end,
        end=period.end,
        zone=_name_zone(period),
        utc_offset_seconds=_list_offsets(period),
        asked=now,
        source=prometheus.url,
        instances=options.filters.instances,
        only_runs=options.filters.runs,
        coverage=coverage,
        hosts=find_hosts(archive),
        runs=runs,
        accelerators=find_accelerators(archive),
        incidents=find_incidents(archive, runs, deaths),
        deaths=deaths,
        before=_look_back(archive),
        price=options.price,
    )
    gaps = tuple(dict.fromkeys(archive.gaps))
    return replace(report, gaps=gaps, advice=advise(report, archive.thresholds))


def _find_machines(archive: Archive) -> tuple[str, ...]:
    """Return the machines on which the selected runs were observed.

    Raises:
        StackError: Prometheus has no data about the selected runs in the period.
    """
    seen = archive.ask_hours(
        "machines of the selected runs",
        "group by (instance) (last_over_time(training_run_info{@run}[@hour]))",
    )
    names = tuple(sorted({each.labels.get("instance", "") for each in seen}))
    if not names:
        raise StackError(
            f"no run {' or '.join(archive.filters.runs)} was seen in this period; "
            "`trainvitals report` without --run lists those that were"
        )
    return names


def _explain_emptiness(archive: Archive) -> str:
    period, prometheus = archive.period, archive.prometheus
    if archive.gaps:
        return f"{prometheus.url}: {archive.gaps[0].why}"
    begin, end = (format_minute(period.read_clock(each)) for each in (period.begin, period.end))
    chosen = f" of {' or '.join(archive.filters.instances)}" if archive.filters.instances else ""
    return (
        f"{prometheus.url} has no data{chosen} from {begin} to {end}: it was not running, does not scrape "
        "trainvitals, or no longer keeps that time; see `trainvitals status`, or give another --date"
    )


def _look_back(archive: Archive) -> Totals | None:
    """Return the previous period's figures; None if too little of the previous period has data."""
    period = archive.period.step_back()
    before = Archive(archive.prometheus, period, archive.filters, thresholds=archive.thresholds)
    coverage = find_coverage(before) if period.end > period.begin else None
    if coverage is None or coverage.seconds < _ENOUGH_TO_COMPARE * period.seconds:
        return None
    accelerators, runs = find_accelerators(before), find_runs(before, {})
    return Totals(
        begin=period.begin,
        end=period.end,
        completed=runs.completed,
        failed=runs.failed,
        busy_ratio=accelerators.busy_ratio,
        wasted_ratio=accelerators.wasted_ratio,
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
