"""Queries limited to the machines of the selected run and the accelerators that its ranks hold.

The metrics of a run do not have the labels of its machines and accelerators, so these are found
with `training_run_info` and `training_rank_info`, whose label `gpu_uuid` is a comma-separated list
of up to eight accelerators. PromQL cannot split a list, so each position in the list is extracted
by a separate expression; only the first expression matches ranks with a single accelerator.

The accelerators are queried once, at the end of the time range, for the entire time range. The
query costs no more for a week than for an hour, and the first seconds of a rank, in which it does
not hold accelerators yet, have no effect.
"""

from __future__ import annotations

from typing import Final

# The maximum number of accelerators that training_rank_info lists.
_MOST_IN_A_LIST: Final = 8
# All accelerators of a large machine, plus some of a second machine.
MOST_LINES: Final = 12

# The rate of the counter, which works for steps of any duration; runs known from logs have no
# counter.
PACE: Final = (
    "sum(rate(training_samples_total{@run}[$__rate_interval]))"
    " or sum(training_samples_per_second{@run}"
    " unless on (job, instance, run, rank) training_samples_total{@run})"
)

_RANKS: Final = "last_over_time(training_rank_info{@rank%s}[$__range] @ end())"
_RANKS_NOW: Final = "training_rank_info{@rank%s}"


def on_hosts(expr: str) -> str:
    """Return an expression limited to the run's machines while the run was active there."""
    return f"({expr}) and on (job, instance) training_run_info{{@run}}"


def on_devices(expr: str, *, is_now: bool = False) -> str:
    """Return an expression limited to the accelerators held by the run's ranks during the run.

    On a machine whose ranks report no accelerators, all accelerators of the machine are included.
    """
    return (
        f"({expr}) and on (job, instance, uuid) ({_list_devices(_RANKS_NOW if is_now else _RANKS)})"
        " and on (job, instance) training_run_info{@run}"
    )


def pick_devices(expr: str, gauge: str, extreme: str = "topk") -> str:
    """Return an expression limited to `MOST_LINES` of the run's accelerators, fixed over time.

    Args:
        expr: The expression to draw.
        gauge: A selector without range, whose mean determines the accelerators that are kept.
        extreme: `topk` keeps the accelerators with the highest means, `bottomk` those with the
            lowest means.
    """
    kept = (
        f"{extreme}({MOST_LINES}, avg_over_time({gauge}[$__range] @ end())"
        f" and on (job, instance, uuid) ({_list_devices()}))"
    )
    return (
        f"({expr}) and on (job, instance, uuid) {kept}"
        " and on (job, instance) training_run_info{@run}"
    )


def sum_held(gauge: str) -> str:
    """Return the sum of a gauge over the accelerators that each rank currently holds."""
    return (
        f"sum by (instance, rank) (max by (job, instance, run, rank, uuid) ({cut_out(_RANKS_NOW)})"
        f" * on (job, instance, uuid) group_left () {gauge})"
    )


def _list_devices(ranks: str = _RANKS) -> str:
    unknown = ranks % ', gpu_uuid=""'
    known = ranks % ', gpu_uuid!=""'
    return (
        f"group by (job, instance, uuid) ({cut_out(ranks)}"
        " or last_over_time(accelerator_up{@host}[$__range] @ end())"
        f" and on (job, instance) ({unknown} unless on (job, instance) {known}))"
    )


def cut_out(ranks: str) -> str:
    """Return an expression for the ranks with the label `uuid`, once for each accelerator held.

    Args:
        ranks: A selector of `training_rank_info`, in which `%s` is the place for more matchers.
    """
    first = f'label_replace({ranks % _having(0)}, "uuid", "$1", "gpu_uuid", "([^,]+).*")'
    others = (
        f'label_replace({ranks % _having(before)}, "uuid", "$1", "gpu_uuid",'
        f' "(?:[^,]+,){{{before}}}([^,]+).*")'
        for before in range(1, _MOST_IN_A_LIST)
    )
    return " or ".join((first, *others))


def _having(before: int) -> str:
    """Return a matcher for lists of more than `before` accelerators."""
    return f', gpu_uuid=~"([^,]+,){{{before}}}.+"' if before else ', gpu_uuid!=""'
