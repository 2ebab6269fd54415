"""Runs that nobody instrumented, in the words of those that tell of themselves."""

from __future__ import annotations

from trainvitals.runfile import EMPTY_STATE, EMPTY_STEP, MOST_METRICS, STATE, STEP, Record, State
from trainvitals.sources.training.rates import Rates, measure_progress
from trainvitals.sources.training.reading import RankReading
from trainvitals.sources.training.scalars import FoundRun
from trainvitals.sources.training.stalls import Stall

# A log or an event file is written to now and then, and nobody says when a run is over.
QUIET_SECONDS = 3600.0


def is_recent(found: FoundRun, now: float, dead_seconds: float) -> bool:
    """Tell whether a run is still shown: for an hour after its last word, less when it finished.

    Args:
        found: The run.
        now: Unix seconds.
        dead_seconds: How long runs are shown after their end.
    """
    return now - found.last_time < (dead_seconds if found.is_finished else QUIET_SECONDS)


def read_found(found: FoundRun) -> RankReading:
    """Give a found run as a rank; whether it lives and gets on, nobody can know."""
    record = record_found(found)
    rates = Rates(
        samples_per_second=found.values.get("samples_per_second"),
        tokens_per_second=found.values.get("tokens_per_second"),
    )
    return RankReading(
        run=found.run,
        rank="0",
        source=found.source,
        record=record,
        rates=rates,
        progress=measure_progress(record, is_alive=not found.is_finished),
        stall=Stall(None, None, found.last_time),
    )


def record_found(found: FoundRun) -> Record:
    """Write what is known of a found run as a record; everything else is `ABSENT`."""
    step, state = list(EMPTY_STEP), list(EMPTY_STATE)
    for word, value in found.values.items():
        if word in STEP:
            step[STEP[word]] = value
        elif word in STATE:
            state[STATE[word]] = value
    step[STEP["wall_time"]] = step[STEP["last_progress_time"]] = found.last_time
    step[STEP["nonfinite_losses"]] = found.nonfinite.get("loss", 0)
    state[STATE["nonfinite_gradients"]] = found.nonfinite.get("gradient", 0)
    state[STATE["nonfinite_evaluations"]] = found.nonfinite.get("evaluation", 0)
    state[STATE["evaluations"]] = found.evaluations
    if found.step is not None:
        step[STEP["global_step"]] = found.step
        step[STEP["steps"]] = found.steps_seen
    if found.epoch is not None:
        state[STATE["epoch"]] = found.epoch
    if found.evaluations_since_improvement is not None:
        state[STATE["evaluations_since_improvement"]] = found.evaluations_since_improvement
    if found.is_finished:
        state[STATE["state"]] = State.FINISHED
    metrics = list(found.metrics.items())[:MOST_METRICS]
    for index, (_, value) in enumerate(metrics):
        state[STATE["metric_0"] + index] = value
    return Record(step, state, metrics=[name for name, _ in metrics])
