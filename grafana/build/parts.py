"""Parts shared by several dashboards: variables, annotations and the table of alerts."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import RULE, Annotation, Variable, write_address
from grafana.build.palette import (
    CALM,
    CRITICAL,
    INFORMATION,
    SECONDS,
    SEVERITIES,
    UNKNOWN,
    State,
)
from grafana.build.panels import About, Panel
from grafana.build.tables import Column, Key, table

FLEET, RUN, ACCELERATORS, HOST, CONTAINERS = (
    "trainvitals-fleet",
    "trainvitals-run",
    "trainvitals-accelerators",
    "trainvitals-host",
    "trainvitals-containers",
)

# Grafana sorts labels as text, so a hidden digit before each severity sorts the most severe first.
_RANKED: Final = {f"{at} {name}": colour for at, (name, colour) in enumerate(SEVERITIES.items(), 1)}
_WORDS: Final = {ranked: ranked.partition(" ")[2] for ranked in _RANKED}

# The subjects of alerts on the run dashboard, starting with the run; also sorted by the digit.
_SUBJECTS: Final = {
    "1 run": ("run", "run"),
    "2 accelerator": ("accelerator", "device"),
    "3 machine": ("machine", "instance"),
    "4 others": ("", ""),
}

# States for the most severe alert of a table row; a higher number is more severe.
FIRES: Final = tuple(
    State(number, severity, SEVERITIES[severity])
    for number, severity in enumerate(("info", "warning", "critical"), 1)
)

# The maximum number of alerts shown for each severity.
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

# The annotations of a run that restarts repeatedly would cover its curves.
_SELDOM: Final = (
    "unless on (job, instance, run)"
    " changes(training_process_start_time_seconds{@run}[$__range] @ end()) > 10"
)
RUN_STARTS = Annotation(
    "Starts",
    f"1000 * min by (run) (training_process_start_time_seconds{{@run}} {_SELDOM})",
    INFORMATION,
    "{{run}} started",
    "",
    is_moment=True,
    is_enabled=True,
)
RUN_DEATHS = Annotation(
    "Deaths",
    "1000 * max by (run, instance, reason)"
    f' (training_process_end_timestamp_seconds{{@run, reason!="finished"}} {_SELDOM})',
    CRITICAL,
    "{{run}} died: {{reason}}",
    "on {{instance}}",
    is_moment=True,
    is_enabled=True,
)
CHECKPOINTS = Annotation(
    "Checkpoints",
    "1000 * max by (run) (training_checkpoint_last_timestamp_seconds{@run})",
    UNKNOWN,
    "{{run}} saved a checkpoint",
    "",
    is_moment=True,
)
# The alert HostOOMKill is shown on the panels on memory; elsewhere it only indicates that a kill
# was important.
OOM_KILLS = Annotation(
    "OOM kills",
    "increase(host_oom_kills_total{@host}[$__rate_interval]) > 0",
    CRITICAL,
    "OOM kill",
    "The kernel killed a process for memory on {{instance}}",
)


def mark_alerts(matchers: str, *, among: str = "") -> Annotation:
    """Return an annotation of the regions in which alerts of the dashboard's subject fired.

    The annotation is disabled by default, because an alert that fires for hours would cover every
    graph.

    Args:
        matchers: The matchers that select the alerts, beginning with a short name, such as
            `@host, component="container"`.
        among: A further condition, such as `and on (job, instance) training_run_info{@run}`.
    """
    return Annotation(
        "Alerts",
        f'ALERTS{{{matchers}, alertstate="firing", alertname!="Watchdog"}} {among}'.strip(),
        CRITICAL,
        "{{alertname}}",
        "{{severity}} on {{instance}} {{run}} {{name}} {{device}}",
    )


def find_worst_alert(matchers: str, by: str) -> str:
    """Return a query for the most severe firing alert of each label set, as a number of `FIRES`.

    Args:
        matchers: The short name of the matchers that select the alerts, such as `@device`.
        by: The labels that identify the subject of an alert.
    """
    ranked = " or ".join(
        f'{one.number} * ALERTS{{{matchers}, alertstate="firing", severity="{one.text}"}}'
        for one in FIRES
    )
    return f"topk by ({by}) (1, max by ({by}, alertname) ({ranked}))"


def list_alerts(
    matchers: str = "@host",
    *,
    among: str = "",
    of_a_run: bool = False,
    width: int = 24,
    height: int = 8,
) -> Panel:
    """Return a table of the firing alerts, sorted by severity and then from newest to oldest.

    On the run dashboard, alerts about the run come before alerts about its accelerators and
    machines.

    Args:
        matchers: The short name of the matchers that select the alerts.
        among: A further condition, such as `and on (job, instance) training_run_info{@run}`.
        of_a_run: Whether all alerts concern one run, whose name is then omitted.
        width: The width in columns.
        height: The height in units of 30 pixels.
    """
    by = "severity, alertname, instance, run, name, device"
    age = (
        f"(time() - max by ({by}) (ALERTS_FOR_STATE{{{matchers}, alertname!='Watchdog'}}"
        f" and ignoring (alertstate) ALERTS{{{matchers}, alertstate='firing'}} {among}))"
    )
    shown = _rank(f"bottomk by (severity) ({_MOST_ALERTS}, {age}) or {_count_left_out(age)}")
    subjects = {subject: word for subject, (word, _) in _SUBJECTS.items()}
    about = Key("about", "About", width=110, colours=dict.fromkeys(subjects, CALM), texts=subjects)
    run = Key("run", "Run", write_address(RUN, run="${__data.fields.Run}"), "Open the run")
    return table(
        "Firing alerts",
        About(
            "Every alert that fires now, with how long it has been true; of more than"
            f" {_MOST_ALERTS} of a severity the newest, and in a row how many others there are.",
            "empty.",
            "click the alert: its rule has the summary and the runbook, which says what to do.",
        ),
        keys=(
            *((about,) if of_a_run else ()),
            Key("severity", "Severity", width=95, colours=_RANKED, texts=_WORDS),
            Key("alertname", "Alert", RULE, "Open the rule and its runbook", width=240),
            Key(
                "instance",
                "Host",
                write_address(HOST, instance="${__data.fields.Host}"),
                "Open the host",
            ),
            *(() if of_a_run else (run,)),
            Key("name", "Container"),
            Key("device", "Device", width=70),
        ),
        columns=(
            Column(
                "For",
                _tell_subjects(shown) if of_a_run else shown,
                SECONDS,
                decimals=1,
                width=90,
            ),
        ),
        sort_by=("About", "Severity", "For") if of_a_run else ("Severity", "For"),
        is_sorted_up=True,
        empty="No alert fires",
        width=width,
        height=height,
    )


def _count_left_out(age: str) -> str:
    """Return a query for the number of omitted alerts of each severity, and the age of the oldest.

    The text is in a column without a link, because no rule can be opened for omitted alerts.
    """
    more = f"count by (severity) ({age}) - {_MOST_ALERTS} > 0"
    return (
        f'label_replace(count_values by (severity) ("name", {more})'
        f" * on (severity) group_left () max by (severity) ({age}),"
        ' "name", "and $1 older ones", "name", "(.+)")'
    )


def _rank(expr: str) -> str:
    """Return an expression with a digit before each severity."""
    for ranked, word in _WORDS.items():
        expr = f'label_replace({expr}, "severity", "{ranked}", "severity", "{word}")'
    return expr


def _tell_subjects(expr: str) -> str:
    """Return an expression in which the label `about` with the alert's subject replaces `run`."""
    expr = f'label_replace({expr}, "about", "4 others", "", "")'
    for subject, (_, label) in reversed(_SUBJECTS.items()):
        if label:
            expr = f'label_replace({expr}, "about", "{subject}", "{label}", ".+")'
    return f"max without (run) ({expr})"
