"""The row of the home dashboard on the monitoring: targets, scrapes, rules, notifications.

The metrics of Prometheus and Alertmanager have no labels for the monitored machines, so these
metrics are not filtered by machine.
"""

from __future__ import annotations

from grafana.build.layout import Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import CRITICAL, OK, RATIO, SECONDS, WARNING, State
from grafana.build.panels import (
    About,
    Panel,
    colour_series,
    state_timeline,
    timeseries,
)
from grafana.build.parts import HOST
from grafana.build.queries import find_rise, over_time
from grafana.build.tables import Column, Key, table

_VANISHED, _DOWN = State(1, "gone", WARNING), State(2, "down", CRITICAL)
_REFUSED, _LOADED = State(0, "refused", WARNING), State(1, "loaded", OK)
_TWICE, _MISSING = State(2, "there twice", CRITICAL), State(3, "missing", CRITICAL)


def write_pipeline() -> Row:
    """Return the row, which is collapsed by default."""
    return Row(
        "Pipeline: scrapes, rules, messages",
        (
            _list_absent_targets(),
            _list_failing_collectors(),
            *_show_scrapes(),
            *_show_rules(),
            _show_handover(),
            _show_messages(),
            _show_reloads(),
            _show_remote_write(),
        ),
        is_collapsed=True,
    )


def _list_absent_targets() -> Panel:
    vanished = "last_over_time(up{@host}[1h]) == 1 unless on (job, instance) up{@host}"
    return table(
        "Targets that are not heard",
        About(
            "Targets that do not answer, and targets of the last hour that are no longer configured.",
            "empty.",
            "down: is the machine there, does the exporter run? All of a job: the network, or Prometheus'"
            " own machine. Gone: look at `prometheus/targets`.",
            alerts=("TargetVanished", "ExporterJobDown"),
        ),
        keys=(
            Key("job", "Job"),
            Key(
                "instance",
                "Target",
                write_address(HOST, instance="${__data.fields.Target}"),
                "Open the host",
            ),
        ),
        columns=(
            Column(
                "State",
                f"{_DOWN.number} + max by (job, instance) (up{{@host}} == 0)"
                f" or {_VANISHED.number} * max by (job, instance) ({vanished})",
                look="color-text",
                states=(_DOWN, _VANISHED),
            ),
        ),
        sort_by="State",
        empty="All are heard",
        width=8,
    )


def _list_failing_collectors() -> Panel:
    on = "on (job, instance, collector)"
    return table(
        "Collectors that fail",
        About(
            "Collectors whose latest reading is incomplete, with the reason.",
            "empty; a lost device or a dead file server keeps its collector here.",
            "what they collect is missing on every board, and its alerts are silent: see to the reason.",
        ),
        keys=(
            Key(
                "instance",
                "Host",
                write_address(HOST, instance="${__data.fields.Host}"),
                "Open the host",
            ),
            Key("collector", "Collector"),
            Key("reason", "Reason"),
        ),
        columns=(
            Column(
                "Whole, 10 min",
                "topk(50, min by (instance, collector, reason) ("
                f"trainvitals_collector_failure_info{{@host}} * {on} group_left ()"
                " avg_over_time(trainvitals_collector_success{@host}[10m])))",
                RATIO,
                steps=(
                    (None, WARNING),
                    (limit("exporter_collector_failed:success_ratio"), OK),
                ),
                look="color-text",
                decimals=0,
            ),
        ),
        empty="All readings are whole",
        width=16,
    )


def _show_scrapes() -> tuple[Panel, Panel]:
    return (
        timeseries(
            "How long scrapes take",
            About(
                "How long it takes to scrape a target: the ten slowest.",
                "milliseconds.",
                "see on the Host board which collector takes so long.",
            ),
            over_time("topk(10, scrape_duration_seconds{@host})", "{{job}} {{instance}}"),
            unit=SECONDS,
            steps=((None, OK), (limit("exporter_scrape_slow:duration_seconds"), WARNING)),
            least=0,
            width=12,
            empty="Nothing is scraped",
        ),
        timeseries(
            "Samples of a scrape",
            About(
                "How many samples a target serves: the ten with the most.",
                "hundreds to some thousands, level.",
                "see what has grown before the sample_limit of prometheus.yml refuses the whole scrape.",
            ),
            over_time(
                "topk(10, scrape_samples_post_metric_relabeling{@host})", "{{job}} {{instance}}"
            ),
            steps=((None, OK), (limit("exporter_cardinality_high:samples"), WARNING)),
            least=0,
            width=12,
            empty="Nothing is scraped",
        ),
    )


def _show_rules() -> tuple[Panel, Panel]:
    name = 'label_replace(%s, "group", "$1", "rule_group", ".*;(.+)")'
    failures = find_rise("prometheus_rule_evaluation_failures_total{}")
    lag = (
        "prometheus_rule_group_last_duration_seconds{}"
        " / (prometheus_rule_group_interval_seconds{} > 0)"
    )
    return (
        timeseries(
            "Rules that fail",
            About(
                "Evaluations of rules that failed, by group.",
                "0.",
                "the alerts of that group are blind: `trainvitals status` names the rule and its error.",
                alerts=("PrometheusRuleFailures",),
            ),
            over_time(f"sum by (group) ({name % failures}) > 0", "{{group}}"),
            steps=((None, OK), (1, CRITICAL)),
            least=0,
            is_bars=True,
            empty="No rule failed in this time range",
        ),
        timeseries(
            "Time that rules take",
            About(
                "Share of its interval that a group of rules takes to evaluate.",
                "a few percent.",
                "at 100 % evaluations are skipped, and alerts come late: assign Prometheus more CPU.",
            ),
            over_time(f"max by (group) ({name % lag})", "{{group}}"),
            unit=RATIO,
            least=0,
            most=1,
            is_open=True,
            empty="Prometheus does not scrape itself",
        ),
    )


def _show_handover() -> Panel:
    dropped = "increase(prometheus_notifications_dropped_total{}[$__rate_interval])"
    return timeseries(
        "Handed to Alertmanager",
        About(
            "Alertmanagers that Prometheus knows, and alerts that none of them took.",
            "at least one, and nothing dropped.",
            "see that Alertmanager runs and is named in `prometheus/targets`.",
            alerts=("PrometheusNotConnectedToAlertmanager",),
        ),
        over_time("prometheus_notifications_alertmanagers_discovered{}", "known to {{instance}}"),
        over_time(f"min without (alertmanager) ({dropped})", "dropped by {{instance}}"),
        least=0,
        overrides=(colour_series("^dropped", CRITICAL),),
        empty="Prometheus does not scrape itself",
    )


def _show_messages() -> Panel:
    tried = "sum by (integration) (increase(alertmanager_notifications_total{}[$__rate_interval]))"
    failed = tried.replace("notifications_total", "notifications_failed_total")
    return timeseries(
        "Messages that fail",
        About(
            "Share of the messages that were not delivered, by channel.",
            "0.",
            "check its address or token in `.env`, then `trainvitals notify --test`.",
            alerts=("AlertmanagerNotificationsFailing",),
        ),
        over_time(f"{failed} / ({tried} > 0)", "{{integration}}"),
        unit=RATIO,
        steps=(
            (None, OK),
            (limit("alertmanager_notifications_failing:failed_ratio"), CRITICAL),
        ),
        least=0,
        most=1,
        empty="No message was sent in this time range",
    )


def _show_reloads() -> Panel:
    every = '{__name__=~"threshold:.+"}'
    thresholds = (
        f"{_TWICE.number} + 0 * count(count by (__name__) ({every}) > 1)"
        f" or {_MISSING.number} * max(absent({every}))"
        f" or {_LOADED.number} + 0 * max(threshold:high_memory_usage:ratio{{}})"
    )
    return state_timeline(
        "Configuration",
        About(
            "Whether the latest configuration was loaded or refused, and whether each number that"
            " alerts compare with exists exactly once: otherwise no alert can fire.",
            "loaded.",
            "refused: the old one is in force, and `promtool check config` or `amtool check-config`"
            " names the error. Thresholds: load `prometheus/rules/thresholds.yml` once.",
            alerts=("ConfigReloadFailed", "ThresholdsMissing"),
        ),
        over_time(
            "bottomk(5, prometheus_config_last_reload_successful{})", "Prometheus {{instance}}"
        ),
        over_time(
            "bottomk(5, alertmanager_config_last_reload_successful{})", "Alertmanager {{instance}}"
        ),
        over_time(thresholds, "thresholds"),
        states=(_MISSING, _TWICE, _REFUSED, _LOADED),
        empty="Neither is scraped",
        width=8,
        height=8,
    )


def _show_remote_write() -> Panel:
    # The timestamp is 0 until the first batch has been sent; until then, the delay is counted from
    # the start of Prometheus.
    highest = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds{}"
    begun = f"({highest} == 0) + on (job, instance) group_left () process_start_time_seconds{{}}"
    sent = f"({highest} > 0 or {begun})"
    return timeseries(
        "Remote write is behind",
        About(
            "How old the newest sample is that each remote has; of one that has none, how long"
            " Prometheus has run.",
            "seconds.",
            "what is older than about 2 hours is lost: see that the remote answers.",
            alerts=("RemoteWriteBehind",),
        ),
        over_time(
            f"prometheus_remote_storage_queue_highest_timestamp_seconds{{}} - {sent}"
            " or prometheus_remote_storage_highest_timestamp_in_seconds{}"
            f" - ignoring (remote_name, url) group_right () {sent}",
            "{{url}}",
        ),
        unit=SECONDS,
        steps=((None, OK), (limit("remote_write_behind:lag_seconds"), WARNING)),
        least=0,
        empty="No remote is written to",
    )
