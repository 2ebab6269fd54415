"""The speed of a run, and the memory used by its batches."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    COUNT,
    OK,
    RATIO,
    SECONDS,
    TOKENS_PER_SECOND,
    UNKNOWN,
    WARNING,
)
from grafana.build.panels import About, Panel, dash_series, put_right, timeseries
from grafana.build.queries import over_time
from grafana.build.run_ranks import ON_HOST
from grafana.build.run_selection import on_devices, sum_held
from grafana.build.run_verdict import RANK
from grafana.build.tables import Column, Key, table

_BATCH: Final = (
    "rate(training_samples_total{@rank}[$__rate_interval])"
    " / (rate(training_steps_total{@rank}[$__rate_interval]) > 0)"
)
_EPOCHS: Final = "(training_epoch{@run} + training_epoch_progress_ratio{@run})"
_EPOCHS_BEFORE: Final = _EPOCHS.replace("{@run}", "{@run} offset 15m")


def write_pace() -> Row:
    """Return the row on epochs, tokens, and memory by batch size."""
    return Row(
        "Pace and memory",
        (
            _draw_epochs(),
            _draw_time_left(),
            _draw_tokens(),
            _draw_memory(),
            _draw_flops(),
            _list_memory(),
        ),
        is_collapsed=True,
    )


def _draw_epochs() -> Panel:
    return timeseries(
        "Epochs per hour",
        About(
            "At the pace of the last 15 minutes, validation and checkpoints included; where the"
            " share of an epoch is not known, the epochs that began in the last hour. Dashed, the"
            " pace that the file of baselines expects.",
            "even, and not below the dashed line.",
            "an epoch that takes longer than the one before loses time outside of steps too: see"
            " Goodput.",
        ),
        over_time(
            f"max(4 * ({_EPOCHS} - {_EPOCHS_BEFORE}) >= 0)"
            " or max(training_epoch{@run} - training_epoch{@run} offset 1h >= 0)",
            "epochs per hour",
        ),
        over_time("max(3600 / (training_expected_epoch_seconds{@run} > 0))", "expected"),
        empty="No epochs reported, or not for long enough",
        least=0,
        decimals=2,
        overrides=(dash_series("expected", OK),),
        calcs=("lastNotNull", "mean", "min"),
    )


def _draw_time_left() -> Panel:
    late = -limit("training_overdue:window_seconds")
    return timeseries(
        "Time left",
        About(
            "How long it is to the expected end, at the pace of each moment.",
            "a straight fall to 0.",
            "a line that does not fall is a run that hangs, and below the dashed line it is"
            " overdue.",
            ("TrainingOverdue",),
        ),
        over_time(
            "max(training_eta_timestamp_seconds{@run} - time()"
            f" unless on ({RANK}) training_process_up{{@run}} == 0)",
            "time left",
        ),
        unit=SECONDS,
        steps=((None, OK), (late, WARNING)),
        empty="No total reported",
        calcs=("lastNotNull", "min", "max"),
    )


def _draw_tokens() -> Panel:
    return timeseries(
        "Tokens",
        About(
            "Tokens trained on per second by all ranks.",
            "even, but for validation and checkpoints.",
            "tokens that fall while samples do not are shorter sequences.",
        ),
        over_time(
            "sum(rate(training_tokens_total{@rank}[$__rate_interval]))"
            " or sum(training_tokens_per_second{@rank}"
            f" unless on ({RANK}) training_tokens_total{{@rank}})",
            "all ranks",
        ),
        unit=TOKENS_PER_SECOND,
        empty="No sequence length reported",
        least=0,
    )


def _draw_memory() -> Panel:
    return timeseries(
        "Accelerator memory against batch size",
        About(
            "On the left the memory of the fullest accelerator of the run and the most that tensors"
            " of a rank ever took, on the right the samples in a batch of a rank. Dashed, what the"
            " device has and what the file of baselines expects at this batch size.",
            "memory follows the batch and stays below the device's.",
            "room above the line is room for a larger batch; memory that grows under an even batch"
            " is a leak.",
        ),
        over_time(f"max({on_devices('accelerator_memory_used_bytes{@host}')})", "fullest device"),
        over_time("max(training_memory_peak_bytes{@rank})", "tensors at most"),
        over_time(f"min({on_devices('accelerator_memory_total_bytes{@host}')})", "device has"),
        over_time("max(training_expected_memory_bytes{@run})", "expected"),
        over_time(f"max({_BATCH})", "samples in a batch"),
        unit=BYTES,
        empty="No accelerator and no batch size reported",
        least=0,
        overrides=(
            dash_series("device has", UNKNOWN),
            dash_series("expected", OK),
            put_right("samples in a batch", COUNT),
        ),
        width=12,
    )


def _list_memory() -> Panel:
    return table(
        "Memory by rank",
        About(
            "What each rank's batch takes: the peak of its tensors, also for each sample of a"
            " batch, and what all programs hold on its accelerators.",
            "alike on all ranks.",
            "more held than the rank's own peak is another program or the allocator's reserve.",
        ),
        keys=(
            ON_HOST,
            Key("rank", "Rank"),
        ),
        columns=(
            Column("Batch", f"max by (instance, rank) ({_BATCH})", decimals=0),
            Column("Peak", "max by (instance, rank) (training_memory_peak_bytes{@rank})", BYTES),
            Column(
                "For each sample",
                f"max by (instance, rank) (training_memory_peak_bytes{{@rank}} / ({_BATCH} > 0))",
                BYTES,
            ),
            Column("Held", sum_held("accelerator_memory_used_bytes{@host}"), BYTES),
            Column("Of", sum_held("accelerator_memory_total_bytes{@host}"), BYTES),
        ),
        sort_by="Peak",
        height=11,
        empty="No batch size, and no accelerator of a rank, is known",
    )


def _draw_flops() -> Panel:
    return timeseries(
        "Model FLOPs utilization",
        About(
            "The share of the devices' peak that the model's own operations take: mean and worst"
            " rank.",
            "30 to 50 % for large transformers, less for small models.",
            "see the verdict: what is neither wait nor throttling is small kernels and copies.",
        ),
        over_time("avg(training_model_flops_utilization_ratio{@rank})", "mean of ranks"),
        over_time("min(training_model_flops_utilization_ratio{@rank})", "worst rank"),
        unit=RATIO,
        empty="No FLOPs of the model reported",
        least=0,
        most=1,
        width=12,
        calcs=("lastNotNull", "mean", "min"),
    )
