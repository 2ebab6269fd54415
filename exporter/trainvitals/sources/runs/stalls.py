"""Detect stalled runs, with a time limit for each phase.

A run makes progress when a step ends or its phase changes. The maximum time until the next progress
depends on the phase and on the durations that the run has recorded:

========== =========================================================================
init,      one hour: data is indexed, weights are loaded, graphs are compiled
compile
train      one hour until five steps are done, because the first steps compile; then six
           times the slowest recent step, at least one minute, at most half an hour, but
           never less than twice that step, because a run with steps of 20 minutes must not
           exceed the limit at every step
validation three times the longest validation so far, at least half an hour
checkpoint three times the longest checkpoint so far, at least half an hour
idle       no limit: the run is waiting for something else
========== =========================================================================

A process that was stopped, by SIGSTOP or a debugger, counts as stalled immediately, in any phase. A
run whose record is final, or whose monitor was disabled, is never stalled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.runfile import STATE, STEP, Record, State
from trainvitals.sources.runs.moment import Moment, name_coarse_phase

WARM_UP_SECONDS = 3600.0
WARM_UP_STEPS = 5
_STEP_FACTOR, _PAUSE_FACTOR, _LEAST_STEP_FACTOR = 6.0, 3.0, 2.0
_SHORTEST_SECONDS, _LONGEST_SECONDS = 60.0, 1800.0
_STEPS, _SLOWEST, _STATE = STEP["steps"], STEP["slowest_step_seconds"], STATE["state"]
_VALIDATION = STATE["longest_validation_seconds"]
_CHECKPOINT = STATE["longest_checkpoint_seconds"]

Cause = Literal["stopped", "no_progress"]


@dataclass(frozen=True, slots=True)
class Stall:
    """The result of the check whether a rank is stalled.

    Attributes:
        cause: The cause of the stall: `stopped` if the process was stopped; `no_progress` if the
            time without progress exceeds the limit; None if the rank makes progress.
        threshold_seconds: The current limit on the time without progress; None if there is no
            limit.
        progress_timestamp_seconds: The Unix time of the latest progress, according to this
            machine's current clock; None if the time is unknown.
    """

    cause: Cause | None
    threshold_seconds: float | None
    progress_timestamp_seconds: float | None


def detect_stall(record: Record, now: Moment, *, is_stopped: bool) -> Stall:
    """Return whether a living rank is stalled, and the limit for its current phase.

    Args:
        record: The rank's last record.
        now: The time of the reading.
        is_stopped: Whether the kernel reports the rank's process as stopped.
    """
    age = now.progress_age_seconds(record)
    progress = None if age is None else _name_time(record, now.wall_time - age)
    if record.state[_STATE] > State.RUNNING:
        return Stall(None, None, progress)
    threshold = learn_threshold(record)
    cause: Cause | None = None
    if is_stopped:
        cause = "stopped"
    elif threshold is not None and age is not None and age > threshold:
        cause = "no_progress"
    return Stall(cause, threshold, progress)


def learn_threshold(record: Record) -> float | None:
    """Return how long the current phase of a run may last without progress, in seconds.

    Returns:
        The limit in seconds; None if there is no limit or the phase is unknown.
    """
    match name_coarse_phase(record):
        case "init" | "compile":
            return WARM_UP_SECONDS
        case "train":
            return _learn_step(record)
        case "validation":
            return max(_LONGEST_SECONDS, _PAUSE_FACTOR * record.state[_VALIDATION])
        case "checkpoint":
            return max(_LONGEST_SECONDS, _PAUSE_FACTOR * record.state[_CHECKPOINT])
        case _:
            return None


def _learn_step(record: Record) -> float:
    slowest = record.step[_SLOWEST]
    if record.step[_STEPS] < WARM_UP_STEPS or slowest <= 0:
        return WARM_UP_SECONDS
    longest = max(_LONGEST_SECONDS, _LEAST_STEP_FACTOR * slowest)
    return min(max(_STEP_FACTOR * slowest, _SHORTEST_SECONDS), longest)


def _name_time(record: Record, timestamp: float) -> float:
    """Return the Unix time of a rank's latest progress.

    If the trainer's clock and this machine's clock agree, the trainer's timestamp is returned, so
    that the value remains constant.
    """
    stamp = max(record.step[STEP["last_progress_time"]], record.step[STEP["phase_start_time"]])
    return stamp if abs(stamp - timestamp) < 1.0 else round(timestamp, 1)
