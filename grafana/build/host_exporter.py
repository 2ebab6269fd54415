"""The row of the board of hosts about the exporter itself: whether its word can be trusted."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    CORES,
    COUNT,
    CRITICAL,
    OK,
    RATIO,
    SECONDS,
    WARNING,
    State,
)
from grafana.build.panels import (
    About,
    Column,
    Key,
    Panel,
    stat,
    state_timeline,
    table,
    timeseries,
)
from grafana.build.queries import name_series, now, over_time

_GONE: Final = "The host does not answer"
_EXPORTER: Final = "last_over_time(trainvitals_build_info{@host}[$__range] @ end())"


def write_exporter() -> Row:
    """Give the row of the exporter."""
    panels = (
        _show_up(),
        _count_unreadable(),
        _show_collectors(),
        _draw_success(),
        _draw_age(),
        _list_failures(),
        _draw_scrape(),
        _draw_durations(),
        _draw_samples(),
        _draw_cpu(),
        _draw_memory(),
        _draw_files(),
    )
    return Row("Exporter", panels, is_collapsed=True)


def _of_the_exporter(expr: str) -> str:
    """Keep what is of this exporter: other programs of the machine may have the same instance."""
    return f"({expr}) and on (job, instance) {_EXPORTER}"


def _show_up() -> Panel:
    return state_timeline(
        "Answers Prometheus",
        About(
            "Whether Prometheus could read this machine's exporter, and what else it reads there.",
            "yes, without gaps.",
            "try to reach the machine; if it lives, see there whether the exporter runs.",
            alerts=("ExporterDown",),
        ),
        over_time("up{@host}", "{{job}}"),
        states=(State(1, "yes", OK), State(0, "no", CRITICAL)),
        empty="Prometheus does not know this machine",
        width=18,
        height=4,
    )


def _count_unreadable() -> Panel:
    return stat(
        "Run files it cannot read",
        About(
            "Files in this machine's run directory that are damaged, of another version or no run "
            "files.",
            "0.",
            "the run that wrote such a file is on no board: bring client and exporter to the same "
            "version, and remove what is no run file.",
            alerts=("TrainingClientIncompatible",),
        ),
        now("max(training_client_incompatible_files{@host})"),
        steps=((None, OK), (1, WARNING)),
        empty="No run directory is read",
        width=6,
    )


def _show_collectors() -> Panel:
    return state_timeline(
        "Collectors",
        About(
            "Whether each collector's reading was whole.",
            "whole.",
            "the table says why it is not; what is missing raises no alert.",
            alerts=("ExporterCollectorFailed",),
        ),
        over_time("trainvitals_collector_success{@host}", "{{collector}}"),
        states=(State(1, "whole", OK), State(0, "not whole", WARNING)),
        empty=_GONE,
        width=12,
        height=10,
    )


def _draw_success() -> Panel:
    return timeseries(
        "Whole readings, 10 min",
        About(
            "Share of readings that were whole, of the ten collectors that fail most.",
            "100 %.",
            "below the line the collector is no longer a source: see its reason in the table.",
            alerts=("ExporterCollectorFailed",),
        ),
        over_time(
            "bottomk(10, avg_over_time(trainvitals_collector_success{@host}[10m]))",
            "{{collector}}",
        ),
        unit=RATIO,
        steps=((None, OK), (limit("exporter_collector_failed:success_ratio"), WARNING)),
        least=0,
        most=1,
        calcs=("lastNotNull", "min"),
        empty=_GONE,
        width=12,
        height=10,
    )


def _draw_age() -> Panel:
    return timeseries(
        "Age of the last whole reading",
        About(
            "How long ago each collector last brought a whole reading, the ten oldest.",
            "seconds.",
            "above the line nothing is known any more of what it reads: see its reason in the table.",
            alerts=("ExporterDataStale",),
        ),
        over_time(
            """
            topk(10, host_time_seconds{@host} - on (job, instance) group_right ()
              trainvitals_collector_last_success_timestamp_seconds{@host})
            """,
            "{{collector}}",
        ),
        unit=SECONDS,
        steps=((None, OK), (limit("exporter_data_stale:window_seconds"), WARNING)),
        least=0,
        empty=_GONE,
        width=12,
        height=10,
    )


def _list_failures() -> Panel:
    return table(
        "Why readings are not whole",
        About(
            "Each collector with the reason that it gives, what was not waited for in 24 hours, and "
            "what its bounds leave out.",
            "no reason, 0 and 0.",
            "do what the reason says; what is left out is the exporter's protection of Prometheus.",
        ),
        keys=(Key("collector", "Collector", width=110), Key("reason", "Reason")),
        columns=(
            Column(
                "Whole",
                "max by (collector) (trainvitals_collector_success{@host})",
                states=(State(1, "yes", OK), State(0, "no", WARNING)),
                look="color-text",
                width=70,
            ),
            Column(
                "Fails",
                "max by (collector, reason) (trainvitals_collector_failure_info{@host})",
                states=(State(1, "now", WARNING),),
                look="color-text",
                width=70,
            ),
            Column(
                "Not waited for, 24 h",
                "sum by (collector) (increase(trainvitals_collector_timeouts_total{@host}[24h]))",
                decimals=0,
                width=140,
            ),
            Column(
                "Left out",
                "max by (collector) (trainvitals_collector_omitted_labels{@host})",
                decimals=0,
                width=80,
            ),
        ),
        sort_by="Fails",
        empty=_GONE,
        width=12,
        height=10,
    )


def _draw_scrape() -> Panel:
    return timeseries(
        "Time of a scrape",
        About(
            "How long Prometheus waits for the whole page.",
            "some hundredths of a second.",
            "see beside it which collector takes so long, and whether the machine is overloaded.",
            alerts=("ExporterScrapeSlow",),
        ),
        over_time(_of_the_exporter("scrape_duration_seconds{@host}"), "scrape"),
        unit=SECONDS,
        steps=((None, OK), (limit("exporter_scrape_slow:duration_seconds"), WARNING)),
        least=0,
        empty="Prometheus does not know this machine",
    )


def _draw_durations() -> Panel:
    return timeseries(
        "Time of the collectors",
        About(
            "How long each collector's latest reading took, the ten slowest.",
            "milliseconds.",
            "one that takes much longer than before waits for a driver, an engine or a file server.",
        ),
        over_time(
            "topk(10, trainvitals_collector_duration_seconds{@host})",
            "{{collector}}",
        ),
        unit=SECONDS,
        least=0,
        empty=_GONE,
    )


def _draw_samples() -> Panel:
    return timeseries(
        "Series",
        About(
            "How many samples each scrape brings.",
            "700 to 2,000 for a machine with accelerators, runs and containers.",
            "see what has grown; at the sample_limit of prometheus.yml the whole page is refused.",
            alerts=("ExporterCardinalityHigh",),
        ),
        over_time(_of_the_exporter("scrape_samples_post_metric_relabeling{@host}"), "samples"),
        unit=COUNT,
        steps=((None, OK), (limit("exporter_cardinality_high:samples"), WARNING)),
        least=0,
        empty="Prometheus does not know this machine",
    )


def _draw_cpu() -> Panel:
    return timeseries(
        "CPU of the exporter",
        About(
            "Cores that the exporter and its driver readers use.",
            "below a hundredth of a core.",
            "report it, with the time of the collectors.",
        ),
        over_time(
            _of_the_exporter("rate(process_cpu_seconds_total{@host}[$__rate_interval])"), "cores"
        ),
        unit=CORES,
        least=0,
        empty=_GONE,
    )


def _draw_memory() -> Panel:
    return timeseries(
        "Memory of the exporter",
        About(
            "Memory that the exporter and its driver readers hold.",
            "some tens of MB, flat.",
            "report what grows without end.",
        ),
        over_time(_of_the_exporter("process_resident_memory_bytes{@host}"), "resident"),
        unit=BYTES,
        least=0,
        empty=_GONE,
    )


def _draw_files() -> Panel:
    counts = {
        "files open": _of_the_exporter("process_open_fds{@host}"),
        "threads": _of_the_exporter("process_threads{@host}"),
    }
    return timeseries(
        "Files and threads of the exporter",
        About(
            "File descriptors that it has open, and threads that it has.",
            "flat.",
            "report what grows without end.",
        ),
        over_time(name_series("what", counts), "{{what}}"),
        unit=COUNT,
        least=0,
        empty=_GONE,
    )
