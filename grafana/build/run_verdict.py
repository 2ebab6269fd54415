"""The state and bottleneck of a run: the meaning of their numbers, and queries for the numbers.

Prometheus records the numbers for each rank, and for each run on each machine;
`prometheus/rules/recording.yml` defines the conditions, which are those of the alerts. This module
defines the meaning of each number. All states are on one scale, on which a higher number is more
severe, so that the maximum over several machines is the state of the run.
"""

from __future__ import annotations

from typing import Final

from grafana.build.palette import (
    CRITICAL,
    DIED,
    ENDED,
    INFORMATION,
    OK,
    PHASES,
    STALLED,
    UNKNOWN,
    WARNING,
    State,
)
from trainvitals.verdicts import run_bounds

NOT_SEEN: Final = State(0, "not seen", UNKNOWN)
OBSERVED: Final = State(1, "known from logs", INFORMATION)
SILENT: Final = State(9, "silent", WARNING)
TERMINATED: Final = State(30, "terminated", WARNING)
GONE: Final = State(32, "gone", CRITICAL)
STATES: Final = (
    *(DIED, GONE, STALLED, TERMINATED, SILENT),
    *PHASES.values(),
    *(ENDED, OBSERVED, NOT_SEEN),
)

NO_ACCELERATOR: Final = State(19, "no accelerator", UNKNOWN)
NOT_ENOUGH_DATA: Final = State(20, "not enough data", UNKNOWN)
COMPUTE_BOUND: Final = State(21, run_bounds.COMPUTE_BOUND, OK)
UNDERUSED: Final = State(22, run_bounds.UNDERUSED, WARNING)
NOT_TRAINING: Final = State(23, run_bounds.NOT_IN_STEPS, INFORMATION)
SLOW_RANK: Final = State(24, run_bounds.SLOW_RANK, WARNING)
THROTTLED: Final = State(25, run_bounds.THROTTLED, WARNING)
INPUT_BOUND: Final = State(26, run_bounds.INPUT_BOUND, WARNING)
LOSS_IS_NAN: Final = State(27, run_bounds.LOSS_IS_NAN, CRITICAL)
VERDICTS: Final = (
    *(DIED, GONE, STALLED, TERMINATED, LOSS_IS_NAN, INPUT_BOUND, THROTTLED, SLOW_RANK),
    *(
        NOT_TRAINING,
        UNDERUSED,
        COMPUTE_BOUND,
        NO_ACCELERATOR,
        NOT_ENOUGH_DATA,
        SILENT,
        ENDED,
        NOT_SEEN,
    ),
)

RANK: Final = "job, instance, run, rank"
SLOW: Final = "training_rank_straggler{@run} == 1"

_STATE: Final = "run:training_state:number"
_VERDICT: Final = "run:training_verdict:number"
_OF_RANKS: Final = "run:rank_state:number"
_DEATHS: Final = "run:rank_death:timestamp_seconds"


def tell_state(by: str = "", whose: str = "@run") -> str:
    """Return a query for the state of the run, as reported at each point in time.

    Args:
        by: The labels to keep.
        whose: The short name of the matchers.
    """
    return f"max by ({by}) ({_STATE}{{{whose}}})"


def tell_verdict() -> str:
    """Return a query for the bottleneck of the run, as reported at each point in time."""
    return f"max({_VERDICT}{{@run}})"


def tell_rank_state() -> str:
    """Return a query for the state of each selected rank that is currently reported."""
    return f"{_OF_RANKS}{{@rank}}"


def recall_state(window: str, by: str = "", whose: str = "@run") -> str:
    """Return a query for the current state of the run or, if no longer reported, its final state.

    If the run is no longer reported but did not end, the state is `NOT_SEEN`.

    Args:
        window: The time for which a run is shown after its last sample.
        by: The labels to keep.
        whose: The short name of the matchers.
    """
    return f"max by ({by}) ({_recall(f'{_STATE}{{{whose}}}', window)})"


def recall_verdict(window: str) -> str:
    """Return a query for the current bottleneck of the run.

    Args:
        window: As for `recall_state`.
    """
    return f"max({_recall(f'{_VERDICT}{{@run}}', window)})"


def recall_trouble(window: str) -> str:
    """Return a query for the state of each rank that died, is gone, is stalled or was terminated.

    If a machine no longer reports the run, the ranks on the machine keep their last state.

    Args:
        window: As for `recall_state`.
    """
    ranks = f"{_OF_RANKS}{{@run}}"
    before = f"{_keep_ends(f'last_over_time({ranks}[{window}])')}"
    return (
        f"({ranks} or ({before}) unless on (job, instance, run) {_STATE}{{@run}})"
        f" >= {TERMINATED.number}"
    )


def tell_slow() -> str:
    """Return a query for the ranks that slow other ranks down, with the number of this verdict."""
    return f"{SLOW_RANK.number} * ({SLOW})"


def find_beginning(window: str) -> str:
    """Return a query for the time of each rank's death or, for other ranks, of its last progress.

    Args:
        window: As for `recall_state`.
    """
    died = f"last_over_time({_DEATHS}{{@run}}[{window}])"
    moved = f"last_over_time(training_last_progress_timestamp_seconds{{@run}}[{window}])"
    return f"({died} > {moved} or {moved} or {died})"


def _recall(recorded: str, window: str) -> str:
    last = f"last_over_time({recorded}[{window}])"
    return f"{recorded} or {_keep_ends(last)} or {NOT_SEEN.number} * {last}"


def _keep_ends(last: str) -> str:
    """Return an expression limited to the states in which a run is no longer reported."""
    return f"{last} == {ENDED.number} or {last} == {TERMINATED.number} or {last} >= {GONE.number}"
