"""Training runs, from the reading of the collector `training`."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from trainvitals.overview.accelerators import Work
from trainvitals.overview.bounds import Habits, judge_bound
from trainvitals.overview.counters import Counters
from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Laggard, Metric, Run
from trainvitals.overview.states import TONES, find_dead, name_code, tell_state
from trainvitals.overview.traces import Traces
from trainvitals.runfile import ABSENT, STATE, STEP
from trainvitals.sources.training.endings import Ending, Reason
from trainvitals.sources.training.moment import name_coarse_phase
from trainvitals.sources.training.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.training.stragglers import LOCAL_PHASES

MOST_METRICS = 16

_GLOBAL, _STEPS, _SECONDS = STEP["global_step"], STEP["steps"], STEP["step_seconds"]
_LOSS, _VALIDATION = STEP["loss"], STATE["validation_loss"]
_TOTAL_STEPS, _TOTAL_EPOCHS = STATE["total_steps"], STATE["total_epochs"]
_EPOCH, _EPOCH_STEPS, _METRICS = STATE["epoch"], STATE["epoch_steps"], STATE["metric_0"]
_ENDINGS: Mapping[Reason, str] = {
    "finished": "finished",
    "exception": "it failed",
    "signal": "killed by a signal",
    "oom": "killed for want of memory",
    "unknown": "gone, and nothing says how",
}


class Runs:
    """Remembers the past of the runs and draws them."""

    def __init__(self) -> None:
        self._traces = Traces()
        self._habits: dict[str, dict[str, Habits]] = {}

    def note(self, reading: object, time: float) -> None:
        """Take up a reading; what is no reading of runs is a gap in their past."""
        self._traces.advance(time)
        if not isinstance(reading, RunsReading):
            self._traces.add_gaps()
            return
        losses: dict[str, list[float]] = {}
        for rank in reading.ranks:
            self._note_rank(rank, time)
            loss = rank.record.step[_LOSS]
            if rank.ending is None and loss != ABSENT:
                losses.setdefault(rank.run, []).append(loss)
        for run, told in losses.items():
            self._traces.add(run, sum(told) / len(told))
        if len(self._habits) > len(reading.runs):
            there = {run.run for run in reading.runs}
            self._habits = {run: kept for run, kept in self._habits.items() if run in there}

    def _note_rank(self, rank: RankReading, time: float) -> None:
        of_run = self._habits.setdefault(rank.run, {})
        kept = of_run.get(rank.rank)
        if kept is None or kept.start != rank.start_timestamp_seconds:
            kept = Habits(rank.start_timestamp_seconds, Counters(spacing_seconds=10.0, most=64))
            of_run[rank.rank] = kept
        kept.note(rank, time)

    def draw(
        self,
        reading: RunsReading,
        work: Mapping[str, Work],
        names: Mapping[str, str],
        time: float,
    ) -> tuple[Run, ...]:
        """Draw every run: the living ones first, then those that ended last.

        Args:
            reading: What was read just now, and noted.
            work: How the accelerators worked of late, by UUID.
            names: What to call the accelerators, by UUID.
            time: Unix seconds.
        """
        by_run: dict[str, list[RankReading]] = {run.run: [] for run in reading.runs}
        for rank in reading.ranks:
            by_run.setdefault(rank.run, []).append(rank)
        runs = [
            self._draw_run(run, by_run[run.run], work, names, time)
            for run in reading.runs
            if by_run[run.run]
        ]
        runs.sort(key=lambda run: (run.ended is not None, -(run.ended or run.started or 0.0)))
        return tuple(runs)

    def _draw_run(
        self,
        run: RunReading,
        ranks: Sequence[RankReading],
        work: Mapping[str, Work],
        names: Mapping[str, str],
        time: float,
    ) -> Run:
        living = [rank for rank in ranks if rank.ending is None]
        state = tell_state(ranks, time)
        furthest = max(living or ranks, key=lambda rank: rank.record.step[_GLOBAL])
        step, total = furthest.record.step, _count_steps(furthest)
        told = living or ranks
        return Run(
            name=run.run,
            source=run.source,
            state=state,
            tone=TONES[state],
            phase=name_coarse_phase(furthest.record) if living else None,
            bound=judge_bound(state, ranks, self._habits.get(run.run, {}), work),
            started=_least(rank.start_timestamp_seconds for rank in told),
            ended=None if living else _greatest(_dates(ranks)),
            ending=describe_ending(ranks, time),
            stalled_seconds=_measure_stall(living, time) if state == "stalled" else None,
            step=_whole(step[_GLOBAL] if step[_GLOBAL] != ABSENT else step[_STEPS]),
            steps=_whole(total),
            epoch=_whole(furthest.record.state[_EPOCH]),
            epochs=_whole(furthest.record.state[_TOTAL_EPOCHS]),
            progress_ratio=furthest.progress.ratio,
            eta_seconds=_measure_eta(living, time),
            samples_per_second=_sum(rank.rates.samples_per_second for rank in living),
            tokens_per_second=_sum(rank.rates.tokens_per_second for rank in living),
            step_seconds=_median(rank.record.step[_SECONDS] for rank in living),
            loss=_mean(rank.record.step[_LOSS] for rank in told),
            validation_loss=_mean(rank.record.state[_VALIDATION] for rank in told),
            loss_trace=self._traces.tell(run.run),
            metrics=_list_metrics(furthest),
            ranks_alive=run.ranks_alive,
            ranks=len(ranks),
            world_size=run.world_size,
            restarts=run.losses.restarts if run.losses is not None else None,
            laggards=_find_laggards(living),
            devices=tuple(
                dict.fromkeys(
                    names[uuid] for rank in living for uuid in rank.gpu_uuids if uuid in names
                )
            ),
        )


def describe_ending(ranks: Sequence[RankReading], now: float) -> str:
    """Say in a few words how a run ended or which of its ranks died; empty where none did.

    Of several ranks the one that died first is told of: the others mostly follow it.
    """
    dead = find_dead(ranks, now)
    if not dead:
        if any(rank.ending is None for rank in ranks):
            return ""
        ends = [rank.ending for rank in ranks if rank.ending is not None]
        return _describe(max(ends, key=lambda end: name_code(end) or 0))
    first = dead[0]
    number = next(rank.rank for rank in ranks if rank.ending is first)
    words = _describe(first)
    return f"rank {number}: {words}" if len(ranks) > 1 else words


def _describe(ending: Ending) -> str:
    code = ending.exit_code
    if name_code(ending) == LIMITS["training_run_lost:interrupt_exit_code"]:
        return "ended by Ctrl-C"
    if ending.reason == "signal" and ending.signal is not None:
        return f"killed by {_name_signal(ending.signal)}"
    if ending.reason == "exception" and (ending.exception is not None or code is not None):
        words = [ending.exception, None if code is None else f"exit code {code}"]
        return ", ".join(word for word in words if word is not None)
    return _ENDINGS[ending.reason]


def _name_signal(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"


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


def _whole(value: float) -> int | None:
    return int(value) if value != ABSENT and math.isfinite(value) and value >= 0 else None


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
