"""What the figures of a report add up to."""

from __future__ import annotations

from collections.abc import Iterable

from trainvitals.report.figures import Report
from trainvitals.report.hardware import Accelerators
from trainvitals.report.training import BAD, Attempt, Best, Runs
from trainvitals.report.waste import is_waste


def count_completed(runs: Runs) -> int | None:
    """Count starts that finished; None where nobody looks for runs."""
    if not runs.is_told:
        return None
    return sum(each.outcome == "completed" for each in runs.attempts)


def count_failed(runs: Runs) -> int | None:
    """Count starts that ended badly; None where nobody looks for runs."""
    if not runs.is_told:
        return None
    return sum(each.outcome in BAD for each in runs.attempts)


def find_wasted_ratio(accelerators: Accelerators) -> float | None:
    """Give the share of accelerator time that was wasted; None where there was none."""
    every = sum(use.seconds for use in accelerators.uses)
    return find_wasted_seconds(accelerators) / every if every else None


def find_wasted_seconds(accelerators: Accelerators) -> float:
    """Give the accelerator time that was wasted."""
    return sum(use.seconds for use in accelerators.uses if is_waste(use.cause))


def average_training_seconds(runs: Runs) -> float | None:
    """Give how long starts took that finished, the mean; None where none did."""
    lengths = [
        each.ended - each.started
        for each in runs.attempts
        if each.outcome == "completed" and each.ended is not None
    ]
    return sum(lengths) / len(lengths) if lengths else None


def group_attempts(attempts: Iterable[Attempt]) -> dict[tuple[str, tuple[str, ...]], list[Attempt]]:
    """Give the starts of each run together, in the order of the first of each."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Attempt]] = {}
    for each in attempts:
        grouped.setdefault((each.run, each.instances), []).append(each)
    return grouped


def find_unresumed(report: Report) -> tuple[Attempt, ...]:
    """Give the starts that ended badly and that nobody started again."""
    return tuple(
        each for each in report.runs.attempts if each.outcome in BAD and not each.is_resumed
    )


def choose_best(best: Iterable[Best]) -> tuple[Best, ...]:
    """Give the best of each metric and split, over all runs."""
    chosen: dict[tuple[str, str], Best] = {}
    for each in best:
        other = chosen.get((each.name, each.split))
        if other is None or is_better(each, other):
            chosen[each.name, each.split] = each
    return tuple(chosen.values())


def is_better(one: Best, other: Best) -> bool:
    """Whether one value is better than another of the same metric."""
    return one.value < other.value if one.is_lower_better else one.value > other.value
