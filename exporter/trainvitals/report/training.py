"""What is told of training: starts of runs, how they ended, and their best metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.report.points import Points

Outcome = Literal[
    "active",
    "completed",
    "failed",
    "out of memory",
    "killed",
    "terminated",
    "interrupted",
    "vanished",
    "unknown",
]
BAD: frozenset[Outcome] = frozenset({"failed", "out of memory", "killed", "vanished", "unknown"})
"""Outcomes that somebody has to look at."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run.

    Attributes:
        run: The run's name.
        instances: The machines on which its ranks were.
        started: When.
        ended: When; None while it lives, and where it vanished without an end.
        outcome: How it ended.
        exit_code: That of the rank that ended it; None unknown.
        is_resumed: Whether the run was started again afterwards.
    """

    run: str
    instances: tuple[str, ...]
    started: float
    ended: float | None
    outcome: Outcome
    exit_code: int | None
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """A run of which logs or event files tell, and nobody whether its process lives.

    Attributes:
        run: Its name.
        instance: The machine.
        source: `tensorboard` or `log`.
        progressed: When it last got on; None unknown.
    """

    run: str
    instance: str
    source: str
    progressed: float | None


@dataclass(frozen=True, slots=True)
class Best:
    """The best value of a metric that a run told in the period.

    Attributes:
        name: Its name, as `val_iou`.
        split: `train`, `validation` or whatever the run calls it; empty for none.
        run: The run that had it.
        instance: Its machine.
        value: The value.
        is_lower_better: Whether the lowest is the best, as of a loss.
        target: What somebody wants it to be; None for no wish.
        by_hour: The best of each hour; a point stands at the end of its hour.
    """

    name: str
    split: str
    run: str
    instance: str
    value: float
    is_lower_better: bool
    target: float | None = None
    by_hour: Points = ()

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.is_lower_better else self.value >= self.target


@dataclass(frozen=True, slots=True)
class Runs:
    """The training of the period.

    Attributes:
        is_told: Whether anybody looks for runs at all.
        attempts: All starts that lived in the period, the latest first.
        observed: Runs that only logs tell of.
        best: The best value of each metric, of each run.
        lost_seconds: Time of steps that were done in vain because runs died; None unknown.
        lost_steps: Those steps.
    """

    is_told: bool = False
    attempts: tuple[Attempt, ...] = ()
    observed: tuple[Observed, ...] = ()
    best: tuple[Best, ...] = ()
    lost_seconds: float | None = None
    lost_steps: float | None = None
