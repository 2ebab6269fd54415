"""The state of a run as a word, by the same conditions as in the dashboards' recording rules.

The first condition in this table that is true determines the state:

============== =================================================================================
word           condition
============== =================================================================================
`died`         a signal, an exception, the OOM killer or an unknown cause ended a rank, and no rank
               has been started since; a rank that Ctrl-C (130) or SIGTERM ended did not die
`stalled`      a rank has made no progress for longer than the limit for its phase
`terminated`   SIGTERM ended a rank, and no rank has been started since
`silent`       every rank that is alive has a monitor that has disabled itself
`idle`, `starting`, `compiling`, `saving`, `evaluating`, `training`
               the first state in this list that matches the phase of a rank that is alive and
               reports
`terminated`   no rank is alive, and Ctrl-C ended a rank
`ended`        no rank is alive, and the reason for an end may still become known
`finished`     no rank is alive, or every rank's file reports that the rank has finished
`silent`       only the run's files are known, and they have not changed for 10 minutes
`training`     only the run's files are known
============== =================================================================================

The recording rules record the states as the numbers in `NUMBERS`. The rules do not know why a run
ended, or that files report the end of a run. The rules use one more state, `gone`, for a run that
was alive 15 minutes ago and is no longer reported. A reading contains no history, and therefore no
run that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainvitals.runfile import STATE, STEP, Phase, State
from trainvitals.sources.runs.endings import REASONS, Ending, Reason
from trainvitals.sources.runs.moment import find_phase, name_coarse_phase
from trainvitals.sources.runs.reading import RankReading
from trainvitals.verdicts.thresholds import Thresholds

NUMBERS: Mapping[int, tuple[str, ...]] = {
    1: ("training", "finished"),
    2: ("finished", "ended", "terminated"),
    3: ("training",),
    4: ("evaluating",),
    5: ("saving",),
    6: ("compiling",),
    7: ("starting",),
    8: ("idle",),
    9: ("silent", "finished"),
    30: ("terminated",),
    31: ("stalled",),
    32: ("gone",),
    33: ("died",),
}
"""The words for each value of `run:training_state:number`."""

Request = Literal["interrupted", "terminated"]

_SIGNAL_CODE = 128
_KILLED = ("signal", "oom", "unknown")
_STATE, _STEPS = STATE["state"], STEP["steps"]
# The phases of a step in which the rank has received a batch.
_WITH_BATCH = (Phase.H2D, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
# If the phases of ranks differ, the first phase in this list counts.
_PHASES = {
    "idle": "idle",
    "init": "starting",
    "compile": "compiling",
    "checkpoint": "saving",
    "validation": "evaluating",
    "train": "training",
}


@dataclass(frozen=True, slots=True)
class Start:
    """The progress of the runs that are starting on a machine.

    Both attributes are None if no run that is alive reports a phase.

    Attributes:
        has_model: Whether every rank that is alive has left the phase `init`.
        has_data: Whether every rank that is alive has received a batch.
    """

    has_model: bool | None = None
    has_data: bool | None = None


def judge_start(ranks: Sequence[RankReading]) -> Start:
    """Return the startup progress of the ranks that are alive on this machine."""
    phases = [
        (rank, find_phase(rank.record))
        for rank in ranks
        if rank.ending is None and rank.liveness is not None
    ]
    known = [(rank, phase) for rank, phase in phases if phase is not None]
    if not known:
        return Start()
    return Start(
        has_model=all(phase != Phase.INIT for _, phase in known),
        has_data=all(rank.record.step[_STEPS] > 0 or phase in _WITH_BATCH for rank, phase in known),
    )


def judge_state(ranks: Sequence[RankReading], now: float, thresholds: Thresholds) -> str:
    """Return the state of a run, which is one of the words in the module's table.

    Args:
        ranks: The run's ranks on this machine, at least one.
        now: The current time in Unix seconds.
        thresholds: The thresholds of the alerts, by name.
    """
    dead = find_dead(ranks, now, thresholds)
    if not all(is_terminated(end, thresholds) for end in dead):
        return "died"
    if any(rank.stall is not None and rank.stall.cause is not None for rank in ranks):
        return "stalled"
    if dead:
        return "terminated"
    living = [rank for rank in ranks if rank.liveness is not None and rank.ending is None]
    if living:
        return _judge_phase(living)
    if any(rank.liveness is not None for rank in ranks):
        return _judge_end(ranks, now, thresholds)
    return _judge_observed(ranks, now, thresholds)


def find_dead(ranks: Sequence[RankReading], now: float, thresholds: Thresholds) -> list[Ending]:
    """Return the ends of the ranks that died since the run's last start, the earliest first."""
    starts = [rank.start_timestamp_seconds for rank in ranks]
    started = max((start for start in starts if start is not None), default=float("-inf"))
    ends = (rank.ending for rank in ranks if rank.ending is not None)
    dead = [end for end in ends if end.time > started and _is_death(end, now, thresholds)]
    return sorted(dead, key=lambda end: end.time)


def name_code(ending: Ending) -> int | None:
    """Return the exit code of a rank as a shell reports the code.

    For a process that a signal ended, the code is 128 plus the signal's number. The result is None
    if the exit code is unknown.
    """
    return ending.exit_code if ending.signal is None else _SIGNAL_CODE + ending.signal


def is_interrupted(ending: Ending, thresholds: Thresholds) -> bool:
    """Return whether Ctrl-C ended a rank."""
    return name_end(ending.reason, name_code(ending), thresholds) == "interrupted"


def is_terminated(ending: Ending, thresholds: Thresholds) -> bool:
    """Return whether SIGTERM ended a rank without an exception."""
    return name_end(ending.reason, name_code(ending), thresholds) == "terminated"


def name_end(reason: str, code: int | None, thresholds: Thresholds) -> Reason | Request:
    """Return how a rank ended: the request that ended the rank, or else the reason for the end.

    A reason that this version does not know is returned as `unknown`.

    Args:
        reason: The reason for the end, as in `training_process_end_timestamp_seconds`.
        code: The exit code as `name_code` returns it; None if the exit code is unknown.
        thresholds: The thresholds of the alerts, by name.
    """
    alert = "training_run_failed" if reason == "exception" else "training_run_lost"
    if reason != "finished" and code == thresholds[f"{alert}:interrupt_exit_code"]:
        return "interrupted"
    if reason in _KILLED and code == thresholds["training_run_terminated:exit_code"]:
        return "terminated"
    return next((known for known in REASONS if known == reason), "unknown")


def is_reporting(rank: RankReading) -> bool:
    """Return whether a rank's monitor is still enabled."""
    return rank.record.state[_STATE] != State.SWITCHED_OFF


def is_settled(ending: Ending, now: float, thresholds: Thresholds) -> bool:
    """Return whether the reason for a rank's end is known, or can no longer become known."""
    waiting = thresholds["training_run_lost:unknown_window_seconds"]
    return ending.reason != "unknown" or now - ending.time >= waiting


def _is_death(ending: Ending, now: float, thresholds: Thresholds) -> bool:
    return (
        ending.reason != "finished"
        and is_settled(ending, now, thresholds)
        and not is_interrupted(ending, thresholds)
    )


def _judge_phase(living: Sequence[RankReading]) -> str:
    reporting = [rank for rank in living if is_reporting(rank)]
    if not reporting:
        return "silent"
    phases = {name_coarse_phase(rank.record) for rank in reporting}
    return next((word for phase, word in _PHASES.items() if phase in phases), "starting")


def _judge_end(ranks: Sequence[RankReading], now: float, thresholds: Thresholds) -> str:
    ends = [rank.ending for rank in ranks if rank.ending is not None]
    if any(is_interrupted(end, thresholds) for end in ends):
        return "terminated"
    return "finished" if all(is_settled(end, now, thresholds) for end in ends) else "ended"


def _judge_observed(ranks: Sequence[RankReading], now: float, thresholds: Thresholds) -> str:
    if all(rank.record.state[_STATE] == State.FINISHED for rank in ranks):
        return "finished"
    times = [rank.stall.progress_timestamp_seconds for rank in ranks if rank.stall is not None]
    newest = max((time for time in times if time is not None), default=None)
    if newest is not None and now - newest > thresholds["training_stalled:silent_window_seconds"]:
        return "silent"
    return "training"
