"""The ranks of a run, individually and in comparison."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import OK, RATIO, SECONDS, TIMES, WARNING, WHOLE
from grafana.build.panels import About, Panel, state_timeline, timeseries
from grafana.build.parts import ACCELERATORS, HOST
from grafana.build.queries import keep_worst, over_time
from grafana.build.run_verdict import (
    RANK,
    SLOW,
    SLOW_RANK,
    STATES,
    find_beginning,
    recall_trouble,
    tell_rank_state,
    tell_slow,
    tell_state,
)
from grafana.build.tables import Column, Key, table

# The phases in which ranks work independently; in the backward pass all wait for the slowest.
_OWN: Final = "data_wait|h2d|forward|optimizer"
_MOST_RANKS: Final = 10
_MOST_HOSTS: Final = 19  # the number of bands that the panel shows

ON_HOST: Final = Key(
    "instance", "Host", write_address(HOST, instance="${__data.fields.Host}"), "Open the host"
)
_STEPS: Final = "rate(training_steps_total{@rank}[$__rate_interval])"
_OWN_TIME: Final = (
    f"sum by ({RANK})"
    f' (rate(training_phase_seconds_total{{@rank, phase=~"{_OWN}"}}[$__rate_interval]))'
    f" / on ({RANK}) ({_STEPS} > 0)"
)

_DEVICE: Final = {
    "instance": "${__data.fields.Host}",
    "kind": "${__data.fields.Kind}",
    "device": "${__data.fields.Device}",
}
_FIRST: Final = (
    'label_replace(training_rank_info{@rank, gpu_uuid!=""}, "uuid", "$1", "gpu_uuid", "([^,]+).*")'
)
_WITH_DEVICE: Final = (
    f"({_FIRST} * on (job, instance, uuid) group_left (kind, device)"
    " (accelerator_up{@host} >= bool 0)"
    f" or on ({RANK}) training_rank_info{{@rank}})"
)


def write_ranks() -> Row:
    """Return the row on the comparison of ranks."""
    return Row(
        "Ranks",
        (
            _list_ranks_in_trouble(),
            _show_hosts(),
            _list_ranks(),
            _draw_slowdown(),
            _draw_own_time(),
        ),
        is_collapsed=True,
    )


def _list_ranks_in_trouble() -> Panel:
    trouble = recall_trouble("$__range")
    return table(
        "Ranks in trouble",
        About(
            "The ranks that died, are gone, are stalled, were ended by SIGTERM or slow the others down;"
            " where the run is no longer reported, as they were in this time range.",
            "empty.",
            "begin with the rank whose trouble is the oldest, as the others often follow it.",
            (
                *("TrainingStragglerRank", "TrainingStalled", "TrainingRunLost"),
                "TrainingRunTerminated",
            ),
        ),
        keys=(
            ON_HOST,
            Key("rank", "Rank"),
        ),
        columns=(
            Column(
                "State",
                f"max by (instance, rank) ({trouble} or {tell_slow()})",
                states=(*STATES, SLOW_RANK),
                look="color-text",
            ),
            Column(
                "For",
                f"max by (instance, rank) (time() - {find_beginning('$__range')}"
                f" and on ({RANK}) {trouble})",
                SECONDS,
                decimals=0,
            ),
            Column(
                "Slowdown",
                "max by (instance, rank) (training_rank_slowdown_ratio{@run}"
                f" and on ({RANK}) {SLOW})",
                TIMES,
                decimals=1,
            ),
        ),
        sort_by="For",
        empty="No rank is dead, gone, stalled or slow",
        width=12,
        height=11,
    )


def _list_ranks() -> Panel:
    by = "instance, rank, host_pid, kind, device"
    return table(
        "Ranks",
        About(
            "Every rank that is there now: its process, its accelerator, of several the first, and how"
            " it gets on.",
            "alike in all columns.",
            "the rank that differs is the one to look at: `py-spy dump --pid` shows where it is.",
            ("TrainingStragglerRank",),
        ),
        keys=(
            ON_HOST,
            Key("rank", "Rank"),
            Key("host_pid", "PID"),
            Key("kind", "Kind"),
            Key("device", "Device", write_address(ACCELERATORS, **_DEVICE), "Open the device"),
        ),
        columns=(
            Column(
                "State",
                f"max by ({by}) ({tell_rank_state()}"
                f" * on ({RANK}) group_left (host_pid, kind, device) {_WITH_DEVICE})",
                states=STATES,
                look="color-text",
            ),
            Column(
                "Step", "max by (instance, rank) (training_global_step{@rank})", WHOLE, decimals=0
            ),
            Column(
                "Last progress",
                "max by (instance, rank)"
                " (time() - training_last_progress_timestamp_seconds{@rank})",
                SECONDS,
                decimals=0,
            ),
            Column("Own time per step", f"max by (instance, rank) ({_OWN_TIME})", SECONDS),
            Column(
                "Wait for data",
                "sum by (instance, rank) (rate(training_phase_seconds_total"
                '{@rank, phase="data_wait"}[$__rate_interval])) / (sum by (instance, rank)'
                " (rate(training_step_duration_seconds_sum{@rank}[$__rate_interval])) > 0)",
                RATIO,
                steps=((None, OK), (limit("data_loader_bottleneck:wait_ratio"), WARNING)),
                look="color-text",
                decimals=0,
            ),
            Column(
                "Slowdown",
                "max by (instance, rank) (training_rank_slowdown_ratio{@rank})",
                TIMES,
                decimals=2,
            ),
        ),
        sort_by="Slowdown",
        empty="No rank is there now",
        height=11,
    )


def _show_hosts() -> Panel:
    return state_timeline(
        "State by machine",
        About(
            "The worst state of the run's ranks on each machine, the "
            f"{_MOST_HOSTS} that were in the worst.",
            "training on all at once.",
            "the machine that changed first is where to look.",
            ("TrainingRunVanished",),
        ),
        over_time(keep_worst(_MOST_HOSTS, tell_state(by="job, instance")), "{{instance}}"),
        states=STATES,
        empty="No run in this range",
        width=12,
        height=11,
    )


def _draw_slowdown() -> Panel:
    slowdown = "training_rank_slowdown_ratio{@rank}"
    return timeseries(
        "Ranks that the others wait for",
        About(
            "What a rank's own work takes as a multiple of the fastest rank's on its machine: the"
            f" {_MOST_RANKS} slowest.",
            "near 1; a rank a third slower for long is called a straggler.",
            "look at its accelerator's throttling and PCIe width, its data and its CPUs.",
            ("TrainingStragglerRank",),
        ),
        over_time(
            f"{slowdown} and on ({RANK}, phase)"
            f" topk({_MOST_RANKS}, max_over_time({slowdown}[$__range] @ end()))",
            "rank {{rank}} {{phase}} {{instance}}",
        ),
        unit=TIMES,
        empty="One rank alone, or no phases marked",
        width=12,
        decimals=2,
        calcs=("lastNotNull", "mean", "max"),
    )


def _draw_own_time() -> Panel:
    figures = (("slowest rank", "max"), ("middle rank", "quantile"), ("fastest rank", "min"))
    return timeseries(
        "Own time per step",
        About(
            "What ranks on all machines spend in a step on their own work, not on waiting for each"
            " other.",
            "three lines near each other.",
            "a slowest rank far from the middle is a straggler: the table above names it.",
        ),
        *(
            over_time(
                f"quantile(0.5, {_OWN_TIME})"
                if operator == "quantile"
                else f"{operator}({_OWN_TIME})",
                name,
            )
            for name, operator in figures
        ),
        unit=SECONDS,
        empty="No phases of steps are marked",
        least=0,
        width=12,
    )
