"""The first screen of the board of a run: how it is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.layout import Row, write_address
from grafana.build.palette import RATIO, SAMPLES_PER_SECOND, SECONDS, SINCE, TIMES, WHOLE
from grafana.build.panels import About, Column, Key, Panel, stat, state_timeline, table
from grafana.build.parts import HOST, list_alerts
from grafana.build.queries import Query, now, over_time
from grafana.build.run_verdict import (
    RANK,
    SLOW,
    SLOW_RANK,
    STATES,
    VERDICTS,
    find_beginning,
    recall_state,
    recall_trouble,
    recall_verdict,
    tell_slow,
    tell_state,
    tell_verdict,
)

# An alert tells of the run, or of a machine on which it was half an hour ago or less.
OF_THIS_RUN: Final = "and on (job, instance) last_over_time(training_run_info{@run}[30m])"
_OF_NO_OTHER: Final = "@host, run=~`|${run:regex}`"

# Whether a value is of now, or what was last known of a run that ended or is seen no more.
_ENDED: Final = f"unless on ({RANK}) training_process_up{{@run}} == 0"
_LIVES: Final = (
    "training_last_progress_timestamp_seconds{@run} @ end()"
    f" unless on ({RANK}) training_process_up{{@run}} @ end() == 0"
)
_WHEN: Final = (
    f'(label_replace(group({_LIVES}), "when", "now", "", "")'
    ' or on () label_replace(vector(1), "when", "last known", "", ""))'
)


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
            list_alerts(_OF_NO_OTHER, among=OF_THIS_RUN, width=14, height=6),
            _list_ranks_in_trouble(),
            _show_states(),
        ),
    )


def _show_state() -> Panel:
    return stat(
        "State",
        About(
            "The worst state of the run's ranks, or how the run ended in this time range; not seen"
            " where it did not end and nothing is told of it now.",
            "training, with validation and checkpoint now and then.",
            "look below for the rank that died, is gone or stands still, and run"
            " `trainvitals postmortem` on its machine.",
            (
                *("TrainingStalled", "TrainingRunLost", "TrainingRunVanished"),
                *("TrainingRunFailed", "TrainingRunTerminated"),
            ),
        ),
        now(recall_state("$__range"), "state"),
        states=STATES,
        empty="No run in this range",
    )


def _show_verdict() -> Panel:
    return stat(
        "Verdict",
        About(
            "The first of these that holds, by the alerts' own limits: died, gone, stalled, terminated,"
            " ended, loss is NaN, input-bound, throttled, slow rank, not in steps, underused,"
            " compute-bound, not enough data; not seen where nothing is told of the run now.",
            "compute-bound, with every accelerator of the run busy.",
            "input-bound wants a faster data loader, throttled wants cooling or power, slow rank is"
            " named below, and underused wants larger batches or fewer waits of the host.",
        ),
        now(recall_verdict("$__range"), "verdict"),
        states=VERDICTS,
        empty="No run in this range",
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
        empty="No progress yet",
        decimals=0,
    )


def _tell_when(expr: str) -> Query:
    """Ask for a value of the whole run, called by whether it is of now or the last that is known."""
    return over_time(f"({expr}) * on () group_left (when) {_WHEN}", "{{when}}")


def _show_step() -> Panel:
    return stat(
        "Step",
        About(
            "Steps of the whole run, those before a resume included.",
            "it rises.",
            "look at the state and at the last progress.",
        ),
        _tell_when("max(training_global_step{@run})"),
        unit=WHOLE,
        empty="No step yet",
        decimals=0,
        text_mode="value_and_name",
    )


def _show_progress() -> Panel:
    return stat(
        "Progress",
        About(
            "The share of the run's steps that are done.",
            "it rises evenly.",
            "tell `total_steps`, or epochs and their steps, where it is missing.",
        ),
        _tell_when("max(training_progress_ratio{@run})"),
        unit=RATIO,
        empty="No total told",
        decimals=1,
        has_graph=True,
        text_mode="value_and_name",
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
        now(f"1000 * max(training_eta_timestamp_seconds{{@run}} {_ENDED})", "end"),
        unit=SINCE,
        empty="No total told, or over",
    )


def _show_pace() -> Panel:
    return stat(
        "Throughput",
        About(
            "Samples trained on per second by all ranks; of a run that ended, when it last trained.",
            "steady, and 0 in validation and checkpoints.",
            "the next row shows what takes the time.",
        ),
        _tell_when(
            f"sum(rate(training_samples_total{{@run}}[$__rate_interval]) {_ENDED})"
            " or sum(training_samples_per_second{@run}"
            f" unless on ({RANK}) training_samples_total{{@run}} {_ENDED})"
        ),
        unit=SAMPLES_PER_SECOND,
        empty="No batch size told",
        has_graph=True,
        text_mode="value_and_name",
    )


def _show_loss() -> Panel:
    return stat(
        "Loss",
        About(
            "Training loss of the latest step, mean of all ranks; of a run that ended, of its last.",
            "it falls.",
            "compare it with the validation loss and its own past under Learning.",
        ),
        _tell_when("avg(training_loss{@run})"),
        empty="No loss told",
        has_graph=True,
        text_mode="value_and_name",
    )


def _list_ranks_in_trouble() -> Panel:
    trouble = recall_trouble("$__range")
    return table(
        "Ranks in trouble",
        About(
            "The ranks that died, are gone, stand still, were ended by SIGTERM or slow the others down;"
            " where the run is told of no more, as they were in this time range.",
            "empty.",
            "begin with the rank whose trouble is the oldest, as the others often follow it.",
            (
                *("TrainingStragglerRank", "TrainingStalled", "TrainingRunLost"),
                "TrainingRunTerminated",
            ),
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
        empty="No run in this range",
        height=5,
    )
