"""The state of a run in one word, by the same conditions as the recording rules of the boards.

The first of these conditions that holds decides:

============== =================================================================================
word           condition
============== =================================================================================
`died`         a rank ended by a signal, an exception, the OOM killer or for an unknown reason, and
               no rank was started since; a rank that Ctrl-C (130) or SIGTERM ended did not die
`stalled`      a rank makes no progress for longer than the limit of its phase
`terminated`   SIGTERM ended a rank, and no rank was started since
`silent`       the monitor of every living rank has disabled itself
`idle`, `starting`, `compiling`, `saving`, `evaluating`, `training`
               the phase of the living ranks that report: the first of this list that one is in
`terminated`   no rank lives, and Ctrl-C ended one
`ended`        no rank lives, and the reason of an end may still become known
`finished`     no rank lives
`silent`       only its files are known, and they have not changed for 10 minutes
`training`     only its files are known
============== =================================================================================

The rules record them as numbers, `NUMBERS`. They do not know why a run ended, nor that its files say
that it finished; and they know one state more, `gone`: a run that lived 15 minutes ago and is no
longer reported. A reading has no past, so a run that is gone is not in it.
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
"""The words for each number that `run:training_state:number` has."""

Request = Literal["interrupted", "terminated"]

_SIGNAL_CODE = 128
_KILLED = ("signal", "oom", "unknown")
_STATE, _STEPS = STATE["state"], STEP["steps"]
# The phases of a step that has its batch.
_WITH_BATCH = (Phase.H2D, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
# Where the phases of ranks differ, the first of this list counts.
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
    """How far the living runs of a machine have started; None without a living run that reports.

    Attributes:
        has_model: Whether every one of them has left the phase `init`.
        has_data: Whether every one of them has received a batch.
    """

    has_model: bool | None = None
    has_data: bool | None = None


def judge_start(ranks: Sequence[RankReading]) -> Start:
    """Return how far the living runs have started; all ranks of a run that live here count."""
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
    """Return the state of a run, one of the words above.

    Args:
        ranks: The run's ranks on this machine, at least one.
        now: Unix seconds.
        thresholds: The thresholds.
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
    """Return the ends of ranks that died since the run was last started, the earliest first."""
    starts = [rank.start_timestamp_seconds for rank in ranks]
    started = max((start for start in starts if start is not None), default=float("-inf"))
    ends = (rank.ending for rank in ranks if rank.ending is not None)
    dead = [end for end in ends if end.time > started and _is_death(end, now, thresholds)]
    return sorted(dead, key=lambda end: end.time)


def name_code(ending: Ending) -> int | None:
    """Return the exit code of a shell, 128 plus the signal for a killed process; None if unknown."""
    return ending.exit_code if ending.signal is None else _SIGNAL_CODE + ending.signal


def is_interrupted(ending: Ending, thresholds: Thresholds) -> bool:
    """Return whether Ctrl-C ended a rank."""
    return name_end(ending.reason, name_code(ending), thresholds) == "interrupted"


def is_terminated(ending: Ending, thresholds: Thresholds) -> bool:
    """Return whether SIGTERM ended a rank without an exception."""
    return name_end(ending.reason, name_code(ending), thresholds) == "terminated"


def name_end(reason: str, code: int | None, thresholds: Thresholds) -> Reason | Request:
    """Return how a rank ended: by a request, or else its reason; an unfamiliar reason is unknown.

    Args:
        reason: The reason of its end, as `training_process_end_timestamp_seconds` has it.
        code: The exit code of a shell, 128 plus the signal for a killed process; None if unknown.
        thresholds: The thresholds.
    """
    alert = "training_run_failed" if reason == "exception" else "training_run_lost"
    if reason != "finished" and code == thresholds[f"{alert}:interrupt_exit_code"]:
        return "interrupted"
    if reason in _KILLED and code == thresholds["training_run_terminated:exit_code"]:
        return "terminated"
    return next((known for known in REASONS if known == reason), "unknown")


def is_reporting(rank: RankReading) -> bool:
    """Return whether the monitor of a rank has not disabled itself."""
    return rank.record.state[_STATE] != State.SWITCHED_OFF


def is_settled(ending: Ending, now: float, thresholds: Thresholds) -> bool:
    """Return whether the reason of an end is known, or too old to become known."""
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
