"""The dashboard of a training run: its health, its time losses and its learning progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.layout import Annotation, Board, Variable
from grafana.build.palette import WARNING
from grafana.build.parts import (
    CHECKPOINTS,
    JOB,
    OOM_KILLS,
    RUN,
    RUN_DEATHS,
    RUN_STARTS,
    mark_alerts,
)
from grafana.build.run_devices import write_devices
from grafana.build.run_ends import write_ends
from grafana.build.run_errors import write_client, write_errors
from grafana.build.run_hosts import write_hosts
from grafana.build.run_learning import write_learning
from grafana.build.run_now import OF_THIS_RUN, write_now
from grafana.build.run_pace import write_pace
from grafana.build.run_ranks import write_ranks
from grafana.build.run_selection import on_hosts
from grafana.build.run_time import write_time
from grafana.build.run_why import write_why

_HOSTS: Final = Variable(
    "instance",
    "Host",
    'label_values(training_run_info{job=~"$job"}, instance)',
    "Machines on which a run was in this time range",
    is_multiple=True,
)
# A run known only from its logs has no start time; its first progress in this range is used
# instead.
_RUN: Final = Variable(
    "run",
    "Run",
    "query_result(sort_desc("
    "max by (run) (max_over_time(training_process_start_time_seconds{@host}[$__range]))"
    " or max by (run) (min_over_time(training_last_progress_timestamp_seconds{@host}[$__range]))))",
    "One run, the newest first; a run that ended stays while this time range has it",
    regex='/run="([^`]*)"\\} /',  # a backtick cannot be quoted, see queries.py
    sort=0,
)
_RANK: Final = Variable(
    "rank",
    "Rank",
    "label_values(training_rank_info{@run}, rank)",
    "Processes of the run, by their number",
    is_multiple=True,
)
_METRIC: Final = Variable(
    "metric",
    "Metric",
    "label_values(training_metric{@run}, name)",
    "Metrics that the run logs, for their graph",
    is_multiple=True,
)
_TARGET: Final = Variable(
    "target",
    "Target",
    "",
    "A number that a metric should reach, drawn as a line beside the metrics; empty for none",
)
# Alerts that may explain problems of the run; most of these alerts are unrelated to the run.
_ALERTS_AROUND: Final[Annotation] = replace(
    mark_alerts('@host, run=""', among=OF_THIS_RUN),
    name="Alerts of its machines",
    colour=WARNING,
)
_OOM_KILLS: Final[Annotation] = replace(OOM_KILLS, expr=on_hosts(OOM_KILLS.expr))


def build() -> Board:
    """Return the dashboard of a training run."""
    return Board(
        RUN,
        "Vitals / Training run",
        "Is this run well, what does it lose time to, and does it learn?",
        (JOB, _HOSTS, _RUN, _RANK, _METRIC, _TARGET),
        (mark_alerts("@run"), _ALERTS_AROUND, RUN_STARTS, RUN_DEATHS, CHECKPOINTS, _OOM_KILLS),
        (
            write_now(),
            write_why(),
            write_learning(),
            write_time(),
            write_pace(),
            write_devices(),
            write_hosts(),
            write_ranks(),
            write_ends(),
            write_errors(),
            write_client(),
        ),
        since="now-6h",
    )
