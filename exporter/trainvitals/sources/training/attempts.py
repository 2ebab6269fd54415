"""Runs that were started again: how often, and what work was lost.

Each start of a rank leaves a run file of its own. Two that bear the same run and rank are attempts
of the same work: when one has died and another one follows, the steps between the last step of the
dead one and the first of its successor were done in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from trainvitals.runfile import STATE, STEP, Record, State

MOST_REMEMBERED = 1024
_MOST_STEPS = 2.0**53  # beyond, a float no longer counts by ones

Key = TypeVar("Key")
Value = TypeVar("Value")

_STEPS, _GLOBAL, _TRAIN = STEP["steps"], STEP["global_step"], STEP["train_seconds"]
_STATE, _FIRST = STATE["state"], STATE["first_global_step"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one rank.

    Attributes:
        key: Tells it from all others.
        run: The run.
        rank: The rank.
        created_time: When it started, Unix seconds.
        record: What it last told.
        is_alive: Whether its process is.
    """

    key: Hashable
    run: str
    rank: str
    created_time: float
    record: Record
    is_alive: bool

    @property
    def has_stepped(self) -> bool:
        """It has done a step, so its first global step is final (a checkpoint was loaded)."""
        return self.record.step[_STEPS] > 0

    @property
    def has_finished(self) -> bool:
        """It has said that its work is done."""
        return self.record.state[_STATE] in (State.FINISHED, State.ENDED)


@dataclass(frozen=True, slots=True)
class Losses:
    """What the restarts of a run have cost, on the rank that lost the most.

    Attributes:
        restarts: How often it was started again after it had died.
        steps: How many steps were done in vain.
        seconds: How long these steps took, by the mean of the attempt that did them.
    """

    restarts: int = 0
    steps: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class _Seen:
    """What is kept of an attempt: a record has some kilobytes, and thousands may be remembered."""

    key: Hashable
    created_time: float
    is_alive: bool
    has_finished: bool
    last_step: float
    step_seconds: float


@dataclass(slots=True)
class _Chain:
    """The attempts of one rank: the latest, and the latest that has done a step.

    One that its successor overtook while it was still alive is `dying`: nothing is lost by it until
    it has died, for it may as well be another run by the same name. `first_after` is the first step
    of its successor, None before that has done one.
    """

    latest: _Seen | None = None
    worked: _Seen | None = None
    dying: _Seen | None = None
    first_after: float | None = None
    restarts: int = 0
    steps: float = 0.0
    seconds: float = 0.0

    def follow(self, attempt: Attempt, present: Container[Hashable]) -> None:
        """Take up an attempt; those that came before the latest are over and counted."""
        latest = self.latest
        if latest is not None and latest.key != attempt.key:
            if attempt.created_time <= latest.created_time:
                self._look_after_dying(attempt)
                return
            if latest.is_alive and latest.key in present:
                self.dying, self.first_after = latest, None
            else:
                self.restarts += not latest.has_finished
        self.latest = seen = _see(attempt)
        if attempt.has_stepped:
            before, first = self.worked, attempt.record.state[_FIRST]
            if before is not None and before.key != attempt.key:
                if self.dying is not None and before.key == self.dying.key:
                    self.first_after = first
                else:
                    self._count_loss(before, first)
            self.worked = seen

    def _look_after_dying(self, attempt: Attempt) -> None:
        """Count what an attempt lost that its successor overtook, once it has died."""
        if self.dying is None or self.dying.key != attempt.key or attempt.is_alive:
            return
        dead = _see(attempt)
        self.dying = None
        self.restarts += not dead.has_finished
        if self.first_after is not None:
            self._count_loss(dead, self.first_after)
        elif self.worked is not None and self.worked.key == dead.key:
            self.worked = dead

    def _count_loss(self, before: _Seen, first: float) -> None:
        if before.has_finished:
            return
        last = before.last_step
        if 0 <= first < last < _MOST_STEPS:
            self.steps += last - first
            self.seconds += (last - first) * before.step_seconds


class AttemptLedger:
    """Remembers the attempts of every rank, also when their files are gone.

    Its numbers never go backwards while it exists.
    """

    def __init__(self) -> None:
        self._chains: dict[tuple[str, str], _Chain] = {}
        self._worst: dict[str, Losses] = {}

    def update(self, attempts: Iterable[Attempt]) -> Mapping[str, Losses]:
        """Take up the attempts whose files are there now.

        Args:
            attempts: All of them, dead or alive, in any order; those that were dead before and
                have not changed may be left out.

        Returns:
            What was lost so far, by run; only of runs that have attempts now.
        """
        ordered = sorted(attempts, key=lambda attempt: attempt.created_time)
        present = {attempt.key for attempt in ordered}
        runs: dict[str, dict[str, _Chain]] = {}
        for attempt in ordered:
            chain = self._chains.setdefault((attempt.run, attempt.rank), _Chain())
            chain.follow(attempt, present)
            runs.setdefault(attempt.run, {})[attempt.rank] = chain
        for run, chains in runs.items():
            self._worst[run] = _find_worst(chains.values(), self._worst.pop(run, Losses()))
        _forget(self._worst, runs)
        _forget(self._chains, {(attempt.run, attempt.rank) for attempt in ordered})
        return {run: self._worst[run] for run in runs}

    def find(self, run: str) -> Losses | None:
        """Give what a run has lost so far; None for one that was never taken up."""
        return self._worst.get(run)


def _forget(kept: dict[Key, Value], present: Collection[Key]) -> None:
    """Let go of the oldest of what is not there any more."""
    spare = len(kept) - max(MOST_REMEMBERED, len(present))
    for key in [key for key in kept if key not in present][: max(0, spare)]:
        del kept[key]


def _find_worst(chains: Iterable[_Chain], before: Losses) -> Losses:
    """Give the most that any rank has lost, now or when its files were still there."""
    rows = [(chain.restarts, chain.steps, chain.seconds) for chain in chains]
    rows.append((before.restarts, before.steps, before.seconds))
    restarts, steps, seconds = (max(column) for column in zip(*rows, strict=True))
    return Losses(int(restarts), steps, seconds)


def _see(attempt: Attempt) -> _Seen:
    return _Seen(
        key=attempt.key,
        created_time=attempt.created_time,
        is_alive=attempt.is_alive,
        has_finished=attempt.has_finished,
        last_step=attempt.record.step[_GLOBAL],
        step_seconds=_mean_step_seconds(attempt.record),
    )


def _mean_step_seconds(record: Record) -> float:
    steps, seconds = record.step[_STEPS], record.step[_TRAIN]
    return seconds / steps if steps > 0 and 0 < seconds < float("inf") else 0.0
