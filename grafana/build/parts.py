"""What several boards have: their variables, annotations and the table of alerts."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Annotation, Variable, write_address
from grafana.build.palette import CRITICAL, INFORMATION, SECONDS, SEVERITIES, UNKNOWN
from grafana.build.panels import About, Column, Key, Panel, table

FLEET, RUN, ACCELERATORS, HOST, CONTAINERS = (
    "trainvitals-fleet",
    "trainvitals-run",
    "trainvitals-accelerators",
    "trainvitals-host",
    "trainvitals-containers",
)

# Of each severity: as many as anybody reads.
_MOST_ALERTS: Final = 50

JOB = Variable(
    "job",
    "Job",
    "label_values(trainvitals_build_info, job)",
    "The group of targets in prometheus.yml",
    is_multiple=True,
)
HOSTS = Variable(
    "instance",
    "Host",
    'label_values(trainvitals_build_info{job=~"$job"}, instance)',
    "Machines, by the address that Prometheus scrapes",
    is_multiple=True,
)
ONE_HOST = Variable(
    "instance",
    "Host",
    'label_values(trainvitals_build_info{job=~"$job"}, instance)',
    "One machine, by the address that Prometheus scrapes",
)

RUN_STARTS = Annotation(
    "Starts",
    "1000 * min by (run) (training_process_start_time_seconds{@run})",
    INFORMATION,
    "{{run}} started",
    "",
    is_moment=True,
)
RUN_DEATHS = Annotation(
    "Deaths",
    "1000 * max by (run, instance, reason)"
    ' (training_process_end_timestamp_seconds{@run, reason!="finished"})',
    CRITICAL,
    "{{run}} died: {{reason}}",
    "on {{instance}}",
    is_moment=True,
)
CHECKPOINTS = Annotation(
    "Checkpoints",
    "1000 * max by (run) (training_checkpoint_last_timestamp_seconds{@run})",
    UNKNOWN,
    "{{run}} saved a checkpoint",
    "",
    is_moment=True,
    is_enabled=False,
)
# Where memory is not the question, HostOOMKill tells of a kill that matters.
OOM_KILLS = Annotation(
    "OOM kills",
    "increase(host_oom_kills_total{@host}[$__rate_interval]) > 0",
    CRITICAL,
    "OOM kill",
    "The kernel killed a process for memory on {{instance}}",
    is_enabled=False,
)


def mark_alerts(matchers: str, *, among: str = "") -> Annotation:
    """Make the regions in which alerts fired: only of those that the board is about.

    Args:
        matchers: What they are selected by, a short name first, as `@host, component="container"`.
        among: What more they must be, as `and on (job, instance) training_run_info{@run}`.
    """
    return Annotation(
        "Alerts",
        f'ALERTS{{{matchers}, alertstate="firing", alertname!="Watchdog"}} {among}'.strip(),
        CRITICAL,
        "{{alertname}}",
        "{{severity}} on {{instance}} {{run}} {{name}} {{device}}",
    )


def list_alerts(
    matchers: str = "@host", *, among: str = "", width: int = 24, height: int = 7
) -> Panel:
    """Make the table of alerts that fire now, the most urgent first.

    Args:
        matchers: The short name of what they are selected by.
        among: What more they must be, as `and on (job, instance) training_run_info{@run}`.
        width: In columns.
        height: In units of 30 pixels.
    """
    by = "severity, alertname, instance, run, name, device"
    age = (
        f"(time() - max by ({by}) (ALERTS_FOR_STATE{{{matchers}, alertname!='Watchdog'}}"
        f" and ignoring (alertstate) ALERTS{{{matchers}, alertstate='firing'}} {among}))"
    )
    return table(
        "Firing alerts",
        About(
            "Every alert that fires now, with how long it has been true; of more than"
            f" {_MOST_ALERTS} of a severity the newest, and in a row how many others there are.",
            "empty.",
            "the alert's runbook says what it means and what to do: `/runbooks/` of the exporter.",
        ),
        keys=(
            Key("severity", "Severity", width=80, colours=SEVERITIES),
            Key("alertname", "Alert", width=210),
            Key(
                "instance",
                "Host",
                write_address(HOST, instance="${__data.fields.Host}"),
                "Open the host",
            ),
            Key("run", "Run", write_address(RUN, run="${__data.fields.Run}"), "Open the run"),
            Key("name", "Container"),
            Key("device", "Device", width=70),
        ),
        columns=(
            Column(
                "For",
                f"bottomk by (severity) ({_MOST_ALERTS}, {age}) or {_count_left_out(age)}",
                SECONDS,
                decimals=1,
                width=90,
            ),
        ),
        sort_by="Severity",  # by the alphabet, critical comes first
        is_sorted_up=True,
        empty="No alert fires",
        width=width,
        height=height,
    )


def _count_left_out(age: str) -> str:
    """Write a query for a row for each severity that has more: how many, and the age of the oldest."""
    more = f"count by (severity) ({age}) - {_MOST_ALERTS} > 0"
    return (
        f'label_replace(count_values by (severity) ("alertname", {more})'
        f" * on (severity) group_left () max by (severity) ({age}),"
        ' "alertname", "and $1 older ones", "alertname", "(.+)")'
    )
