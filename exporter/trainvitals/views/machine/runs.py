"""Derives the state of training runs from readings of the collector `training`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from types import MappingProxyType

from trainvitals.foreign_numbers import read_count
from trainvitals.runfile import ABSENT, STATE, STEP
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.moment import name_coarse_phase
from trainvitals.sources.runs.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.runs.stragglers import LOCAL_PHASES
from trainvitals.verdicts.accelerators import Work, name_device
from trainvitals.verdicts.run_bounds import Habit, judge_bound
from trainvitals.verdicts.run_states import find_dead, is_reporting, judge_state
from trainvitals.verdicts.runs import describe_ending
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.views.machine.counters import Counters
from trainvitals.views.machine.picture import Laggard, Metric, Run, Tone
from trainvitals.views.machine.traces import Traces
from trainvitals.workers import attempt

MOST_METRICS = 16

_GLOBAL, _STEPS, _SECONDS = STEP["global_step"], STEP["steps"], STEP["step_seconds"]
_LOSS, _VALIDATION = STEP["loss"], STATE["validation_loss"]
_TOTAL_STEPS, _TOTAL_EPOCHS = STATE["total_steps"], STATE["total_epochs"]
_EPOCH, _EPOCH_STEPS, _METRICS = STATE["epoch"], STATE["epoch_steps"], STATE["metric_0"]
_TRAIN, _WAIT = STEP["train_seconds"], STEP["total_data_wait"]
_RESERVED, _PEAK = STATE["memory_reserved_bytes"], STATE["memory_peak_bytes"]
_ALLOCATED = STATE["memory_allocated_bytes"]
_WAITED, _TRAINED, _AWAY = range(3)
_PAST_SECONDS = 600.0
_STANDING = ("stalled", "silent", "died", "terminated")
TONES: Mapping[str, Tone] = MappingProxyType(
    {
        "training": "good",
        "starting": "busy",
        "compiling": "busy",
        "evaluating": "busy",
        "saving": "busy",
        "idle": "unknown",
        "stalled": "bad",
        "silent": "warning",
        "finished": "good",
        "ended": "unknown",
        "terminated": "warning",
        "died": "bad",
    }
)


@dataclass(slots=True)
class _Memory:
    """The recent history of one rank: the seconds spent waiting, training and in other phases.

    Attributes:
        start: The rank's start time, which distinguishes a restarted rank from its predecessor.
        counters: Counters of the seconds spent waiting for data, training, and in other phases.
        away_seconds: The total time for which the rank was observed in phases other than training.
        seen: The time of the rank's last reading, in Unix seconds; None before the first reading.
    """

    start: float | None
    counters: Counters
    away_seconds: float = 0.0
    seen: float | None = None

    def note(self, rank: RankReading, time: float) -> None:
        """Add a reading of the rank to the history."""
        if self.seen is not None and time > self.seen:
            phase = name_coarse_phase(rank.record)
            if phase is not None and phase != "train" and rank.ending is None:
                self.away_seconds += time - self.seen
        self.seen = time
        step = rank.record.step
        waited, trained = (None if step[at] == ABSENT else step[at] for at in (_WAIT, _TRAIN))
        away = self.away_seconds if is_reporting(rank) else None
        self.counters.take(time, (waited, trained, away))

    def measure(self) -> Habit:
        """Return how the rank spent the past 10 minutes, as two shares.

        The shares are the share of step time in which the rank waited for data, and the share of
        the time in which the rank did not train.
        """
        waited = self.counters.rise(_WAITED, _PAST_SECONDS)
        trained = self.counters.rise(_TRAINED, _PAST_SECONDS)
        away = self.counters.rise(_AWAY, _PAST_SECONDS)
        is_known = waited is not None and trained is not None and trained[0] > 0
        return Habit(
            waited[0] / trained[0] if is_known and waited and trained else None,
            None if away is None else away[0] / away[1],
        )


class Runs:
    """The training runs of a machine, with their recent history."""

    def __init__(self) -> None:
        self._traces = Traces()
        self._memories: dict[str, dict[str, _Memory]] = {}

    def note(self, reading: object, time: float) -> None:
        """Add a reading of all runs to the history; a reading of any other type adds a gap."""
        self._traces.advance(time)
        if not isinstance(reading, RunsReading):
            self._traces.add_gaps()
            return
        losses: dict[str, list[float]] = {}
        for rank in reading.ranks:
            # If this call fails for a rank, `draw` reports the error.
            attempt(rank.run, partial(self._note_rank, rank, time, losses))
        for run, values in losses.items():
            self._traces.add(run, sum(values) / len(values))
        if len(self._memories) > len(reading.runs):
            there = {run.run for run in reading.runs}
            self._memories = {run: kept for run, kept in self._memories.items() if run in there}

    def _note_rank(self, rank: RankReading, time: float, losses: dict[str, list[float]]) -> None:
        loss = rank.record.step[_LOSS]
        if rank.ending is None and loss != ABSENT:
            losses.setdefault(rank.run, []).append(loss)
        of_run = self._memories.setdefault(rank.run, {})
        kept = of_run.get(rank.rank)
        if kept is None or kept.start != rank.start_timestamp_seconds:
            kept = _Memory(rank.start_timestamp_seconds, Counters(spacing_seconds=10.0, most=64))
            of_run[rank.rank] = kept
        kept.note(rank, time)

    def measure(self) -> dict[str, dict[str, Habit]]:
        """Return the recent waiting time and non-training time of each rank, by run and rank.

        Both times are shares over the past 10 minutes: the share of step time in which the rank
        waited for data, and the share of the time in which the rank did not train.
        """
        return {
            run: {rank: kept.measure() for rank, kept in ranks.items()}
            for run, ranks in self._memories.items()
        }

    def draw(
        self,
        reading: RunsReading,
        devices: Sequence[AcceleratorReading],
        work: Mapping[str, Work],
        time: float,
        thresholds: Thresholds,
    ) -> tuple[Run, ...]:
        """Return all runs: live runs first, then ended runs with the latest end first.

        Args:
            reading: The latest reading, which has already been passed to `note`.
            devices: The accelerators of the machine.
            work: The recent utilization of accelerators, by accelerator UUID.
            time: The current time, in Unix seconds.
            thresholds: The alert thresholds.
        """
        by_run: dict[str, list[RankReading]] = {run.run: [] for run in reading.runs}
        for rank in reading.ranks:
            by_run.setdefault(rank.run, []).append(rank)
        habits = self.measure()
        runs = []
        for run in reading.runs:
            ranks = by_run[run.run]
            if ranks:
                state = judge_state(ranks, time, thresholds)
                kept = habits.get(run.run, {})
                bound = judge_bound(state, ranks, kept, devices, work, thresholds)
                ending = describe_ending(ranks, time, thresholds)
                drawn = _draw_run(run, ranks, devices, time, state)
                if _has_failed(find_dead(ranks, time, thresholds)):
                    drawn = replace(drawn, tone="warning")
                trace = self._traces.read(run.run)
                runs.append(replace(drawn, bound=bound, ending=ending, loss_trace=trace))
        runs.sort(key=lambda run: (run.ended is not None, -(run.ended or run.started or 0.0)))
        return tuple(runs)


def add_runs(
    work: Mapping[str, Work], reading: RunsReading, habits: Mapping[str, Mapping[str, Habit]]
) -> dict[str, Work]:
    """Return the recent work of accelerators, completed with data about the runs that hold them.

    If a rank holds several accelerators, or if its accelerators are unknown, its phases count for
    each accelerator that no other rank holds alone.
    """
    living = [rank for rank in reading.ranks if rank.ending is None]
    own: dict[str, list[float]] = {}
    shared: list[float] = []
    reserves: dict[str, float] = {}
    for rank in living:
        away = habits.get(rank.run, {}).get(rank.rank, Habit()).away_ratio
        is_alone = len(rank.gpu_uuids) == 1
        if is_alone:
            uuid = rank.gpu_uuids[0]
            reserves[uuid] = reserves.get(uuid, 0.0) + _measure_reserve(rank)
        if away is not None:
            (own.setdefault(rank.gpu_uuids[0], []) if is_alone else shared).append(away)
    return {
        uuid: replace(
            each,
            away_ratio=max(own.get(uuid) or shared, default=None),
            has_run=uuid in own,
            reserve_bytes=reserves.get(uuid, 0.0),
        )
        for uuid, each in work.items()
    }


def _has_failed(dead: Sequence[Ending]) -> bool:
    """Return whether an exception ended every dead rank, so that the alert is only a warning."""
    return bool(dead) and all(end.reason == "exception" for end in dead)


def _measure_reserve(rank: RankReading) -> float:
    """Return the bytes that a rank's memory allocator has reserved but never used."""
    state = rank.record.state
    used = state[_PEAK] if state[_PEAK] != ABSENT else state[_ALLOCATED]
    return max(0.0, state[_RESERVED] - used) if ABSENT not in (state[_RESERVED], used) else 0.0


def _draw_run(
    run: RunReading,
    ranks: Sequence[RankReading],
    devices: Sequence[AcceleratorReading],
    time: float,
    state: str,
) -> Run:
    living = [rank for rank in ranks if rank.ending is None]
    furthest = max(living or ranks, key=lambda rank: rank.record.step[_GLOBAL])
    step, total = furthest.record.step, _count_steps(furthest)
    reporting = living or ranks
    held = {uuid for rank in living for uuid in rank.gpu_uuids}
    return Run(
        name=run.run,
        source=run.source,
        state=state,
        tone=TONES[state],
        phase=name_coarse_phase(furthest.record) if living else None,
        started=_least(rank.start_timestamp_seconds for rank in reporting),
        ended=None if living else _greatest(_dates(ranks)),
        stalled_seconds=_measure_stall(living, time) if state == "stalled" else None,
        step=read_count(step[_GLOBAL] if step[_GLOBAL] != ABSENT else step[_STEPS]),
        steps=read_count(total),
        epoch=read_count(furthest.record.state[_EPOCH]),
        epochs=read_count(furthest.record.state[_TOTAL_EPOCHS]),
        progress_ratio=furthest.progress.ratio,
        eta_seconds=_measure_eta(living, time) if state not in _STANDING else None,
        samples_per_second=_sum(rank.rates.samples_per_second for rank in living),
        tokens_per_second=_sum(rank.rates.tokens_per_second for rank in living),
        step_seconds=_median(rank.record.step[_SECONDS] for rank in living),
        loss=_mean(rank.record.step[_LOSS] for rank in reporting),
        validation_loss=_mean(rank.record.state[_VALIDATION] for rank in reporting),
        metrics=_list_metrics(furthest),
        ranks_alive=run.ranks_alive,
        ranks=len(ranks),
        world_size=run.world_size,
        restarts=run.losses.restarts if run.losses is not None else None,
        laggards=_find_laggards(living),
        devices=tuple(name_device(each.identity) for each in devices if each.identity.uuid in held),
    )


def _count_steps(rank: RankReading) -> float:
    state = rank.record.state
    if state[_TOTAL_STEPS] > 0:
        return state[_TOTAL_STEPS]
    if state[_TOTAL_EPOCHS] > 0 and state[_EPOCH_STEPS] > 0:
        return state[_TOTAL_EPOCHS] * state[_EPOCH_STEPS]
    return ABSENT


def _measure_stall(living: Sequence[RankReading], now: float) -> float | None:
    moved = (
        rank.stall.progress_timestamp_seconds
        for rank in living
        if rank.stall is not None and rank.stall.cause is not None
    )
    since = _least(moved)
    return None if since is None else max(0.0, now - since)


def _measure_eta(living: Sequence[RankReading], now: float) -> float | None:
    end = _greatest(rank.progress.end_timestamp_seconds for rank in living)
    return None if end is None else max(0.0, end - now)


def _find_laggards(living: Sequence[RankReading]) -> tuple[Laggard, ...]:
    found = []
    for rank in living:
        if rank.slowness is None or not rank.slowness.is_straggler:
            continue
        ratios = zip(rank.slowness.ratios, LOCAL_PHASES, strict=True)
        ratio, phase = max((ratio or 0.0, phase) for ratio, phase in ratios)
        found.append(Laggard(rank.rank, ratio, phase))
    return tuple(sorted(found, key=lambda each: -each.slowdown_ratio))


def _list_metrics(rank: RankReading) -> tuple[Metric, ...]:
    values = rank.record.state[_METRICS:]
    named = zip(rank.record.metrics, values, strict=False)
    known = [
        Metric(name, split, value) for (name, split), value in named if name and value != ABSENT
    ]
    return tuple(known[:MOST_METRICS])


def _dates(ranks: Sequence[RankReading]) -> Iterable[float]:
    return (rank.ending.time for rank in ranks if rank.ending is not None)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if value != ABSENT]
    return sum(known) / len(known) if known else None


def _median(values: Iterable[float]) -> float | None:
    known = [value for value in values if value >= 0]
    return median(known) if known else None
