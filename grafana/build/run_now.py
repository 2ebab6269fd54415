"""The first screen of the run dashboard: the state of the run, and its problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.layout import Row, link_to
from grafana.build.palette import SAMPLES_PER_SECOND, SECONDS, SINCE, WHOLE
from grafana.build.panels import About, Panel, stat, state_timeline
from grafana.build.parts import HOST, list_alerts
from grafana.build.queries import now, over_time
from grafana.build.run_learning import draw_loss
from grafana.build.run_verdict import (
    RANK,
    STATES,
    VERDICTS,
    recall_state,
    recall_verdict,
    tell_state,
    tell_verdict,
)
from grafana.build.run_why import draw_phases

# Alerts about the run, or about a machine on which the run was active within the last half hour;
# except alerts about accelerators that the run does not hold, if its ranks report the accelerators
# that they hold.
_HELD: Final = "last_over_time(run:accelerator_held:bool{@run}[30m])"
OF_THIS_RUN: Final = (
    "and on (job, instance) last_over_time(training_run_info{@run}[30m])"
    " unless on (job, instance, uuid) (last_over_time(accelerator_up{@host}[30m])"
    f" and on (job, instance) {_HELD} unless on (job, instance, uuid) {_HELD})"
)
_OF_NO_OTHER: Final = "@host, run=~`|${run:regex}`"

_ENDED: Final = f"unless on ({RANK}) training_process_up{{@run}} == 0"


def write_now() -> Row:
    """Return the row that shows whether the run has a problem."""
    return Row(
        "Now",
        (
            _show_state(),
            _show_verdict(),
            _show_last_progress(),
            _show_step(),
            _show_end(),
            _show_pace(),
            list_alerts(_OF_NO_OTHER, among=OF_THIS_RUN, of_a_run=True),
            _show_states(),
            draw_phases(),
            draw_loss(),
        ),
    )


def _show_state() -> Panel:
    return stat(
        "State",
        About(
            "The worst state of the run's ranks and its machine, or how the run ended in this time range; not seen"
            " where it did not end and is not reported now.",
            "training, with validation and checkpoint now and then.",
            "look under Ranks for the one that died, is gone or is stalled, and run"
            " `trainvitals postmortem` on its machine, whose board a click opens.",
            (
                *("TrainingStalled", "TrainingRunLost", "TrainingRunVanished"),
                *("TrainingRunFailed", "TrainingRunTerminated"),
            ),
        ),
        now(f"topk(1, {recall_state('$__range', 'instance')})", "on {{instance}}"),
        states=STATES,
        text_mode="value_and_name",
        link=link_to(HOST, "Open the host", instance="${__field.labels.instance}"),
        empty="none",
    )


def _show_verdict() -> Panel:
    return stat(
        "Verdict",
        About(
            "The first of these that holds, by the alerts' own limits: died, gone, stalled, terminated,"
            " ended, loss is NaN, input-bound, throttled, slow rank, not in steps, underused,"
            " compute-bound, no accelerator, not enough data; not seen where the run is not reported now.",
            "compute-bound, with every accelerator of the run busy.",
            "input-bound wants a faster data loader, throttled wants cooling or power, slow rank is"
            " named under Ranks, and underused wants larger batches or fewer waits of the host.",
        ),
        now(recall_verdict("$__range"), "verdict"),
        states=VERDICTS,
        empty="none",
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
        empty="none",
        decimals=0,
    )


def _show_step() -> Panel:
    done = "round(100 * max(last_over_time(training_progress_ratio{@run}[$__range])), 0.1)"
    share = (
        f'(label_replace(count_values("share", {done}), "share", "$1 % done", "share", "(.+)")'
        ' or on () label_replace(vector(1), "share", "no total reported", "", ""))'
    )
    step = "max(last_over_time(training_global_step{@run}[$__range]))"
    return stat(
        "Step",
        About(
            "Steps of the whole run, those before a resume included, and their share of all.",
            "it rises.",
            "look at the state and at the last progress; report `total_steps`, or epochs and their"
            " steps, where the share is missing.",
        ),
        now(f"{step} * on () group_left (share) {share}", "{{share}}"),
        unit=WHOLE,
        empty="none",
        decimals=0,
        text_mode="value_and_name",
    )


def _show_end() -> Panel:
    return stat(
        "Expected end",
        About(
            "When the last step will be done at the present pace.",
            "ahead, and moving by minutes only.",
            "a run past its end hangs or does more than its totals: see its state.",
            ("TrainingOverdue",),
        ),
        now(f"1000 * max(training_eta_timestamp_seconds{{@run}} {_ENDED})", "end"),
        unit=SINCE,
        empty="unknown",
    )


def _show_pace() -> Panel:
    return stat(
        "Throughput",
        About(
            "Samples trained on per second by all ranks that live.",
            "steady, and 0 in validation and checkpoints.",
            "the row Why shows what takes the time.",
        ),
        now(
            f"sum(rate(training_samples_total{{@run}}[$__rate_interval]) {_ENDED})"
            " or sum(training_samples_per_second{@run}"
            f" unless on ({RANK}) training_samples_total{{@run}} {_ENDED})",
            "all ranks",
        ),
        unit=SAMPLES_PER_SECOND,
        empty="unknown",
    )


def _show_states() -> Panel:
    return replace(_draw_states(), extra={"maxDataPoints": 120})  # fewer points than in line graphs


def _draw_states() -> Panel:
    return state_timeline(
        "State and verdict over time",
        About(
            "What the run was doing, and below it what it lost time to.",
            "training and compute-bound.",
            "look at the other graphs at the time at which it changed.",
        ),
        over_time(tell_state(), "state"),
        over_time(tell_verdict(), "verdict"),
        states=(*STATES, *(one for one in VERDICTS if one not in STATES)),
        empty="No run in this time range: see docs/training.md for how one reports itself",
        width=8,
        height=8,
    )
