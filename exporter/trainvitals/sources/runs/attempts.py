"""Count the restarts of training runs, and the work that was lost because of the restarts.

Each start of a rank creates one run file. Run files with the same run and rank are attempts at the
same work. If an attempt did not finish and another attempt follows, the steps from the first step
of the later attempt to the last step of the earlier attempt were lost.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from trainvitals.foreign_numbers import MOST_COUNT, read_duration
from trainvitals.runfile import STATE, STEP, Record, State

# Runs whose files were deleted; each takes about half a kilobyte.
MOST_REMEMBERED = 512

Key = TypeVar("Key")
Value = TypeVar("Value")

_STEPS, _GLOBAL, _TRAIN = STEP["steps"], STEP["global_step"], STEP["train_seconds"]
_STATE, _FIRST = STATE["state"], STATE["first_global_step"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one rank of a training run.

    Attributes:
        key: The identity of the attempt's run file.
        run: The name of the run to which the rank belongs.
        rank: The rank that was started.
        created_time: The time when the attempt started, in Unix seconds.
        record: The last record in the run file.
        is_alive: Whether the attempt's process is alive.
    """

    key: Hashable
    run: str
    rank: str
    created_time: float
    record: Record
    is_alive: bool

    @property
    def has_stepped(self) -> bool:
        """Whether the attempt has completed a step, after which its first global step is final."""
        return self.record.step[_STEPS] > 0

    @property
    def has_finished(self) -> bool:
        """Whether the state in the attempt's last record is `FINISHED` or `ENDED`."""
        return self.record.state[_STATE] in (State.FINISHED, State.ENDED)


@dataclass(frozen=True, slots=True)
class Losses:
    """The steps and time that a run lost because of restarts.

    Each number is the maximum of any rank of the run.

    Attributes:
        restarts: The number of restarts after an attempt that did not finish.
        steps: The number of steps that were lost because of these restarts.
        seconds: The duration of the lost steps, estimated from the mean step duration of the
            attempt that completed these steps.
    """

    restarts: int = 0
    steps: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class _Seen:
    """The part of an attempt that is kept in memory.

    An attempt's whole record is not kept, because a record takes several kilobytes and there may be
    thousands of attempts.
    """

    key: Hashable
    created_time: float
    is_alive: bool
    has_finished: bool
    last_step: float
    step_seconds: float


@dataclass(slots=True)
class _Chain:
    """One rank's latest attempt, and the rank's latest attempt that has completed a step.

    `dying` is an attempt that was still alive when its successor started. The loss of `dying` is
    counted only after that attempt has ended, since the attempt may belong to another run with the
    same name. `first_after` is the first step of the successor of `dying`; `first_after` is None
    until the successor has completed a step.
    """

    latest: _Seen | None = None
    worked: _Seen | None = None
    dying: _Seen | None = None
    first_after: float | None = None
    restarts: int = 0
    steps: float = 0.0
    seconds: float = 0.0

    def follow(self, attempt: Attempt, present: Container[Hashable]) -> None:
        """Add an attempt, or update `dying` if a later attempt is already known."""
        latest = self.latest
        if latest is not None and latest.key != attempt.key:
            if attempt.created_time <= latest.created_time:
                self._measure_after_death(attempt)
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

    def _measure_after_death(self, attempt: Attempt) -> None:
        """Count the loss of the attempt `dying` if the given attempt is `dying` and has ended."""
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
        if 0 <= first < last <= MOST_COUNT:
            self.steps += last - first
            self.seconds += (last - first) * before.step_seconds


class AttemptHistory:
    """Keeps the attempts of every rank, even after the attempts' run files were deleted.

    The losses of a run never decrease during the lifetime of the object.
    """

    def __init__(self) -> None:
        self._chains: dict[tuple[str, str], _Chain] = {}
        self._worst: dict[str, Losses] = {}

    def update(self, attempts: Iterable[Attempt]) -> Mapping[str, Losses]:
        """Add the attempts whose run files currently exist.

        Args:
            attempts: All attempts whose run files exist, in any order; attempts that had ended
                before the last call and have not changed may be left out.

        Returns:
            The losses so far for each run in `attempts`, by run name.
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
        """Return the losses of a run so far; None if the run is unknown."""
        return self._worst.get(run)


def _forget(kept: dict[Key, Value], present: Collection[Key]) -> None:
    """Drop the oldest entries whose keys are not present, if there are too many entries."""
    spare = len(kept) - max(MOST_REMEMBERED, len(present))
    for key in [key for key in kept if key not in present][: max(0, spare)]:
        del kept[key]


def _find_worst(chains: Iterable[_Chain], before: Losses) -> Losses:
    """Return the maximum of each loss over a run's ranks and the losses that were found before."""
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
    return (read_duration(seconds) or 0.0) / steps if steps > 0 else 0.0
