"""The figures about runs and their outcomes, alerts that fired, and containers that died.

Times are in Unix seconds and durations in seconds. None means that a value is unknown; an unknown
value is never 0.
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
        run: The run's name, from the label `run`.
        instances: The machines with ranks of the run, sorted.
        started: The time at which the first phase began, in Unix seconds; the first phase may begin
            long after the process started.
        ended: The time at which the last rank ended, in Unix seconds; None while the start is
            active, or if the start disappeared without a recorded end.
        outcome: The outcome of the start: the outcome of the first rank that ended with an
            exception or an OOM kill, else of the first rank that did not finish.
        exit_code: The exit code of the same rank, or of a finished rank if all ranks finished; None
            if the exit code is unknown. Source: training_process_exit_code.
        is_resumed: Whether the run was restarted after this start.
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
    """A run without the training client. It is unknown whether the run's process is alive.

    Attributes:
        run: The run's name, from the label `run`.
        instance: The machine's name, from the label `instance`.
        source: The source of the run's data: `tensorboard` for event files, `log` for log lines.
        progressed: The time of the run's last progress, in Unix seconds; None if the time is
            unknown. Source: training_last_progress_timestamp_seconds.
    """

    run: str
    instance: str
    source: str
    progressed: float | None


@dataclass(frozen=True, slots=True)
class Best:
    """The best value of a metric that a run reported in the period.

    Attributes:
        name: The metric's name, such as `val_iou`.
        split: The label `split`, such as `train` or `validation`; an empty string if the metric has
            no split.
        run: The run that reported the value.
        instance: The machine on which the run reported the value.
        value: The best finite sample of the metric, in the metric's own unit.
        is_lower_better: Whether the lowest value is the best, as for a loss.
        target: The target that `--target` sets for the metric; None if no target is set.
        by_hour: The metric's best value in each hour; the time of a point is the end of the hour.
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
        """Whether the best value reaches the target; None if no target is set."""
        if self.target is None:
            return None
        return self.value <= self.target if self.is_lower_better else self.value >= self.target


Figure = Literal["pace", "memory"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A measured figure of a run, and the value that the baselines file expects.

    Attributes:
        run: The run's name, from the label `run`.
        instance: The machine's name, from the label `instance`.
        figure: The figure that is compared: `pace`, in epochs per hour, or `memory`, in bytes on
            the run's fullest accelerator.
        expected: The value that the baselines file expects. Source: training_expected_epoch_seconds
            and training_expected_memory_bytes.
        measured: The pace until the run's last progress, or the highest memory in use; None if the
            measured value is unknown. Source: training_epoch, accelerator_memory_used_bytes.
        by_hour: The measured value in each hour; the time of a point is the end of the hour.
    """

    run: str
    instance: str
    figure: Figure
    expected: float
    measured: float | None = None
    by_hour: Points = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """Figures about the training runs in a period.

    Attributes:
        is_told: Whether an exporter reports runs. If true, an empty list of runs means that no run
            was active.
        attempts: The starts of runs that were active in the period, the latest first.
        observed: The runs that are known only from logs or event files.
        best: The best value that each run reported for each metric.
        expected: The expected and the measured figures of runs.
        lost_seconds: The duration of the steps that were repeated after failures; None if the
            duration is unknown. Source: training_lost_seconds_total.
        lost_steps: The number of steps that were repeated after failures; None if the number is
            unknown. Source: training_lost_steps_total.
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
        """The number of run starts that finished; None if no exporter reports runs."""
        return self._count({"completed"})

    @property
    def failed(self) -> int | None:
        """The number of run starts that failed; None if no exporter reports runs."""
        return self._count(BAD)

    def _count(self, outcomes: AbstractSet[Outcome]) -> int | None:
        if not self.is_told:
            return None
        return sum(each.outcome in outcomes for each in self.attempts)

    @property
    def mean_seconds(self) -> float | None:
        """The mean duration, in seconds, of the starts that finished; None if no start finished."""
        lengths = [
            each.ended - each.started
            for each in self.attempts
            if each.outcome == "completed" and each.ended is not None
        ]
        return sum(lengths) / len(lengths) if lengths else None

    @property
    def unresumed(self) -> tuple[Attempt, ...]:
        """The run starts that failed, if the run was not restarted afterward."""
        return tuple(each for each in self.attempts if each.outcome in BAD and not each.is_resumed)


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert about one subject, with each time span in which the alert fired. Source: ALERTS.

    Attributes:
        alert: The alert's name, from the label `alertname`.
        severity: The alert's severity: `critical`, `warning` or `info`; an empty string if the rule
            sets no severity.
        instance: The alert's machine; an empty string if the alert does not name a machine.
        subject: The alert's run, container, mount point or device; an empty string if the alert
            concerns the machine as a whole.
        verdict: The alert's summary, with the reasons why the alert's run or container ended.
        spans: The start and end of each time span in which the alert fired, in Unix seconds; if the
            alert was still firing, the last end is the end of the period.
        is_firing: Whether the alert was firing at the end of the period.
        resolution: A text that says how the incident ended.
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
        """The total duration of all spans, in seconds."""
        return sum(end - begin for begin, end in self.spans)


@dataclass(frozen=True, slots=True)
class Deaths:
    """The deaths of one container for one reason.

    Attributes:
        instance: The machine's name, from the label `instance`.
        name: The container's name.
        reason: The reason why the container died; `docs/diagnosis.md` lists all reasons.
        count: The number of deaths for this reason. Source: container_deaths_total.
        last: The time of the last death, in Unix seconds.
        is_running: Whether the container was running at the end of the period; None if the
            container's state is unknown.
    """

    instance: str
    name: str
    reason: str
    count: int
    last: float
    is_running: bool | None


def group_attempts(attempts: Iterable[Attempt]) -> dict[tuple[str, tuple[str, ...]], list[Attempt]]:
    """Group starts by run and machines, in the order in which the groups first occur."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Attempt]] = {}
    for each in attempts:
        grouped.setdefault((each.run, each.instances), []).append(each)
    return grouped


def choose_best(best: Iterable[Best]) -> tuple[Best, ...]:
    """Return the best value among all runs for each metric and split."""
    chosen: dict[tuple[str, str], Best] = {}
    for each in best:
        other = chosen.get((each.name, each.split))
        if other is None or is_better(each, other):
            chosen[each.name, each.split] = each
    return tuple(chosen.values())


def is_better(one: Best, other: Best) -> bool:
    """Return whether `one` is a better value of a metric than `other`."""
    return one.value < other.value if one.is_lower_better else one.value > other.value
