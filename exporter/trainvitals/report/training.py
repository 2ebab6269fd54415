"""Runs and how they ended, alerts that fired, and containers that died.

Times are Unix seconds, durations are seconds, and None means unknown; an unknown value is never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.prometheus import Points

Outcome = Literal[
    "active",
    "completed",
    "failed",
    "out of memory",
    "killed",
    "terminated",
    "interrupted",
    "vanished",
    "unknown",
]
BAD: frozenset[Outcome] = frozenset({"failed", "out of memory", "killed", "vanished", "unknown"})
"""Outcomes that count as failures; `terminated` (SIGTERM) and `interrupted` (Ctrl-C) do not."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run.

    Attributes:
        run: The label `run`.
        instances: The machines with ranks of the run, sorted.
        started: Unix seconds of the start of the first phase, which may be long after the process
            started.
        ended: Unix seconds of the end of the last rank; None while the start is active, or if it
            disappeared without a recorded end.
        outcome: How the start ended, according to the first rank that did not finish.
        exit_code: The exit code of that rank. Source: training_process_exit_code; None if unknown.
        is_resumed: Whether the run was started again afterwards.
    """

    run: str
    instances: tuple[str, ...]
    started: float
    ended: float | None
    outcome: Outcome
    exit_code: int | None
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """A run without the training client; whether the run's process is alive is unknown.

    Attributes:
        run: The label `run`.
        instance: The machine.
        source: `tensorboard` for event files, `log` for log lines.
        progressed: Unix seconds of the last progress. Source:
            training_last_progress_timestamp_seconds; None if unknown.
    """

    run: str
    instance: str
    source: str
    progressed: float | None


@dataclass(frozen=True, slots=True)
class Best:
    """The best value of a metric that a run reported in the period.

    Attributes:
        name: The metric, such as `val_iou`.
        split: The label `split`, such as `train` or `validation`; empty if the metric has no split.
        run: The run that reported it.
        instance: The machine on which the run reported the value.
        value: The best finite sample, in the metric's own unit.
        is_lower_better: Whether the lowest value is the best, as for a loss.
        target: The value of `--target`; None if no target is set.
        by_hour: The best value in each hour, at the end of the hour.
    """

    name: str
    split: str
    run: str
    instance: str
    value: float
    is_lower_better: bool
    target: float | None = None
    by_hour: Points = ()

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None if no target is set."""
        if self.target is None:
            return None
        return self.value <= self.target if self.is_lower_better else self.value >= self.target


Figure = Literal["pace", "memory"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A measured figure of a run, and the value that the baselines file expects.

    Attributes:
        run: The label `run`.
        instance: The machine.
        figure: `pace`, in epochs per hour, or `memory`, in bytes on the run's fullest accelerator.
        expected: The expected value. Source: training_expected_epoch_seconds and
            training_expected_memory_bytes.
        measured: The pace until the run's last progress, or the highest memory in use; None if
            unknown. Source: training_epoch, accelerator_memory_used_bytes.
        by_hour: The measured value for each hour, at the end of the hour.
    """

    run: str
    instance: str
    figure: Figure
    expected: float
    measured: float | None = None
    by_hour: Points = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """The training in a period.

    Attributes:
        is_told: Whether an exporter reports runs; if so, an empty list means that no run was
            active.
        attempts: Every start that was active in the period, the latest first.
        observed: Runs that are known only from logs or event files.
        best: The best value that each run reported for each metric.
        expected: The expected figures of runs, with the measured ones.
        lost_seconds: The duration of steps that were repeated after failures. Source:
            training_lost_seconds_total; None if unknown.
        lost_steps: The number of repeated steps. Source: training_lost_steps_total; None if
            unknown.
    """

    is_told: bool = False
    attempts: tuple[Attempt, ...] = ()
    observed: tuple[Observed, ...] = ()
    best: tuple[Best, ...] = ()
    expected: tuple[Expectation, ...] = ()
    lost_seconds: float | None = None
    lost_steps: float | None = None

    @property
    def completed(self) -> int | None:
        """The number of starts that finished; None if no exporter reports runs."""
        return self._count({"completed"})

    @property
    def failed(self) -> int | None:
        """The number of starts that failed; None if no exporter reports runs."""
        return self._count(BAD)

    def _count(self, outcomes: AbstractSet[Outcome]) -> int | None:
        if not self.is_told:
            return None
        return sum(each.outcome in outcomes for each in self.attempts)

    @property
    def mean_seconds(self) -> float | None:
        """The mean duration of the starts that finished; None if no start finished."""
        lengths = [
            each.ended - each.started
            for each in self.attempts
            if each.outcome == "completed" and each.ended is not None
        ]
        return sum(lengths) / len(lengths) if lengths else None

    @property
    def unresumed(self) -> tuple[Attempt, ...]:
        """The starts that failed and were not followed by another start."""
        return tuple(each for each in self.attempts if each.outcome in BAD and not each.is_resumed)


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert on one subject, with every time that it fired in the period. Source: ALERTS.

    Attributes:
        alert: The label `alertname`.
        severity: `critical`, `warning` or `info`; empty if the rule sets no severity.
        instance: The machine; empty if the alert does not name a machine.
        subject: The run, container, mount point or device; empty for the machine as a whole.
        verdict: The alert's summary, with the reasons for which its run or container ended.
        spans: The start and end of each time that the alert fired, in Unix seconds; if the alert
            was still firing, the last end is the end of the period.
        is_firing: Whether the alert was firing at the end of the period.
        resolution: How the incident ended, as text.
    """

    alert: str
    severity: str
    instance: str
    subject: str
    verdict: str
    spans: tuple[tuple[float, float], ...]
    is_firing: bool
    resolution: str

    @property
    def seconds(self) -> float:
        """The total duration of all spans."""
        return sum(end - begin for begin, end in self.spans)


@dataclass(frozen=True, slots=True)
class Deaths:
    """Deaths of one container for one reason.

    Attributes:
        instance: The machine.
        name: The container's name.
        reason: One of the reasons in `docs/diagnosis.md`.
        count: The number of deaths. Source: container_deaths_total.
        last: Unix seconds of the last death.
        is_running: Whether the container was running at the end of the period; None if unknown.
    """

    instance: str
    name: str
    reason: str
    count: int
    last: float
    is_running: bool | None


def group_attempts(attempts: Iterable[Attempt]) -> dict[tuple[str, tuple[str, ...]], list[Attempt]]:
    """Group starts by run and machines, in the order in which each group first occurs."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Attempt]] = {}
    for each in attempts:
        grouped.setdefault((each.run, each.instances), []).append(each)
    return grouped


def choose_best(best: Iterable[Best]) -> tuple[Best, ...]:
    """Return the best value for each metric and split, over all runs."""
    chosen: dict[tuple[str, str], Best] = {}
    for each in best:
        other = chosen.get((each.name, each.split))
        if other is None or is_better(each, other):
            chosen[each.name, each.split] = each
    return tuple(chosen.values())


def is_better(one: Best, other: Best) -> bool:
    """Return whether one value is better than another of the same metric."""
    return one.value < other.value if one.is_lower_better else one.value > other.value
