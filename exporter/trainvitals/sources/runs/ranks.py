"""Read the ranks of all runs from run files, and from the event files and logs of other runs.

A run in an event file or log may also have a run file. The two are the same run if they have the
same name. They are also the same run if the process that wrote the run file also wrote the event
file, as the file name `events.out.tfevents.SECOND.HOST.PID.…` shows. Such a run is shown only once:
the run file contains more data, so the event file or log is ignored while the run file exists.

This module is imported when the first run appears, so that machines without training do not load
this code.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainvitals.foreign_numbers import read_amount
from trainvitals.runfile import EMPTY_STATE, EMPTY_STEP, MOST_METRICS, STATE, STEP, Record, State
from trainvitals.runfile.bounds import bound_state, bound_step
from trainvitals.sources.runs.attempts import Attempt, AttemptHistory
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.moment import Moment
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.rates import Rates, measure_progress, measure_rates
from trainvitals.sources.runs.reading import RankReading, RunReading
from trainvitals.sources.runs.scalars import FoundRun
from trainvitals.sources.runs.seen_files import SeenFile
from trainvitals.sources.runs.stalls import Stall, detect_stall
from trainvitals.sources.runs.starts import (
    DEAD_SECONDS,
    MOST_RANKS,
    MOST_RUNS,
    Start,
    StartRegister,
    choose_shown,
    count_overtaken,
    date_start,
    find_latest,
)
from trainvitals.sources.runs.stragglers import Slowness, StragglerDetector

# Logs and event files are written irregularly, and most of them do not mark a run's end.
QUIET_SECONDS = 3600.0
_PREFIX = ["events", "out", "tfevents"]
_CLOCK_SECONDS = 2.0
# The last lines of a log may be written after the client has ended.
_LAST_LINES_SECONDS = 60.0


def is_recent(found: FoundRun, now: float, dead_seconds: float) -> bool:
    """Return whether a run is still shown.

    A run is shown for one hour after the last write to its log or event files. A finished run is
    shown for `dead_seconds` after the run's end.

    Args:
        found: The run, as found in event files or a log.
        now: The current time, in Unix seconds.
        dead_seconds: The time for which finished runs are shown after their end, in seconds.
    """
    return now - found.last_time < (dead_seconds if found.is_finished else QUIET_SECONDS)


def read_found(found: FoundRun) -> RankReading:
    """Return a run from event files or a log as rank 0, without liveness or a stall check."""
    record = record_found(found)
    rates = Rates(
        samples_per_second=read_amount(found.values.get("samples_per_second")),
        tokens_per_second=read_amount(found.values.get("tokens_per_second")),
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
    """Return the values of a run from event files or a log as a record.

    All other words of the record are `ABSENT`.
    """
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
    return Record(bound_step(step), bound_state(state), metrics=[name for name, _ in metrics])


def leave_out_instrumented(found: Iterable[FoundRun], starts: Sequence[Start]) -> list[FoundRun]:
    """Return the runs from event files and logs that do not also have a run file.

    Args:
        found: The runs in event files and logs.
        starts: All starts with a run file, including starts that are no longer shown.
    """
    by_name: dict[str, list[Start]] = {}
    for start in starts:
        by_name.setdefault(start.run, []).append(start)
    return [
        run
        for run in found
        if not any(_is_of(run, start) for start in by_name.get(run.run, ()))
        and not any(_made(start, run.path) for start in starts)
    ]


def _is_of(run: FoundRun, start: Start) -> bool:
    """Return whether a run belongs to a start with the same name, and is not a later run."""
    return start.ending is None or run.last_time <= start.ending.time + _LAST_LINES_SECONDS


def _made(start: Start, path: str) -> bool:
    """Return whether the process of the given start wrote the event file at the given path."""
    *prefix, second, writer = [*os.path.basename(path).split(".", 4), "", ""][:5]  # noqa: PTH119 - hot
    host, pid = start.identity.static.get("hostname"), start.identity.pid
    if prefix != _PREFIX or not second.isdecimal() or not writer.startswith(f"{host}.{pid}."):
        return False
    # PIDs are reused, especially in containers, so the times are compared as well.
    started = date_start(start.identity) or 0.0
    ended = math.inf if start.ending is None else start.ending.time
    return started - _CLOCK_SECONDS <= float(second) <= ended + _CLOCK_SECONDS


_STOPPED = ("T", "t")


class Omitted(NamedTuple):
    """The numbers of ranks that were left out because of the limits.

    Attributes:
        ranks: The number of ranks that were left out.
        alive: The number of ranks that were left out although their processes are alive.
    """

    ranks: int = 0
    alive: int = 0


class RankReader:
    """Reads the ranks of all runs, and keeps the ranks' state between readings.

    Args:
        machine: The machine state, which contains the accelerators that processes hold.
        users: The users whose run files are read.
    """

    def __init__(
        self,
        machine: MachineState,
        users: Users = Users(),  # noqa: B008 - immutable
    ) -> None:
        self._users = users
        self._starts = StartRegister(machine)
        self._ledger = AttemptHistory()
        self._detectors: dict[str, StragglerDetector] = {}
        self._shown: frozenset[str] = frozenset()

    def read(
        self, files: Iterable[SeenFile], found: Iterable[FoundRun], now: Moment
    ) -> tuple[list[RankReading], list[RunReading], Omitted]:
        """Return all ranks, all runs, and the number of ranks left out.

        Args:
            files: The existing run files.
            found: The runs in event files and logs; if two runs have the same name, the first run
                is kept.
            now: The time of the reading, on the wall clock and on the monotonic clock.
        """
        starts = self._starts.take_up(files, now.wall_time)
        self._ledger.update(_list_attempts(starts))
        latest = find_latest(starts)
        shown, omitted = choose_shown(latest, now.wall_time, self._shown, self._users)
        self._shown = frozenset(start.run for start in shown)
        overtaken = count_overtaken(starts, latest)
        ranks = self._read_ranks(shown, now)
        runs = {rank.run for rank in ranks}
        recent = [run for run in found if is_recent(run, now.wall_time, DEAD_SECONDS)]
        by_name = {run.run: run for run in reversed(recent) if run.run not in runs}
        others = [
            run for run in leave_out_instrumented(recent, starts) if by_name.get(run.run) is run
        ]
        room = max(0, min(MOST_RANKS - len(ranks), MOST_RUNS - len(runs)))
        ranks += map(read_found, others[:room])
        left_out = Omitted(
            ranks=len(omitted) + overtaken + len(others[room:]),
            alive=sum(start.ending is None for start in omitted) + overtaken,
        )
        return ranks, self._describe_runs(ranks), left_out

    def _read_ranks(self, starts: Sequence[Start], now: Moment) -> list[RankReading]:
        slowness = self._detect_stragglers(starts)
        return [
            self._read_rank(start, slowness.get((start.run, start.identity.rank)), now)
            for start in starts
        ]

    def _detect_stragglers(self, starts: Iterable[Start]) -> Mapping[tuple[str, int], Slowness]:
        records: dict[str, dict[str, Record]] = {}
        for start in starts:
            if start.file.liveness.is_alive:
                ranks = records.setdefault(start.run, {})
                ranks[str(start.identity.rank)] = start.file.record
        for run in self._detectors.keys() - records.keys():
            del self._detectors[run]
        return {
            (run, int(rank)): verdict
            for run, ranks in records.items()
            for rank, verdict in self._detectors.setdefault(run, StragglerDetector())
            .compare(ranks)
            .items()
        }

    def _read_rank(self, start: Start, slowness: Slowness | None, now: Moment) -> RankReading:
        record, liveness = start.file.record, start.file.liveness
        is_alive = liveness.is_alive
        return RankReading(
            run=start.run,
            rank=str(start.identity.rank),
            source="client",
            record=record,
            liveness=liveness,
            ending=start.ending,
            start_timestamp_seconds=date_start(start.identity),
            gpu_uuids=start.gpu_uuids,
            stall=detect_stall(record, now, is_stopped=liveness.state in _STOPPED)
            if is_alive
            else None,
            rates=measure_rates(record, now) if is_alive else Rates(),
            progress=measure_progress(record, is_alive=is_alive),
            slowness=slowness,
            alerts_seen=start.alerts_seen,
        )

    def _describe_runs(self, ranks: Iterable[RankReading]) -> list[RunReading]:
        by_run: dict[str, list[RankReading]] = {}
        for rank in ranks:
            by_run.setdefault(rank.run, []).append(rank)
        return [self._describe_run(run, of_run) for run, of_run in by_run.items()]

    def _describe_run(self, run: str, ranks: Sequence[RankReading]) -> RunReading:
        first = ranks[0]
        identity = first.record.identity
        if identity is None:
            return RunReading(run, first.source)
        worlds = [rank.record.identity.world_size for rank in ranks if rank.record.identity]
        return RunReading(
            run=run,
            source=first.source,
            static=identity.static,
            world_size=max(worlds) if max(worlds) > 0 else None,
            ranks_alive=sum(rank.liveness.is_alive for rank in ranks if rank.liveness),
            exits=self._starts.deaths.count_exits(run),
            losses=self._ledger.find(run),
        )


def _list_attempts(starts: Iterable[Start]) -> list[Attempt]:
    return [
        Attempt(
            key=start.key,
            run=start.run,
            rank=str(start.identity.rank),
            created_time=start.identity.created_time,
            record=start.file.record,
            is_alive=start.ending is None,
        )
        for start in starts
        if not start.is_settled
    ]
