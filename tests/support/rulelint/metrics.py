"""The metrics that a rule may name, with their types, labels and label values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from trainvitals.sources.accelerators.reading import State
from trainvitals.sources.accelerators.xids import XIDS
from trainvitals.sources.containers.reading import Health, Status
from trainvitals.verdicts.causes.judge import REASONS
from trainvitals.verdicts.idle import REASONS as IDLE_REASONS

# Labels of every series of a target; the last two stand for any labels that a user adds.
TARGET_LABELS = frozenset({"job", "instance", "cluster", "team"})

# Labels with a fixed set of values, all of which occur in the golden scrape on some metric of the
# same subject.
CLOSED_LABELS = (
    "cause",
    "clock",
    "collector",
    "direction",
    "kind",
    "level",
    "mode",
    "phase",
    "reason",
    "resource",
    "sensor",
    "state",
    "type",
    "what",
    "where",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        type: "counter" or "gauge".
        labels: The labels of the metric and of its target.
        values: The possible values by label; a missing label can have any value.
    """

    type: str
    labels: frozenset[str] = TARGET_LABELS
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _metric(type_: str, *labels: str) -> Metric:
    return Metric(type_, TARGET_LABELS | frozenset(labels))


# Metrics of Prometheus, Alertmanager and node_exporter that the rules name.
ELSEWHERE: Mapping[str, Metric] = {
    "up": _metric("gauge"),
    "scrape_duration_seconds": _metric("gauge"),
    "scrape_samples_post_metric_relabeling": _metric("gauge"),
    "prometheus_config_last_reload_successful": _metric("gauge"),
    "prometheus_notifications_alertmanagers_discovered": _metric("gauge"),
    "prometheus_notifications_dropped_total": _metric("counter", "alertmanager"),
    "prometheus_remote_storage_highest_timestamp_in_seconds": _metric("gauge"),
    "prometheus_remote_storage_queue_highest_sent_timestamp_seconds": _metric(
        "gauge", "remote_name", "url"
    ),
    "prometheus_remote_storage_queue_highest_timestamp_seconds": _metric(
        "gauge", "remote_name", "url"
    ),
    "prometheus_rule_evaluation_failures_total": _metric("counter", "rule_group"),
    "alertmanager_config_last_reload_successful": _metric("gauge"),
    "alertmanager_notifications_failed_total": _metric("counter", "integration", "reason"),
    "alertmanager_notifications_total": _metric("counter", "integration"),
    "node_filesystem_avail_bytes": _metric("gauge", "device", "fstype", "mountpoint"),
    "node_filesystem_readonly": _metric("gauge", "device", "fstype", "mountpoint"),
    "node_filesystem_size_bytes": _metric("gauge", "device", "fstype", "mountpoint"),
    "node_memory_MemAvailable_bytes": _metric("gauge"),
    "node_memory_MemTotal_bytes": _metric("gauge"),
    "node_vmstat_oom_kill": _metric("counter"),  # untyped in node_exporter, but only increases
}


def read_metrics(pages: Iterable[str]) -> dict[str, Metric]:
    """Return the exporter's metrics by name, as read from golden pages."""
    types: dict[str, str] = {}
    labels: defaultdict[str, set[str]] = defaultdict(set)
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for family in (family for page in pages for family in text_string_to_metric_families(page)):
        for sample in family.samples:
            types[sample.name] = "counter" if family.type == "histogram" else family.type
            labels[sample.name] |= set(sample.labels)
            for label, value in sample.labels.items():
                values[_find_subject(sample.name), label].add(value)
    values["accelerator", "class"] = {xid.severity for xid in XIDS}
    values["accelerator", "state"] = set(State.__args__)  # type: ignore[attr-defined]
    values["accelerator", "action"] = {xid.action for xid in XIDS}
    values["accelerator", "reason"] |= {*IDLE_REASONS}
    values["container", "reason"] = set(REASONS)
    values["container", "state"] = set(Status.__args__)  # type: ignore[attr-defined]
    values["container", "status"] = set(Health.__args__)  # type: ignore[attr-defined]
    closed = (*CLOSED_LABELS, "class", "action", "status")
    return {
        name: Metric(
            type_,
            TARGET_LABELS | labels[name],
            {
                label: frozenset(values[_find_subject(name), label])
                for label in labels[name]
                if label in closed
            },
        )
        for name, type_ in types.items()
    }


def _find_subject(name: str) -> str:
    return name.partition("_")[0]
