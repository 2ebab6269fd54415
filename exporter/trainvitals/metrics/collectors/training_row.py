"""The conversion of a rank's values to a row, in the order of the metric table.

Besides the fields of the run file, the table contains values that are derived from these fields:

================== =============================================================================
name               value
================== =============================================================================
up                 1 while the process is alive
stopped            1 while the process is stopped by a signal
start_time         start time of the process, in Unix seconds
exit_code          exit code of the process; after a signal, 128 plus the signal's number
end_REASON         end time of the process, in Unix seconds, by reason
stalled, ...       whether the rank makes progress
..._per_second     current rates, and the ratio to the device's peak
progress, ...      completed fraction of the run
overhead           fraction of time that the client uses, since the run file was created
straggler, ...     a comparison of the rank with the other ranks on this machine
phase_PHASE        1 for the current coarse phase, 0 for earlier phases
seconds_PHASE      total seconds in each phase
bucket_N           number of steps up to a duration; step_count counts all steps
alert_ALERT        1 for an active alert of the client, 0 for an alert that was active before
================== =============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from trainvitals.metrics.collectors.tables import list_fields
from trainvitals.metrics.collectors.training_table import LEAST_FREE, METRICS, MOST_SERIES
from trainvitals.runfile import (
    ABSENT,
    ALERTS,
    BUCKET_BOUNDS,
    COARSE,
    COARSE_PHASES,
    PHASE_NAMES,
    STATE,
    STEP,
    STEP_WORDS,
    Record,
    State,
)
from trainvitals.sources.runs.endings import REASONS, Ending
from trainvitals.sources.runs.moment import find_phase
from trainvitals.sources.runs.reading import RankReading
from trainvitals.sources.runs.stragglers import LOCAL_PHASES

_CONCLUDED = (
    "up",
    "stopped",
    "start_time",
    "exit_code",
    *(f"end_{reason}" for reason in REASONS),
    "stalled",
    "stall_threshold",
    "last_progress",
    "samples_per_second",
    "tokens_per_second",
    "flops_per_second",
    "flops_utilization",
    "progress",
    "epoch_progress",
    "eta",
    "overhead",
    "straggler",
    *(f"slowdown_{phase}" for phase in LOCAL_PHASES),
    *(f"phase_{phase}" for phase in COARSE_PHASES),
    *(f"seconds_{phase}" for phase in PHASE_NAMES),
    *(f"bucket_{index}" for index in range(len(BUCKET_BOUNDS) + 1)),
    "step_count",
    *(f"alert_{alert}" for alert in ALERTS),
)
_PLACES = {
    **{name: len(_CONCLUDED) + len(STEP_WORDS) + at for name, at in STATE.items()},
    **{name: len(_CONCLUDED) + at for name, at in STEP.items()},
    **{name: at for at, name in enumerate(_CONCLUDED)},
}
FIELDS = list_fields(METRICS)
_pick = itemgetter(*(_PLACES[field] for field in FIELDS))
# The fields that are omitted after the process has ended.
_OF_THE_LIVING = tuple(
    FIELDS.index(field)
    for field in (
        "phase_start_time",
        "memory_allocated_bytes",
        "memory_reserved_bytes",
        "loss_spike",
    )
)

_TOTALS = slice(STEP["total_init"], STEP["total_init"] + len(PHASE_NAMES))
_BUCKETS = slice(STEP["step_bucket_0"], STEP["step_bucket_0"] + len(BUCKET_BOUNDS) + 1)
_COARSE_AT = tuple(COARSE_PHASES.index(name) for name in COARSE)
_MONO, _OVERHEAD, _ALERTS = STEP["mono_ns"], STEP["overhead_seconds"], STATE["alerts"]
_NO_SLOWNESS = (ABSENT,) * (1 + len(LOCAL_PHASES))
_NO_PHASES = (ABSENT,) * len(COARSE_PHASES)
_NO_BUCKETS = (ABSENT,) * (len(BUCKET_BOUNDS) + 2)
_NO_ALERTS = (ABSENT,) * len(ALERTS)
_SIGNAL_CODE = 128
_NANOSECONDS = 1e9


def write_row(rank: RankReading) -> tuple[list[float], int]:
    """Return a rank's values in the order of `FIELDS`, and the number of omitted values.

    A value is `ABSENT` if it is unknown, does not apply after the process has ended, or is omitted
    because of the limit `MOST_SERIES`.
    """
    record = rank.record
    row = list(_pick((*_conclude(rank), *record.step, *record.state)))
    if rank.ending is not None:
        for at in _OF_THE_LIVING:
            row[at] = ABSENT
    room = MOST_SERIES - 1 - min(LEAST_FREE, len(record.metrics))  # 1 for training_rank_info
    surplus = left = max(0, len(row) - row.count(ABSENT) - room)
    at = len(row)
    while left:
        at -= 1
        if row[at] != ABSENT:
            row[at] = ABSENT
            left -= 1
    return row, surplus


def _conclude(rank: RankReading) -> tuple[float, ...]:
    rates, progress, record = rank.rates, rank.progress, rank.record
    return (
        *_conclude_life(rank),
        *_conclude_stall(rank),
        _known(rates.samples_per_second),
        _known(rates.tokens_per_second),
        _known(rates.flops_per_second),
        _known(rates.flops_utilization_ratio),
        _known(progress.ratio),
        _known(progress.epoch_ratio),
        _known(progress.end_timestamp_seconds),
        _measure_overhead(record),
        *_conclude_slowness(rank),
        *_conclude_phases(record, is_over=rank.ending is not None or _is_switched_off(record)),
        *_accumulate_buckets(record.step),
        *_list_alerts(rank),
    )


def _is_switched_off(record: Record) -> bool:
    """Return whether a rank's monitor has disabled itself; its last phase is then outdated."""
    return record.state[STATE["state"]] == State.SWITCHED_OFF


def _known(value: float | None) -> float:
    return ABSENT if value is None else value


def _conclude_life(rank: RankReading) -> tuple[float, ...]:
    liveness, ending = rank.liveness, rank.ending
    start = _known(rank.start_timestamp_seconds)
    if liveness is None:
        return (ABSENT, ABSENT, start, ABSENT, *(ABSENT for _ in REASONS))
    stopped = ABSENT if liveness.state is None else int(liveness.state in ("T", "t"))
    if ending is None:
        return (int(liveness.is_alive), stopped, start, ABSENT, *(ABSENT for _ in REASONS))
    ends = [ending.time if reason == ending.reason else ABSENT for reason in REASONS]
    return (0, ABSENT, start, _name_code(ending), *ends)


def _name_code(ending: Ending) -> float:
    if ending.signal is not None:
        return _SIGNAL_CODE + ending.signal
    return _known(ending.exit_code)


def _conclude_stall(rank: RankReading) -> tuple[float, ...]:
    stall = rank.stall
    if stall is None:
        return (ABSENT, ABSENT, rank.record.step[STEP["last_progress_time"]])
    stalled = ABSENT if rank.liveness is None else int(stall.cause is not None)
    return (stalled, _known(stall.threshold_seconds), _known(stall.progress_timestamp_seconds))


def _measure_overhead(record: Record) -> float:
    overhead, identity = record.step[_OVERHEAD], record.identity
    if identity is None or overhead == ABSENT:
        return ABSENT
    seconds = (record.step[_MONO] - identity.created_mono_ns) / _NANOSECONDS
    return overhead / seconds if seconds > 0 else ABSENT


def _conclude_slowness(rank: RankReading) -> tuple[float, ...]:
    slowness = rank.slowness
    if slowness is None:
        return _NO_SLOWNESS
    return (int(slowness.is_straggler), *[_known(ratio) for ratio in slowness.ratios])


def _conclude_phases(record: Record, *, is_over: bool) -> tuple[float, ...]:
    """Return the value of each coarse phase, followed by the total seconds in each phase.

    The values of a phase that has not occurred are `ABSENT`.
    """
    seconds = [total if total > 0 else ABSENT for total in record.step[_TOTALS]]
    phase = find_phase(record)
    if phase is None or is_over:
        return (*_NO_PHASES, *seconds)
    if seconds[phase] == ABSENT:
        seconds[phase] = 0.0
    coarse = list(_NO_PHASES)
    for total, at in zip(seconds, _COARSE_AT, strict=True):
        if total != ABSENT:
            coarse[at] = 0
    coarse[_COARSE_AT[phase]] = 1
    return (*coarse, *seconds)


def _accumulate_buckets(step: Sequence[float]) -> Sequence[float]:
    counts = step[_BUCKETS]
    if ABSENT in counts:
        return _NO_BUCKETS
    summed = list(accumulate(counts))
    return (*summed, summed[-1])


def _list_alerts(rank: RankReading) -> Sequence[float]:
    seen = rank.alerts_seen
    if not seen:
        return _NO_ALERTS
    bits = rank.record.state[_ALERTS]
    active = int(bits) if rank.ending is None and 0 <= bits <= seen else 0
    return [
        int(active >> number & 1) if seen >> number & 1 else ABSENT for number in range(len(ALERTS))
    ]
