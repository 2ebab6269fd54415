"""Which accelerators ranks hold, written as queries.

`training_rank_info` names them in `gpu_uuid`, up to eight with commas between them. PromQL cannot
take a list apart, so each place in it is cut out by an expression of its own. On a machine of which
no rank says what it holds, all accelerators that some process holds count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainvitals.report.archive import Archive

DEVICE: Final = "job, instance, uuid"
RANK: Final = "job, instance, run, rank"
LIVES: Final = "training_process_up{@host} == 1"
ANSWERS: Final = "accelerator_up{@host} == 1"

# All that training_rank_info lists.
_MOST_IN_A_LIST: Final = 8


@dataclass(frozen=True, slots=True)
class Holding:
    """Writes queries for the accelerators of ranks.

    Attributes:
        most: How many accelerators a rank has at most.
    """

    most: int = 1

    def hold(self, condition: str) -> str:
        """Give accelerators of which a rank fulfils a condition, each as 1, while they answer."""
        return f"(group by ({DEVICE}) ({self._place(condition)}) and on ({DEVICE}) {ANSWERS})"

    def hold_most(self, expr: str) -> str:
        """Give the highest value that a rank of each accelerator has."""
        return f"max by ({DEVICE}) ({self._place(expr)})"

    def _place(self, expr: str) -> str:
        known = " or ".join(_cut_out(place) for place in range(self.most))
        told = (
            f"max by ({RANK}, uuid) ({known}) * on ({RANK}) group_left () max by ({RANK}) ({expr})"
        )
        unsaid = (
            f"max by (job, instance) (({expr}) and on ({RANK}) training_rank_info{{@host, "
            'gpu_uuid=""}) unless on (job, instance) training_rank_info{@host, gpu_uuid!=""}'
        )
        there = (
            f"(accelerator_up{{@host}} unless on ({DEVICE}) accelerator_processes{{@host}} == 0)"
        )
        return f"{told} or {there} * on (job, instance) group_left () ({unsaid})"


def find_holding(archive: Archive) -> Holding:
    """Find out how long the lists are: cutting out of short ones is much less work."""
    told = archive.ask_hours(
        "ranks with several accelerators",
        'group(last_over_time(training_rank_info{@host, gpu_uuid=~".+,.+"}[@hour]))',
    )
    return Holding(_MOST_IN_A_LIST if told else 1)


def _cut_out(before: int) -> str:
    """Give ranks with the label `uuid`, the one in their list after so many others."""
    having = f'gpu_uuid=~"([^,]+,){{{before}}}.+"' if before else 'gpu_uuid!=""'
    taken = f"(?:[^,]+,){{{before}}}([^,]+).*"
    return (
        f'label_replace(training_rank_info{{@host, {having}}}, "uuid", "$1", "gpu_uuid", "{taken}")'
    )
