"""The row of the host dashboard on the exporter: whether the exporter's readings are reliable."""

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
from grafana.build.panels import About, Panel, put_right, stat, state_timeline, timeseries
from grafana.build.queries import now, over_time
from grafana.build.tables import Column, Key, table

_GONE: Final = "The host does not answer"
_EXPORTER: Final = "last_over_time(trainvitals_build_info{@host}[$__range] @ end())"


def write_exporter() -> Row:
    """Return the row on the exporter."""
    panels = (
        _show_up(),
        _count_unreadable(),
        _count_omitted(),
        _show_collectors(),
        _draw_durations(),
        _list_collectors(),
        _draw_samples(),
        _draw_cost(),
    )
    return Row("Exporter", panels, is_collapsed=True)


def _of_the_exporter(expr: str) -> str:
    """Return a query limited to this exporter; other programs may have the same instance label."""
    return f"({expr}) and on (job, instance) {_EXPORTER}"


def _show_up() -> Panel:
    return state_timeline(
        "Answers Prometheus",
        About(
            "Whether Prometheus could read this machine's exporter, and what else it reads there.",
            "yes, without gaps.",
            "try to reach the machine; if it answers, check whether the exporter runs there.",
            alerts=("ExporterDown",),
        ),
        over_time("bottomk(5, up{@host})", "{{job}}"),
        states=(State(1, "yes", OK), State(0, "no", CRITICAL)),
        empty="Prometheus does not know this machine",
        width=12,
        height=5,
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
        height=5,
    )


def _count_omitted() -> Panel:
    return stat(
        "Living ranks it leaves out",
        About(
            "Running ranks of this machine that are on no board, because there are too many.",
            "0.",
            "see whose they are in the run directory, and say with `--run-dir.users` who counts.",
            alerts=("TrainingRanksOmitted",),
        ),
        now("max(training_ranks_omitted{@host})"),
        steps=((None, OK), (1, WARNING)),
        empty="No run directory is read",
        width=6,
        height=5,
    )


def _show_collectors() -> Panel:
    return state_timeline(
        "Collectors",
        About(
            "Whether each collector's reading was whole.",
            "whole.",
            "the table has the reason; what is missing raises no alert.",
            alerts=("ExporterCollectorFailed",),
        ),
        over_time("bottomk(17, trainvitals_collector_success{@host})", "{{collector}}"),
        states=(State(1, "whole", OK), State(0, "not whole", WARNING)),
        empty=_GONE,
        width=12,
        height=10,
    )


def _draw_durations() -> Panel:
    return timeseries(
        "Time of a scrape",
        About(
            "How long Prometheus waits for the whole page, and how long the latest reading of each "
            "collector took, the ten slowest.",
            "some hundredths of a second, and milliseconds.",
            "one that takes much longer than before waits for a driver, an engine or a file server; all "
            "of them, the machine is overloaded.",
            alerts=("ExporterScrapeSlow",),
        ),
        over_time(_of_the_exporter("scrape_duration_seconds{@host}"), "scrape"),
        over_time("topk(10, trainvitals_collector_duration_seconds{@host})", "{{collector}}"),
        unit=SECONDS,
        steps=((None, OK), (limit("exporter_scrape_slow:duration_seconds"), WARNING)),
        least=0,
        empty="Prometheus does not know this machine",
        width=12,
        height=10,
    )


def _list_collectors() -> Panel:
    whole = "avg_over_time(trainvitals_collector_success{@host}[10m])"
    read = "trainvitals_collector_last_success_timestamp_seconds{@host}"
    return table(
        "Why readings are not whole",
        About(
            "Each collector with the reason of its failure, the share of its readings that were whole "
            "in 10 minutes and the age of the last, its timeouts in 24 hours, and what its bounds "
            "leave out.",
            "no reason, 100 %, seconds, 0 and 0.",
            "remove the reason; values are left out to protect Prometheus.",
            alerts=("ExporterCollectorFailed", "ExporterDataStale"),
        ),
        keys=(Key("collector", "Collector", width=110), Key("reason", "Reason")),
        columns=(
            Column(
                "Fails",
                "max by (collector, reason) (trainvitals_collector_failure_info{@host})",
                states=(State(1, "now", WARNING),),
                look="color-text",
                width=70,
            ),
            Column(
                "Whole, 10 min",
                f"min by (collector) ({whole})",
                RATIO,
                ((None, WARNING), (limit("exporter_collector_failed:success_ratio"), OK)),
                "color-text",
                decimals=0,
                width=120,
            ),
            Column(
                "Last whole",
                f"max by (collector) (host_time_seconds{{@host}} - on (job, instance)"
                f" group_right () {read})",
                SECONDS,
                ((None, OK), (limit("exporter_data_stale:window_seconds"), WARNING)),
                "color-text",
                decimals=0,
                width=100,
            ),
            Column(
                "Not waited for, 24 h",
                "sum by (collector) (increase(trainvitals_collector_timeouts_total{@host}[24h]))",
                decimals=0,
                width=160,
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
        height=10,
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
        width=12,
    )


def _draw_cost() -> Panel:
    return timeseries(
        "Cost of the exporter",
        About(
            "Cores that the exporter and its driver readers use, and on the right their memory.",
            "below a hundredth of a core, and some tens of MB, flat.",
            "report it, with the time of the collectors.",
        ),
        over_time(
            _of_the_exporter("rate(process_cpu_seconds_total{@host}[$__rate_interval])"), "CPU"
        ),
        over_time(_of_the_exporter("process_resident_memory_bytes{@host}"), "memory"),
        unit=CORES,
        least=0,
        overrides=(put_right("memory", BYTES),),
        empty=_GONE,
        width=12,
    )
