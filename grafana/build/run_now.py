"""The first screen of the board of a run: how it is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.layout import Row, write_address
from grafana.build.palette import RATIO, SAMPLES_PER_SECOND, SECONDS, SINCE, TIMES, WHOLE
from grafana.build.panels import About, Column, Key, Panel, stat, state_timeline, table
from grafana.build.parts import HOST, list_alerts
from grafana.build.queries import now, over_time
from grafana.build.run_selection import PACE
from grafana.build.run_verdict import (
    RANK,
    SLOW,
    SLOW_RANK,
    STANDING,
    STATES,
    VERDICTS,
    find_dead,
    find_gone,
    tell_state,
    tell_trouble,
    tell_verdict,
)

# An alert tells of the run, or of a machine on which it was half an hour ago or less.
OF_THIS_RUN: Final = "and on (job, instance) last_over_time(training_run_info{@run}[30m])"
OF_NO_OTHER: Final = "@host, run=~`|${run:regex}`"

# How long the ranks that ended stay in the list of those in trouble.
_REMEMBERED: Final = "15m"


def write_now() -> Row:
    """Write the row that answers whether anything is wrong."""
    return Row(
        "Now",
        (
            _show_state(),
            _show_verdict(),
            _show_last_progress(),
            _show_step(),
            _show_progress(),
            _show_end(),
            _show_pace(),
            _show_loss(),
            list_alerts(OF_NO_OTHER, among=OF_THIS_RUN, width=14, height=6),
            _list_ranks_in_trouble(),
            _show_states(),
        ),
    )


def _show_state() -> Panel:
    return stat(
        "State",
        About(
            "The worst state of the run's ranks, or how the run ended in this time range.",
            "training, with validation and checkpoint now and then.",
            "look below for the rank that died, is gone or stands still, and run"
            " `trainvitals postmortem` on its machine.",
            (
                *("TrainingStalled", "TrainingRunLost", "TrainingRunVanished"),
                *("TrainingRunFailed", "TrainingRunTerminated"),
            ),
        ),
        now(tell_state("$__range"), "state"),
        states=STATES,
        empty="no run in this range",
    )


def _show_verdict() -> Panel:
    return stat(
        "Verdict",
        About(
            "The first of these that holds, by the alerts' own limits: died, gone, stalled, ended,"
            " loss is NaN, input-bound, throttled, slow rank, not in steps, underused,"
            " compute-bound, not enough data.",
            "compute-bound, with every accelerator of the run busy.",
            "input-bound wants a faster data loader, throttled wants cooling or power, slow rank is"
            " named below, and underused wants larger batches or fewer waits of the host.",
        ),
        now(tell_verdict("$__range"), "verdict"),
        states=VERDICTS,
        empty="no run in this range",
    )


def _show_last_progress() -> Panel:
    return stat(
        "Last progress",
        About(
            "How long ago any rank of the run ended a step or began a phase.",
            "below the time of a step.",
            "see where the process is with `py-spy dump --pid` before it is killed.",
            ("TrainingStalled",),
        ),
        now(
            "time() - max(last_over_time(training_last_progress_timestamp_seconds{@run}[$__range]))"
        ),
        unit=SECONDS,
        empty="no progress yet",
        decimals=0,
    )


def _show_step() -> Panel:
    return stat(
        "Step",
        About(
            "Steps of the whole run, those before a resume included.",
            "it rises.",
            "look at the state and at the last progress.",
        ),
        over_time("max(training_global_step{@run})", "step"),
        unit=WHOLE,
        empty="no step yet",
        decimals=0,
    )


def _show_progress() -> Panel:
    return stat(
        "Progress",
        About(
            "The share of the run's steps that are done.",
            "it rises evenly.",
            "tell `total_steps`, or epochs and their steps, where it is missing.",
        ),
        over_time("max(training_progress_ratio{@run})", "progress"),
        unit=RATIO,
        empty="no total told",
        decimals=1,
        has_graph=True,
    )


def _show_end() -> Panel:
    return stat(
        "Expected end",
        About(
            "When the last step will be done at the present pace.",
            "ahead, and moving by minutes only.",
            "a run past its end hangs or does more than its totals say: see its state.",
            ("TrainingOverdue",),
        ),
        now("1000 * max(training_eta_timestamp_seconds{@run})", "end"),
        unit=SINCE,
        empty="no total told, or over",
    )


def _show_pace() -> Panel:
    return stat(
        "Throughput",
        About(
            "Samples trained on per second by all ranks.",
            "steady, and 0 in validation and checkpoints.",
            "the next row shows what takes the time.",
        ),
        over_time(PACE, "samples"),
        unit=SAMPLES_PER_SECOND,
        empty="no batch size told",
        has_graph=True,
    )


def _show_loss() -> Panel:
    return stat(
        "Loss",
        About(
            "Training loss of the latest step, mean of all ranks.",
            "it falls.",
            "compare it with the validation loss and its own past under Learning.",
        ),
        over_time("avg(training_loss{@run})", "loss"),
        empty="no loss told",
        has_graph=True,
    )


def _list_ranks_in_trouble() -> Panel:
    dead, gone = find_dead(_REMEMBERED), find_gone(_REMEMBERED)
    progress = f"last_over_time(training_last_progress_timestamp_seconds{{@run}}[{_REMEMBERED}])"
    quiet = f"{progress} and on ({RANK}) ({STANDING} or {gone})"
    return table(
        "Ranks in trouble",
        About(
            "The ranks that died, are gone, stand still or slow the others down.",
            "empty.",
            "begin with the rank whose trouble is the oldest, as the others often follow it.",
            ("TrainingStragglerRank", "TrainingStalled", "TrainingRunLost"),
        ),
        keys=(
            Key(
                "instance",
                "Host",
                write_address(HOST, instance="${__data.fields.Host}"),
                "Open the host",
            ),
            Key("rank", "Rank"),
        ),
        columns=(
            Column(
                "State",
                f"max by (instance, rank) ({tell_trouble(_REMEMBERED)})",
                states=(*STATES, SLOW_RANK),
                look="color-text",
            ),
            Column(
                "For",
                f"max by (instance, rank) (time() - ({dead}) or time() - ({quiet}))",
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
        width=10,
        height=6,
    )


def _show_states() -> Panel:
    return replace(_draw_states(), extra={"maxDataPoints": 120})  # a band is no line


def _draw_states() -> Panel:
    return state_timeline(
        "State and verdict over time",
        About(
            "What the run was doing, and below it what it lost time to.",
            "training and compute-bound.",
            "look at the graphs below at the time at which it changed.",
        ),
        over_time(tell_state(), "state"),
        over_time(tell_verdict(), "verdict"),
        states=(*STATES, *(one for one in VERDICTS if one not in STATES)),
        empty="no run in this range",
        height=5,
    )
