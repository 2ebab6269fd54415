"""The panels on a run's step time, its goodput, and the time lost to restarts."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import RATIO, SECONDS, WARNING, WHOLE
from grafana.build.panels import About, Panel, dash_series, put_right, timeseries
from grafana.build.queries import find_rise, over_time
from grafana.build.run_why import colour_phases

_IN_STEPS: Final = "data_wait|h2d|forward|backward|optimizer|other"


def write_time() -> Row:
    """Return the dashboard row for steps and lost time."""
    return Row(
        "Where time goes: steps, and work that was lost",
        (
            _draw_steps(),
            _draw_slowdown(),
            _draw_parts(),
            _draw_goodput(),
            _draw_losses(),
        ),
        is_collapsed=True,
    )


def _draw_steps() -> Panel:
    buckets = "sum by (le) (rate(training_step_duration_seconds_bucket{@rank}[$__rate_interval]))"
    total = "sum(rate(training_step_duration_seconds_sum{@rank}[$__rate_interval]))"
    count = "sum(rate(training_step_duration_seconds_count{@rank}[$__rate_interval]))"
    return timeseries(
        "Step time",
        About(
            "How long steps take, waiting for data included: the mean is exact, the rest is"
            " estimated from buckets.",
            "p99 near p50.",
            "a p99 far above p50 means that single steps wait: see the wait for data.",
        ),
        over_time(f"{total} / ({count} > 0)", "mean"),
        *(
            over_time(
                f"histogram_quantile({share}, {buckets}) and on () {count} > 0",
                f"p{share * 100:.0f}",
            )
            for share in (0.5, 0.95, 0.99)
        ),
        unit=SECONDS,
        empty="No step was done",
        least=0,
    )


def _draw_slowdown() -> Panel:
    ratio = limit("slow_batch_processing:slowdown_ratio")
    return timeseries(
        "Step time against its own past",
        About(
            "The mean of 10 minutes on the slowest rank, and the multiple of the median of 6 hours"
            " at which the alert begins.",
            "below the dashed line.",
            "see which phase has grown, and whether an accelerator is throttled.",
            ("SlowBatchProcessing",),
        ),
        over_time("max(run:training_step_seconds:mean10m{@run})", "slowest rank"),
        over_time(f"{ratio:g} * max(run:training_step_seconds:median6h{{@run}})", "alert above"),
        over_time("max(batch_processing_time{@run})", "latest step"),
        unit=SECONDS,
        empty="No step was done",
        least=0,
        overrides=(dash_series("alert above", WARNING),),
    )


def _draw_parts() -> Panel:
    parts = (
        ("model_forward_time", "forward"),
        ("backward_pass_time", "backward"),
        ("optimizer_step_time", "optimizer"),
    )
    return timeseries(
        "Parts of a step",
        About(
            "Seconds that a step spends in each part, mean of all ranks, by the host's clock.",
            "even.",
            "on a GPU these are times of launching work: whichever part waits for the device shows"
            " its time.",
        ),
        *(over_time(f"avg({metric}{{@rank}})", part) for metric, part in parts),
        unit=SECONDS,
        empty="No parts of a step are marked",
        least=0,
        overrides=colour_phases(),
    )


def _draw_goodput() -> Panel:
    every = "sum(rate(training_phase_seconds_total{@rank}[$__rate_interval]))"
    steps = f'rate(training_phase_seconds_total{{@rank, phase=~"{_IN_STEPS}"}}[$__rate_interval])'
    work = steps.replace("data_wait|", "")
    return timeseries(
        "Goodput",
        About(
            "The share of all ranks' time that goes into steps, and into steps without their wait"
            " for data.",
            "both near 100 %.",
            "what is missing above is validation, checkpoints and starting, what lies between the"
            " lines is the data loader.",
        ),
        over_time(f"sum({steps}) / ({every} > 0)", "in steps"),
        over_time(f"sum({work}) / ({every} > 0)", "in steps, not waiting for data"),
        unit=RATIO,
        empty="No phases reported",
        least=0,
        most=1,
        width=12,
        calcs=("lastNotNull", "mean", "min"),
    )


def _draw_losses() -> Panel:
    return timeseries(
        "Time and steps lost to restarts",
        About(
            "Work that was lost because the run died and continued from an older checkpoint.",
            "empty or 0.",
            "save checkpoints more often, and see what the run dies of.",
        ),
        over_time(f"sum({find_rise('training_lost_seconds_total{@run}')})", "time"),
        over_time(f"sum({find_rise('training_lost_steps_total{@run}')})", "steps"),
        unit=SECONDS,
        empty="The run was not seen from its start",
        least=0,
        is_bars=True,
        width=12,
        overrides=(put_right("steps", WHOLE),),
    )
