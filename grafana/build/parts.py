"""What several boards have: their variables, annotations and the table of alerts."""

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

# Grafana sorts labels as texts, so a digit before a severity puts the worst first; it is not shown.
_RANKED: Final = {f"{at} {name}": colour for at, (name, colour) in enumerate(SEVERITIES.items(), 1)}
_WORDS: Final = {ranked: ranked.partition(" ")[2] for ranked in _RANKED}

# What an alert on the board of a run is about, the run first; sorted by the digit, too.
_SUBJECTS: Final = {
    "1 run": ("run", "run"),
    "2 accelerator": ("accelerator", "device"),
    "3 machine": ("machine", "instance"),
    "4 others": ("", ""),
}

# Of a table that has the worst alert of each of its rows; numbers rise with how bad it is.
FIRES: Final = tuple(
    State(number, severity, SEVERITIES[severity])
    for number, severity in enumerate(("info", "warning", "critical"), 1)
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

# A run that is started again and again would cover its own curves.
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
# HostOOMKill belongs to memory; elsewhere it only shows that a kill was important.
OOM_KILLS = Annotation(
    "OOM kills",
    "increase(host_oom_kills_total{@host}[$__rate_interval]) > 0",
    CRITICAL,
    "OOM kill",
    "The kernel killed a process for memory on {{instance}}",
)


def mark_alerts(matchers: str, *, among: str = "") -> Annotation:
    """Return the regions in which alerts fired, drawn when asked for: of those that the board is about.

    One alert that fires for hours paints every graph.

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


def find_worst_alert(matchers: str, by: str) -> str:
    """Return a query for the worst alert that fires for each set of labels `by`, as a number of `FIRES`.

    Args:
        matchers: The short name of what alerts are selected by, as `@device`.
        by: The labels of what they are about.
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
    """Return the table of alerts that fire now, the worst first, and of these the newest.

    On the board of a run, the run's own come before those of its accelerators and machines.

    Args:
        matchers: The short name of what they are selected by.
        among: What more they must be, as `and on (job, instance) training_run_info{@run}`.
        of_a_run: Whether all are about one run, whose name need not be said.
        width: In columns.
        height: In units of 30 pixels.
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
    """Return a query for a row for each severity that has more: how many, and the age of the oldest.

    The text is in a column without a link, for it names no alert whose rule could be opened.
    """
    more = f"count by (severity) ({age}) - {_MOST_ALERTS} > 0"
    return (
        f'label_replace(count_values by (severity) ("name", {more})'
        f" * on (severity) group_left () max by (severity) ({age}),"
        ' "name", "and $1 older ones", "name", "(.+)")'
    )


def _rank(expr: str) -> str:
    """Return a query for the same with a digit before each severity."""
    for ranked, word in _WORDS.items():
        expr = f'label_replace({expr}, "severity", "{ranked}", "severity", "{word}")'
    return expr


def _tell_subjects(expr: str) -> str:
    """Return a query for the same with what each is about in place of the run."""
    expr = f'label_replace({expr}, "about", "4 others", "", "")'
    for subject, (_, label) in reversed(_SUBJECTS.items()):
        if label:
            expr = f'label_replace({expr}, "about", "{subject}", "{label}", ".+")'
    return f"max without (run) ({expr})"
