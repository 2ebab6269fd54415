"""What state the run is in, and what it loses time to: queries that give the number of a state.

Each is a chain: the first state whose condition holds is the answer, the worst ones come first. The
numbers in the conditions are those of the alerts, so that the verdict and the alerts agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from grafana.build.limits import limit
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
from grafana.build.queries import encode
from grafana.build.run_selection import on_devices

GONE: Final = State(10, "gone", CRITICAL)
OBSERVED: Final = State(11, "told by logs", INFORMATION)
STATES: Final = (*PHASES.values(), STALLED, ENDED, DIED, GONE, OBSERVED)

NOT_ENOUGH_DATA: Final = State(20, "not enough data", UNKNOWN)
COMPUTE_BOUND: Final = State(21, "compute-bound", OK)
UNDERUSED: Final = State(22, "underused", WARNING)
NOT_TRAINING: Final = State(23, "not in steps", INFORMATION)
SLOW_RANK: Final = State(24, "slow rank", WARNING)
THROTTLED: Final = State(25, "throttled", WARNING)
INPUT_BOUND: Final = State(26, "input-bound", WARNING)
LOSS_IS_NAN: Final = State(27, "loss is NaN", CRITICAL)
VERDICTS: Final = (
    *(GONE, DIED, STALLED, ENDED, LOSS_IS_NAN, INPUT_BOUND, THROTTLED, SLOW_RANK),
    *(NOT_TRAINING, UNDERUSED, COMPUTE_BOUND, NOT_ENOUGH_DATA),
)

RANK: Final = "job, instance, run, rank"
STANDING: Final = "training_stalled{@run} == 1"
_DEVICE: Final = "job, instance, kind, device, uuid"
SLOW: Final = "training_rank_straggler{@run} == 1"

# From here on a run is mostly somewhere else than in its steps.
_MOSTLY: Final = 0.5
# A scrape or two may fail without a rank being gone, also where there is one in a minute.
_SILENCE: Final = "3m"


def tell_state(window: str = "", by: str = "") -> str:
    """Write a query for the state of the run.

    Args:
        window: How long what is seen no more is remembered, in a query that is instant; empty for
            as long as the exporter shows it, which costs little over time.
        by: The labels that are kept.
    """
    conditions = (
        (DIED, find_dead(window)),
        (GONE, find_gone(window)),
        (STALLED, STANDING),
    )
    ended = (
        (ENDED, _find_ended(window, by)),
        (OBSERVED, _find_observed(window)),
    )
    # The first of a chain counts, and the worst have the highest numbers.
    phases = encode("training_phase{@run", "phase", dict(reversed([*PHASES.items()])), by)
    return " or ".join((*_number(conditions, by), phases, *_number(ended, by)))


def tell_verdict(window: str = "") -> str:
    """Write a query for what the run loses its time to.

    Args:
        window: As for the state.
    """
    ahead = (
        (DIED, find_dead(window)),
        (GONE, find_gone(window)),
        (STALLED, STANDING),
        (ENDED, _find_ended(window, "")),
        (LOSS_IS_NAN, "training_loss{@run} * 0 != 0"),
        (INPUT_BOUND, _find_waiting()),
    )
    of_ranks = (
        (SLOW_RANK, SLOW),
        (NOT_TRAINING, f"min(run:other_phases:ratio_avg10m{{@run}}) > {_MOSTLY:g}"),
        (NOT_ENOUGH_DATA, _recall("training_run_info{@run}", window)),
    )
    # Of accelerators and ranks that are in several states the highest number counts.
    worst = " or ".join((on_devices(_judge_devices(), is_now=bool(window)), *_number(of_ranks, "")))
    return " or ".join((*_number(ahead, ""), f"max({worst})"))


def tell_trouble(window: str) -> str:
    """Write a query for the state of each rank that died, is gone, stands still or is slow.

    Args:
        window: As for the state.
    """
    conditions = (
        (DIED, find_dead(window)),
        (GONE, find_gone(window)),
        (STALLED, STANDING),
        (SLOW_RANK, SLOW),
    )
    return " or ".join(_number(conditions, RANK))


def find_dead(window: str = "") -> str:
    """Write a query for when ranks died, of which the run was not started again since."""
    ends = "training_process_end_timestamp_seconds"
    told = _recall(f'{ends}{{@run, reason=~"signal|exception|oom"}}', window)
    unknown = _recall(f'{ends}{{@run, reason="unknown"}}', window)
    known = _recall(f'{ends}{{@run, reason!="unknown"}}', window)
    start = _recall("training_process_start_time_seconds{@run}", window)
    code = _recall("training_process_exit_code{@run}", window)
    # How it ended is not known yet: what looks like a death may be an ordinary end.
    fresh = f'time() - {ends}{{@run, reason="unknown"}}'
    settled = limit("training_run_lost:unknown_window_seconds")
    # The same end, of which more was told later.
    retold = f"{unknown} == on ({RANK}) group_right () {known}"
    return (
        f"({told} unless on ({RANK}) {code} == {limit('training_run_lost:interrupt_exit_code'):g}"
        f" or {unknown} unless on ({RANK}) ({retold}) unless on ({RANK}) {fresh} < {settled:g})"
        f" > on (job, instance, run) group_left () max by (job, instance, run) ({start})"
        # The end is dated by the scrape that found it, and a launcher may be quicker than that.
        f" unless on ({RANK}) {_recall('training_process_up{@run}', window)} == 1"
    )


def find_gone(window: str = "") -> str:
    """Write a query for ranks that were alive when last seen, and are seen no more.

    Not where the machine does not answer, of which nothing is known, and not where the run was
    started again since.
    """
    back = "" if window else " offset 15m"
    before = _recall("training_process_up{@run}", window) + back
    moved = _recall("training_last_progress_timestamp_seconds{@run}", window) + back
    start = _recall("training_process_start_time_seconds{@run}", window)
    return (
        f"{before} == 1 unless on ({RANK}) {_recall('training_process_up{@run}', _SILENCE)}"
        f" unless on ({RANK}) {moved}"
        f" < on (job, instance, run) group_left () max by (job, instance, run) ({start})"
        " and on (job, instance) up{@host} == 1"
        ' unless on (job, instance) trainvitals_collector_success{@host, collector="training"} == 0'
    )


def _find_ended(window: str, by: str) -> str:
    up = _recall("training_process_up{@run}", window)
    return f"{up} == 0 unless on ({by}) training_process_up{{@run}} == 1"


def _find_observed(window: str) -> str:
    """Write a query for ranks of whose process nobody knows whether it lives."""
    moved = _recall("training_last_progress_timestamp_seconds{@run}", window)
    return f"{moved} unless on ({RANK}) {_recall('training_process_up{@run}', window)}"


def _recall(selector: str, window: str) -> str:
    return f"last_over_time({selector}[{window}])" if window else selector


def _find_waiting() -> str:
    share = limit("data_loader_bottleneck:wait_ratio")
    return f"run:training_data_wait:ratio10m{{@run}} > {share:g}"


def _judge_devices() -> str:
    """Write a query for the number of each accelerator's state.

    As for the alerts on low utilization, an accelerator that nobody uses is not one that starves.
    """
    unused = (
        " unless on (job, instance, uuid) accelerator_processes{@host} == 0"
        " unless on (job, instance, uuid) accelerator:memory_used:ratio"
        f'{{@host, kind="hpu"}} < {limit("hpu_low_utilization:memory_ratio"):g}'
    )
    return (
        f"{THROTTLED.number} * group by ({_DEVICE}) ({_find_throttled()})"
        f" or {UNDERUSED.number} + 0 * (({_compare_utilization('<')}) {unused})"
        f" or {COMPUTE_BOUND.number} + 0 * ({_compare_utilization('>=')})"
    )


def _compare_utilization(operator: str) -> str:
    return " or ".join(
        f'accelerator:training_utilization_percent:avg10m{{@host, kind="{kind}"}}'
        f" {operator} {limit(f'{kind}_low_utilization:utilization_percent'):g}"
        for kind in ("gpu", "hpu")
    )


def _find_throttled() -> str:
    by_heat = limit("accelerator_thermal_throttling:ratio")
    by_brake = limit("accelerator_power_brake:ratio")
    seconds, active = "accelerator_throttle_seconds_total", "accelerator_throttle_active"
    # What is not throttled goes first, as it is nearly all.
    return (
        f'rate({seconds}{{@host, reason=~"hw_thermal|sw_thermal"}}[$__rate_interval]) > {by_heat:g}'
        f' or rate({seconds}{{@host, reason="hw_power_brake"}}[$__rate_interval]) > {by_brake:g}'
        f' or {active}{{@host, reason=~"hw_thermal|sw_thermal|hw_power_brake"}} == 1'
        f' unless on (job, instance, uuid) {seconds}{{@host, reason="hw_thermal"}}'
    )


def _number(conditions: Iterable[tuple[State, str]], by: str) -> Iterable[str]:
    """Write the number of each state, where its condition holds."""
    return (f"{state.number} * group by ({by}) ({condition})" for state, condition in conditions)
