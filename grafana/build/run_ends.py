"""The exits of a run's ranks, the restarts of the run, and its checkpoints."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import OK, SECONDS, SINCE, WARNING, WHOLE
from grafana.build.panels import About, Panel, dash_series, timeseries
from grafana.build.queries import over_time
from grafana.build.run_ranks import ON_HOST
from grafana.build.run_verdict import RANK
from grafana.build.tables import Column, Key, table

_ENDED: Final = "last_over_time(training_process_end_timestamp_seconds{@rank}[$__range])"


def write_ends() -> Row:
    """Return the row on exits, restarts and checkpoints."""
    return Row(
        "Ends, restarts and checkpoints",
        (
            _list_ends(),
            _list_shortages(),
            _draw_restarts(),
            _draw_checkpoints(),
        ),
        is_collapsed=True,
    )


def _list_ends() -> Panel:
    return table(
        "How ranks ended",
        About(
            "Every end in this time range: when, for which reason and with which exit code, of which"
            " 128 and more is a signal.",
            "finished, with 0.",
            "the rank that ended first, at the top, is mostly the cause: `trainvitals postmortem`"
            " on its machine has the evidence.",
            ("TrainingRunLost", "TrainingRunFailed", "TrainingRunTerminated"),
        ),
        keys=(ON_HOST, Key("rank", "Rank"), Key("reason", "Reason")),
        columns=(
            Column("Ended", f"1000 * max by (instance, rank, reason) ({_ENDED})", SINCE),
            Column(
                "Exit code",
                "max by (instance, rank)"
                " (last_over_time(training_process_exit_code{@rank}[$__range]))",
                decimals=0,
            ),
            Column(
                "Last step",
                "max by (instance, rank) (last_over_time(training_global_step{@rank}[$__range])"
                f" and on ({RANK}) {_ENDED})",
                WHOLE,
                decimals=0,
            ),
        ),
        sort_by="Ended",
        is_sorted_up=True,
        empty="No rank ended in this range",
        width=14,
        height=11,
    )


def _list_shortages() -> Panel:
    return table(
        "Memory that ran out",
        About(
            "When memory last ran out, on the device or, by the kernel's word, on the host.",
            "empty; batch size finders run out on purpose.",
            "device wants a smaller batch or checkpointed gradients, host fewer workers.",
            ("TrainingOutOfMemory",),
        ),
        keys=(ON_HOST, Key("rank", "Rank"), Key("where", "Where")),
        columns=(
            Column(
                "When",
                "1000 * max by (instance, rank, where)"
                " (last_over_time(training_oom_last_timestamp_seconds{@rank}[$__range]))",
                SINCE,
            ),
            Column(
                "Still lives",
                "min by (instance, rank) (last_over_time(training_process_up{@rank}[$__range])"
                f" and on ({RANK})"
                " last_over_time(training_oom_last_timestamp_seconds{@rank}[$__range]))",
                "bool_yes_no",
            ),
        ),
        sort_by="When",
        empty="Memory never ran out in this range",
        width=10,
        height=11,
    )


def _draw_restarts() -> Panel:
    return timeseries(
        "Restarts in 1 h",
        About(
            "How often the run was started again within an hour after it had died.",
            "0.",
            "stop it if all starts died of the same: the table above lists them.",
            ("TrainingRestartLoop",),
        ),
        over_time(
            "max by (instance) (increase(training_restarts_total{@run}[1h]))", "{{instance}}"
        ),
        steps=((None, OK), (limit("training_restart_loop:restarts"), WARNING)),
        empty="The run was not seen from its start",
        least=0,
        decimals=0,
        width=12,
        calcs=("lastNotNull", "max"),
    )


def _draw_checkpoints() -> Panel:
    saved = (
        "training_checkpoint_last_timestamp_seconds{@run}"
        ' or training_process_start_time_seconds{@run, rank="0"}'
    )
    return timeseries(
        "Age of the last checkpoint",
        About(
            "How much work would be lost if the run died, and the limit that the run has set.",
            "below the dashed line.",
            "saving fails or is not reached: look at its log and at the disk that it saves to.",
            ("CheckpointStale",),
        ),
        over_time(
            f"time() - max by (instance) ({saved})"
            " and on (instance) training_process_up{@run} == 1",
            "{{instance}}",
        ),
        over_time("min(training_checkpoint_max_age_seconds{@run})", "alert above"),
        unit=SECONDS,
        empty="No checkpoint reported",
        least=0,
        width=12,
        overrides=(dash_series("alert above", WARNING),),
    )
