"""The state of a run in one word, as the boards tell it.

Of these the first whose condition holds is the answer:

============== =================================================================================
word           condition
============== =================================================================================
`died`         a rank ended by a signal, an exception, the OOM killer or nobody knows how, and no
               rank was started since; one that Ctrl-C ended (130) did not die
`terminated`   the same, and SIGTERM ended all of them
`stalled`      a rank stands still for longer than its phase may take
`silent`       every living rank's monitor has switched itself off
`idle`, `starting`, `compiling`, `saving`, `evaluating`, `training`
               the phase of the living ranks: where they differ, the one that stands first here
`terminated`   no rank lives, and Ctrl-C ended one
`ended`        no rank lives, and how one ended may still become known
`finished`     no rank lives
`silent`       only its files tell of it, and they have not for 10 minutes
`training`     only its files tell of it
============== =================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Tone
from trainvitals.runfile import STATE, State
from trainvitals.sources.training.endings import Ending
from trainvitals.sources.training.moment import name_coarse_phase
from trainvitals.sources.training.reading import RankReading

SILENT_SECONDS = 600.0
TONES: Mapping[str, Tone] = MappingProxyType(
    {
        "training": "good",
        "starting": "busy",
        "compiling": "busy",
        "evaluating": "busy",
        "saving": "busy",
        "idle": "unknown",
        "stalled": "warning",
        "silent": "warning",
        "finished": "good",
        "ended": "unknown",
        "terminated": "warning",
        "died": "bad",
    }
)

_SIGNAL_CODE = 128
_INTERRUPTED = LIMITS["training_run_lost:interrupt_exit_code"]
_TERMINATED = LIMITS["training_run_terminated:exit_code"]
_SETTLING_SECONDS = LIMITS["training_run_lost:unknown_window_seconds"]
_STATE = STATE["state"]
# Of ranks in several phases, the first that is here counts.
_PHASES = {
    "idle": "idle",
    "init": "starting",
    "compile": "compiling",
    "checkpoint": "saving",
    "validation": "evaluating",
    "train": "training",
}


def tell_state(ranks: Sequence[RankReading], now: float) -> str:
    """Tell the state of a run; see above.

    Args:
        ranks: The run's ranks on this machine, at least one.
        now: Unix seconds.
    """
    dead = find_dead(ranks, now)
    if dead:
        return "terminated" if {name_code(end) for end in dead} == {_TERMINATED} else "died"
    if any(rank.stall is not None and rank.stall.cause is not None for rank in ranks):
        return "stalled"
    living = [rank for rank in ranks if rank.liveness is not None and rank.ending is None]
    if living:
        return _tell_phase(living)
    if any(rank.liveness is not None for rank in ranks):
        return _tell_end(ranks, now)
    return _tell_observed(ranks, now)


def find_dead(ranks: Sequence[RankReading], now: float) -> list[Ending]:
    """Give how ranks died of which the run was not started again since, the first death first."""
    starts = [rank.start_timestamp_seconds for rank in ranks]
    started = max((start for start in starts if start is not None), default=float("-inf"))
    ends = (rank.ending for rank in ranks if rank.ending is not None)
    dead = [end for end in ends if end.time > started and _is_death(end, now)]
    return sorted(dead, key=lambda end: end.time)


def name_code(ending: Ending) -> int | None:
    """Give the exit code as a shell names it: 128 and the signal for what was killed."""
    return ending.exit_code if ending.signal is None else _SIGNAL_CODE + ending.signal


def _is_death(ending: Ending, now: float) -> bool:
    if ending.reason == "unknown":
        return now - ending.time >= _SETTLING_SECONDS
    return ending.reason != "finished" and name_code(ending) != _INTERRUPTED


def _tell_phase(living: Sequence[RankReading]) -> str:
    if all(rank.record.state[_STATE] == State.SWITCHED_OFF for rank in living):
        return "silent"
    phases = {name_coarse_phase(rank.record) for rank in living}
    return next((word for phase, word in _PHASES.items() if phase in phases), "starting")


def _tell_end(ranks: Sequence[RankReading], now: float) -> str:
    ends = [rank.ending for rank in ranks if rank.ending is not None]
    if any(name_code(end) == _INTERRUPTED for end in ends):
        return "terminated"
    unsettled = (end.reason == "unknown" and now - end.time < _SETTLING_SECONDS for end in ends)
    return "ended" if any(unsettled) else "finished"


def _tell_observed(ranks: Sequence[RankReading], now: float) -> str:
    if all(rank.record.state[_STATE] == State.FINISHED for rank in ranks):
        return "finished"
    told = [rank.stall.progress_timestamp_seconds for rank in ranks if rank.stall is not None]
    newest = max((time for time in told if time is not None), default=None)
    if newest is not None and now - newest > SILENT_SECONDS:
        return "silent"
    return "training"
