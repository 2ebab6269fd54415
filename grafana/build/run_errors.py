"""Rows of the run dashboard on errors and on the training client."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import CRITICAL, OK, RATIO, SECONDS, UNKNOWN, WARNING, State
from grafana.build.panels import About, Panel, dash_series, stat, state_timeline, timeseries
from grafana.build.queries import find_rise, now, over_time
from grafana.build.run_selection import on_hosts
from grafana.build.run_verdict import RANK

_QUIET: Final = State(0, "quiet", UNKNOWN)
_RAISED: Final = State(1, "raised", WARNING)
_SHOWN: Final = State(0, "shows NaN", OK)
_HIDDEN: Final = State(1, "hides NaN", WARNING)


def write_errors() -> Row:
    """Return the row on errors in the run."""
    return Row(
        "Errors",
        (_draw_stalls(), _draw_nonfinite(), _draw_errors(), _show_alerts()),
        is_collapsed=True,
    )


def write_client() -> Row:
    """Return the row on the training client and its files."""
    return Row(
        "The client and its files",
        (_show_overhead(), _show_filter(), _draw_client_errors(), _draw_unreadable()),
        is_collapsed=True,
    )


def _draw_stalls() -> Panel:
    return timeseries(
        "Time without progress",
        About(
            "The time without progress of the rank that is stalled the longest, and the limit of its phase.",
            "a saw-tooth far below the dashed line.",
            "one rank or its loader hangs and the others wait: look where each is with `py-spy dump"
            " --pid`.",
            ("TrainingStalled",),
        ),
        over_time(
            "max(time() - training_last_progress_timestamp_seconds{@rank}"
            f" unless on ({RANK}) training_process_up{{@rank}} == 0)",
            "longest",
        ),
        over_time("min(training_stall_threshold_seconds{@rank})", "stalled above"),
        unit=SECONDS,
        empty="No run in this range",
        least=0,
        overrides=(dash_series("stalled above", WARNING),),
    )


def _draw_nonfinite() -> Panel:
    broken = "training_loss{@rank} * 0 != 0 or validation_loss{@rank} * 0 != 0"
    return timeseries(
        "NaN and infinities in 10 min",
        About(
            "How many values were NaN or infinite on the rank that had the most, and on how many"
            " ranks the loss is so now.",
            "0; single ones that a gradient scaler skips do no harm.",
            "go back to a checkpoint from before, with a lower learning rate or clipped gradients.",
            ("TrainingLossNotFinite",),
        ),
        over_time("max by (what) (increase(training_nonfinite_total{@rank}[10m]))", "{{what}}"),
        over_time(f"count({broken})", "ranks whose loss is so now"),
        steps=((None, OK), (limit("training_loss_not_finite:values"), CRITICAL)),
        empty="No value reported",
        least=0,
        decimals=0,
        calcs=("lastNotNull", "max"),
    )


def _draw_errors() -> Panel:
    rises = {
        "exceptions of data loaders": "training_data_errors_total{@rank}",
        "device memory ran out": "training_memory_oom_total{@rank}",
        "device memory retried": "training_memory_alloc_retries_total{@rank}",
    }
    return timeseries(
        "Errors that the run outlived",
        About(
            "Exceptions of data loaders, how often device memory ran out, and how often the"
            " allocator had to empty its cache first, of all ranks.",
            "0.",
            "a file is missing or damaged: the run's log names it. Retries cost time and come before"
            " running out: a smaller batch or less fragmentation helps.",
            ("TrainingDataErrors",),
        ),
        *(over_time(f"sum({find_rise(counter)})", name) for name, counter in rises.items()),
        empty="Neither a data loader nor PyTorch's allocator is reported",
        least=0,
        is_bars=True,
    )


def _show_alerts() -> Panel:
    return state_timeline(
        "Alerts of the run's own callback",
        About(
            "What the callback found inside the process, on any rank.",
            "quiet, or empty where none was ever raised.",
            "its console and CSV have the figures.",
            ("TrainingMonitorAlert",),
        ),
        over_time("topk(8, max by (alert) (training_alert_active{@rank}))", "{{alert}}"),
        states=(_QUIET, _RAISED),
        empty="No alert was ever raised",
        height=6,
    )


def _show_overhead() -> Panel:
    return stat(
        "Client cost",
        About(
            "The share of the run's time that the client takes, on the rank where it is the most.",
            f"far below {limit('training_client_overhead:ratio') * 100:g} %.",
            "put the run directory on a tmpfs, or count several short steps as one.",
            ("TrainingClientOverhead",),
        ),
        over_time("max(training_client_overhead_ratio{@rank})", "worst rank"),
        unit=RATIO,
        steps=((None, OK), (limit("training_client_overhead:ratio"), WARNING)),
        empty="No client reports the run",
        width=4,
        height=8,
        decimals=3,
    )


def _draw_client_errors() -> Panel:
    return timeseries(
        "Errors in the client",
        About(
            "Errors inside the client, after ten of which it switches itself off, and values for"
            " whose names there was no room.",
            "0.",
            "the run's log has the traceback; a rank has room for 64 names.",
        ),
        over_time(f"sum({find_rise('training_client_errors_total{@rank}')})", "errors"),
        over_time(
            f"sum({find_rise('training_client_dropped_metrics_total{@rank}')})", "values left out"
        ),
        empty="No client reports the run",
        least=0,
        is_bars=True,
    )


def _draw_unreadable() -> Panel:
    return timeseries(
        "Run files that cannot be read",
        About(
            "Files in the run directories of the run's machines that are damaged, of another"
            " version or no run files.",
            "0.",
            "bring client and exporter to the same version, and remove what is no run file.",
            ("TrainingClientIncompatible",),
        ),
        over_time(
            on_hosts("max by (job, instance) (training_client_incompatible_files{@host})"),
            "{{instance}}",
        ),
        empty="No run directory is read",
        least=0,
        decimals=0,
        calcs=("lastNotNull", "max"),
    )


def _show_filter() -> Panel:
    return stat(
        "NaN in logs",
        About(
            "Whether the framework puts a mean in the place of losses that are NaN.",
            "shows NaN.",
            "set `logging_nan_inf_filter=False`, or trust the counts here alone.",
        ),
        now("max(training_nan_filter_active{@rank})", "filter"),
        states=(_SHOWN, _HIDDEN),
        empty="No framework reported",
        width=4,
        height=8,
    )
