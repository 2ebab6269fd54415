"""Training run problems, according to the alert thresholds, and descriptions of ended runs."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping, Sequence

from trainvitals.runfile import STATE, Phase
from trainvitals.sources.runs.endings import Ending, Reason
from trainvitals.sources.runs.moment import find_phase
from trainvitals.sources.runs.reading import RankReading, RunsReading
from trainvitals.sources.runs.stragglers import LOCAL_PHASES
from trainvitals.units import format_age, format_percent
from trainvitals.verdicts.run_bounds import Habit, has_finite_loss, measure_wait
from trainvitals.verdicts.run_states import (
    find_dead,
    is_interrupted,
    is_settled,
    is_terminated,
    judge_state,
    name_code,
)
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.trouble import IS_HUNG, OUT_OF_HOST_MEMORY, Severity, Trouble

_VALIDATION, _DEVICE_OOM = STATE["validation_loss"], STATE["last_oom_time"]
_LOST_REASONS = ("signal", "oom", "unknown")
_ENDINGS: Mapping[Reason, str] = {
    "finished": "finished",
    "exception": "it failed",
    "signal": "killed by a signal",
    "oom": "OOM-killed",
    "unknown": "ended for an unknown reason",
}


def judge_runs(
    reading: RunsReading,
    habits: Mapping[str, Mapping[str, Habit]],
    thresholds: Thresholds,
    now: float,
) -> Iterator[Trouble]:
    """Yield the problems of a machine's runs.

    Args:
        reading: The reading of the machine's training runs.
        habits: The phases of each rank over the past 10 minutes, by run and rank.
        thresholds: The thresholds of the alerts, by name.
        now: The current time in Unix seconds.
    """
    by_run: dict[str, list[RankReading]] = {}
    for rank in reading.ranks:
        by_run.setdefault(rank.run, []).append(rank)
    for run, ranks in by_run.items():
        living = [rank for rank in ranks if rank.ending is None]
        yield from _judge_ends(run, ranks, thresholds, now)
        yield from _judge_living(run, living, habits.get(run, {}), thresholds, now)
        if judge_state(ranks, now, thresholds) == "silent":
            summary = "it has not reported recently; whether it trains is unknown"
            yield Trouble("run", run, "is silent", "warning", summary)


def describe_ending(ranks: Sequence[RankReading], now: float, thresholds: Thresholds) -> str:
    """Return a description of how a run or one of its ranks ended.

    The description is empty while a rank is alive and no rank has died. If several ranks died, the
    first death is described, because the other ranks usually end as a consequence.
    """
    dead = find_dead(ranks, now, thresholds)
    if dead:
        return _describe_rank(dead[0], ranks, thresholds)
    ends = [rank.ending for rank in ranks if rank.ending is not None]
    if len(ends) < len(ranks):
        return ""
    return _describe(max(ends, key=lambda end: name_code(end) or 0), thresholds)


def _judge_ends(
    run: str, ranks: Sequence[RankReading], thresholds: Thresholds, now: float
) -> Iterator[Trouble]:
    ends = [rank.ending for rank in ranks if rank.ending is not None]
    past = [end for end in ends if not _was_restarted(end, ranks)]
    lost = [end for end in past if _is_lost(end, now, thresholds)]
    for end in lost[:1]:
        killed = next((each for each in lost if each.reason == "oom"), None)
        words = _describe_rank(killed or end, ranks, thresholds)
        name = OUT_OF_HOST_MEMORY if killed else "died"
        yield _blame(run, "TrainingRunLost", name, f"{words}, {_age(end.time, now)}", "critical")
    for name in _name_exhausted_memory(ranks, thresholds, now):
        summary = "a rank ended after memory had run out"
        yield _blame(run, "TrainingOutOfMemory", name, summary, "critical")
    failed = [end for end in past if _is_failed(end, now, thresholds)]
    for end in failed[:1]:
        words = _describe_rank(end, ranks, thresholds)
        yield _blame(run, "TrainingRunFailed", "failed", f"{words}, {_age(end.time, now)}")
    asked = [end for end in past if _is_terminated(end, now, thresholds)]
    # If another rank has failed, the launcher ended this rank as a consequence.
    if asked and not any(end.reason == "exception" for end in ends):
        words = _describe_rank(asked[0], ranks, thresholds)
        yield _blame(
            run, "TrainingRunTerminated", "was ended", f"{words}, {_age(asked[0].time, now)}"
        )


def _was_restarted(end: Ending, ranks: Sequence[RankReading]) -> bool:
    return any(
        end.time < rank.start_timestamp_seconds
        for rank in ranks
        if rank.ending is None and rank.start_timestamp_seconds is not None
    )


def _is_lost(end: Ending, now: float, thresholds: Thresholds) -> bool:
    return (
        end.reason in _LOST_REASONS
        and now - end.time < thresholds["training_run_lost:window_seconds"]
        and is_settled(end, now, thresholds)
        and not is_interrupted(end, thresholds)
        and not is_terminated(end, thresholds)
    )


def _is_failed(end: Ending, now: float, thresholds: Thresholds) -> bool:
    return (
        end.reason == "exception"
        and now - end.time < thresholds["training_run_failed:window_seconds"]
        and not is_interrupted(end, thresholds)
    )


def _is_terminated(end: Ending, now: float, thresholds: Thresholds) -> bool:
    return (
        end.reason == "signal"
        and now - end.time < thresholds["training_run_terminated:window_seconds"]
        and is_terminated(end, thresholds)
    )


def _name_exhausted_memory(
    ranks: Sequence[RankReading], thresholds: Thresholds, now: float
) -> Iterator[str]:
    """Yield the name of a problem for each kind of memory that ran out before a rank ended."""
    oldest = now - thresholds["training_out_of_memory:window_seconds"]
    dead = [(rank, rank.ending) for rank in ranks if rank.ending is not None]
    if any(rank.record.state[_DEVICE_OOM] > max(oldest, 0) for rank, _ in dead):
        yield "ran out of device memory"
    if any(end.reason == "oom" and end.time > oldest for _, end in dead):
        yield OUT_OF_HOST_MEMORY


def _judge_living(
    run: str,
    living: Sequence[RankReading],
    habits: Mapping[str, Habit],
    thresholds: Thresholds,
    now: float,
) -> Iterator[Trouble]:
    stalled = [rank for rank in living if rank.stall is not None and rank.stall.cause is not None]
    if stalled:
        summary = _describe_stall(stalled, now)
        name = "is stopped" if _is_stopped(stalled) else IS_HUNG
        yield _blame(run, "TrainingStalled", name, summary, "critical")
    if not has_finite_loss(living) or not all(
        math.isfinite(rank.record.state[_VALIDATION]) for rank in living
    ):
        summary = "its loss is NaN or infinite"
        yield _blame(run, "TrainingLossNotFinite", "loss is NaN", summary, "critical")
    yield from _judge_stragglers(run, living)
    waited = measure_wait(habits[rank.rank] for rank in living if rank.rank in habits)
    if waited is not None and waited > thresholds["data_loader_bottleneck:wait_ratio"]:
        summary = f"it waits for data in {format_percent(waited)} of the time of its steps"
        yield _blame(run, "DataLoaderBottleneck", "waits for data", summary)


def _judge_stragglers(run: str, living: Sequence[RankReading]) -> Iterator[Trouble]:
    for rank in living:
        if rank.slowness is not None and rank.slowness.is_straggler:
            ratios = zip(rank.slowness.ratios, LOCAL_PHASES, strict=True)
            ratio, phase = max((ratio or 0.0, phase) for ratio, phase in ratios)
            yield _blame(
                run,
                "TrainingStragglerRank",
                f"rank {rank.rank} is behind",
                f"it takes {ratio:.1f} times as long as the fastest in {phase}",
            )


def _is_stopped(stalled: Sequence[RankReading]) -> bool:
    return any(rank.stall is not None and rank.stall.cause == "stopped" for rank in stalled)


def _describe_stall(stalled: Sequence[RankReading], now: float) -> str:
    ranks = ", ".join(rank.rank for rank in stalled)
    moved = [rank.stall.progress_timestamp_seconds for rank in stalled if rank.stall is not None]
    since = min((time for time in moved if time is not None), default=None)
    last = "" if since is None else f"; the last progress was {_age(since, now)}"
    if _is_stopped(stalled):
        return f"a process of rank {ranks} is stopped (SIGSTOP or a debugger){last}"
    phases = {find_phase(rank.record) for rank in stalled}
    phase = phases.pop() if len(phases) == 1 else None
    where = "" if phase in (None, Phase.OTHER) else f" in {phase.name.lower()}"
    return f"rank {ranks} makes no progress{where}{last}"


def _describe_rank(end: Ending, ranks: Sequence[RankReading], thresholds: Thresholds) -> str:
    number = next(rank.rank for rank in ranks if rank.ending is end)
    words = _describe(end, thresholds)
    return f"rank {number}: {words}" if len(ranks) > 1 else words


def _describe(ending: Ending, thresholds: Thresholds) -> str:
    code = ending.exit_code
    if is_interrupted(ending, thresholds):
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


def _age(time: float, now: float) -> str:
    return format_age(time, max(now, time))


def _blame(
    run: str, alert: str, name: str, summary: str, severity: Severity = "warning"
) -> Trouble:
    return Trouble("run", run, name, severity, summary, alert)
