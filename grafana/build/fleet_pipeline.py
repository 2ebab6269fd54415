"""The row of the home board about the monitoring itself: targets, scrapes, rules, messages.

Prometheus' and Alertmanager's own metrics know no machine of ours, so they are asked for all.
"""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import CRITICAL, OK, RATIO, SECONDS, UNKNOWN, WARNING, State
from grafana.build.panels import (
    About,
    Column,
    Key,
    Panel,
    colour_series,
    dash_series,
    stat,
    state_timeline,
    table,
    timeseries,
)
from grafana.build.parts import HOST
from grafana.build.queries import now, over_time

_DOWN, _VANISHED = State(1, "down", CRITICAL), State(2, "gone", WARNING)
_RELOADS: Final = (State(1, "loaded", OK), State(0, "refused", WARNING))


def write_pipeline() -> Row:
    """Make the row; it is closed until somebody doubts the rest."""
    return Row(
        "Pipeline: scrapes, rules, messages",
        (
            _list_absent_targets(),
            _count_targets(),
            _list_failing_collectors(),
            *_show_scrapes(),
            _count_thresholds(),
            *_show_rules(),
            _show_handover(),
            *_show_messages(),
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
            "What Prometheus scrapes in vain, and what it scraped within the last hour and no longer knows.",
            "empty.",
            "down: is the machine there, does the exporter run? Gone: look at `prometheus/targets`.",
            alerts=("TargetVanished",),
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
                look="color-background",
                states=(_DOWN, _VANISHED),
            ),
        ),
        sort_by="State",
        empty="All are heard",
        width=8,
    )


def _count_targets() -> Panel:
    return timeseries(
        "Targets that answer, by job",
        About(
            "How many targets of a job answer; dashed, how many there are.",
            "both the same.",
            "none of several: the network or Prometheus' own machine rather than all at once.",
            alerts=("ExporterJobDown",),
        ),
        over_time("sum by (job) (up{@host})", "{{job}} answer"),
        over_time("count by (job) (up{@host})", "{{job}} in all"),
        least=0,
        overrides=(dash_series("in all$", UNKNOWN),),
        empty="Prometheus has no targets",
    )


def _list_failing_collectors() -> Panel:
    on = "on (job, instance, collector)"
    return table(
        "Collectors that fail",
        About(
            "Collectors whose latest reading is not whole, with the reason that they give.",
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
        width=8,
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
            empty="Nothing is scraped",
        ),
    )


def _count_thresholds() -> Panel:
    every = '{__name__=~"threshold:.+"}'
    return stat(
        "Thresholds",
        About(
            "Whether each number that alerts compare with is there, and once only: of none or two no alert can fire.",
            "once.",
            "load `prometheus/rules/thresholds.yml` once, beside the other rules.",
            alerts=("ThresholdsMissing",),
        ),
        now(
            f"count(count by (__name__) ({every}) > 1)"
            " or 0 * max(threshold:high_memory_usage:ratio{})"
            f" or -1 * max(absent({every}))"
        ),
        steps=((None, OK), (1, CRITICAL)),
        states=(State(0, "once", OK), State(-1, "missing", CRITICAL)),
        empty="Prometheus does not answer",
        width=8,
        height=8,
    )


def _show_rules() -> tuple[Panel, Panel]:
    name = 'label_replace(%s, "group", "$1", "rule_group", ".*;(.+)")'
    failures = "increase(prometheus_rule_evaluation_failures_total{}[$__rate_interval])"
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
            over_time(f"sum by (group) ({name % failures})", "{{group}}"),
            steps=((None, OK), (1, CRITICAL)),
            least=0,
            is_bars=True,
            calcs=("sum",),
            empty="Prometheus does not scrape itself",
        ),
        timeseries(
            "Time that rules take",
            About(
                "Share of its interval that a group of rules takes to evaluate.",
                "a few percent.",
                "at 100 % evaluations are left out, and alerts come late: give Prometheus more CPU.",
            ),
            over_time(f"max by (group) ({name % lag})", "{{group}}"),
            unit=RATIO,
            least=0,
            most=1,
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


def _show_messages() -> tuple[Panel, Panel]:
    sent = "sum by (integration) (increase(alertmanager_notifications_total{}[$__rate_interval]))"
    failed = sent.replace("notifications_total", "notifications_failed_total")
    return (
        timeseries(
            "Messages sent",
            About(
                "Messages that Alertmanager tried to send, by channel.",
                "few.",
                "many are noise: mend or silence what fires most.",
            ),
            over_time(f"{sent} > 0", "{{integration}}"),
            least=0,
            is_bars=True,
            calcs=("sum",),
            width=12,
            empty="No message was sent in this time range",
        ),
        timeseries(
            "Messages that fail",
            About(
                "Share of the messages that were not delivered, by channel.",
                "0.",
                "check its address or token in `.env`, then `trainvitals notify --test`.",
                alerts=("AlertmanagerNotificationsFailing",),
            ),
            over_time(f"{failed} / ({sent} > 0)", "{{integration}}"),
            unit=RATIO,
            steps=(
                (None, OK),
                (limit("alertmanager_notifications_failing:failed_ratio"), CRITICAL),
            ),
            least=0,
            most=1,
            width=12,
            empty="No message was sent in this time range",
        ),
    )


def _show_reloads() -> Panel:
    return state_timeline(
        "Configuration",
        About(
            "Whether the latest configuration was loaded or refused.",
            "loaded.",
            "the old one is in force: `promtool check config` or `amtool check-config` names the error.",
            alerts=("ConfigReloadFailed",),
        ),
        over_time("prometheus_config_last_reload_successful{}", "Prometheus {{instance}}"),
        over_time("alertmanager_config_last_reload_successful{}", "Alertmanager {{instance}}"),
        states=_RELOADS,
        empty="Neither is scraped",
        width=12,
    )


def _show_remote_write() -> Panel:
    sent = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds{}"
    return timeseries(
        "Remote write is behind",
        About(
            "How old the newest sample is that each remote has.",
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
        empty="No remote, or none that ever took a sample",
        width=12,
        height=6,
    )
