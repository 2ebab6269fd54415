"""What belongs to the chosen run: its machines, and the accelerators that its ranks hold.

A run does not know its machines and accelerators by their labels, so they are found by
`training_run_info` and by `training_rank_info`, whose `gpu_uuid` lists up to eight accelerators
with commas between them. PromQL cannot take a list apart, so each place in it is cut out by an
expression of its own; ranks with a single accelerator are touched by the first alone.

Which accelerators those are is asked once, at the end of the time range, for all of it. That costs
no more for a week than for an hour, and a rank's first seconds, in which it holds none yet, do not
count.
"""

from __future__ import annotations

from typing import Final

# All that training_rank_info lists.
_MOST_IN_A_LIST: Final = 8
# All of a large machine, with room for the smaller part of a second one.
MOST_LINES: Final = 12

# By the counter, for which no step is too short or too long; logs have no counter.
PACE: Final = (
    "sum(rate(training_samples_total{@run}[$__rate_interval]))"
    " or sum(training_samples_per_second{@run}"
    " unless on (job, instance, run, rank) training_samples_total{@run})"
)

_RANKS: Final = "last_over_time(training_rank_info{@rank%s}[$__range] @ end())"
_RANKS_NOW: Final = "training_rank_info{@rank%s}"


def on_hosts(expr: str) -> str:
    """Keep what is of the machines on which the run was, while it was there."""
    return f"({expr}) and on (job, instance) training_run_info{{@run}}"


def on_devices(expr: str, *, is_now: bool = False) -> str:
    """Keep what is of the accelerators that the run's ranks held, while the run was there.

    On a machine whose ranks report no accelerators, all of them count.
    """
    return (
        f"({expr}) and on (job, instance, uuid) ({_list_devices(_RANKS_NOW if is_now else _RANKS)})"
        " and on (job, instance) training_run_info{@run}"
    )


def pick_devices(expr: str, gauge: str, extreme: str = "topk") -> str:
    """Keep `MOST_LINES` of those accelerators, the same ones for all of the time range.

    Args:
        expr: What is drawn.
        gauge: A selector without range, whose mean decides which accelerators are kept.
        extreme: `topk` keeps those with the highest means, `bottomk` those with the lowest.
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
    """Sum what is of the accelerators that each rank holds now, by machine and rank."""
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
    """Return the ranks with the label `uuid`: once for each accelerator that they hold.

    Args:
        ranks: A selector of `training_rank_info`, with `%s` where more matchers go.
    """
    first = f'label_replace({ranks % _having(0)}, "uuid", "$1", "gpu_uuid", "([^,]+).*")'
    others = (
        f'label_replace({ranks % _having(before)}, "uuid", "$1", "gpu_uuid",'
        f' "(?:[^,]+,){{{before}}}([^,]+).*")'
        for before in range(1, _MOST_IN_A_LIST)
    )
    return " or ".join((first, *others))


def _having(before: int) -> str:
    """Return the matcher for lists that go on after so many accelerators."""
    return f', gpu_uuid=~"([^,]+,){{{before}}}.+"' if before else ', gpu_uuid!=""'
