"""Runs and how they ended, alerts that fired, and containers that died.

Times are Unix seconds, durations are seconds, and None is unknown, which is never 0.
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
        instances: The machines of its ranks, sorted.
        started: Unix seconds of its first phase, which may be long after its process started.
        ended: Unix seconds of the end of its last rank; None while it is active, or if it
            disappeared without a recorded end.
        outcome: How it ended, by the first rank that did not finish.
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
    """A run without the training client; whether its process is alive is not known.

    Attributes:
        run: The label `run`.
        instance: The machine.
        source: `tensorboard` for event files, `log` for log lines.
        progressed: Unix seconds of its last progress.
            Source: training_last_progress_timestamp_seconds; None if unknown.
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
        split: The label `split`, such as `train` or `validation`; empty if there is none.
        run: The run that reported it.
        instance: The machine of that run.
        value: The best finite sample, in the metric's own unit.
        is_lower_better: Whether the lowest value is the best, as for a loss.
        target: The value of `--target`; None if there is none.
        by_hour: The best value of each hour, at the end of the hour.
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
        """Whether the target is reached; None without a target."""
        if self.target is None:
            return None
        return self.value <= self.target if self.is_lower_better else self.value >= self.target


Figure = Literal["pace", "memory"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A figure of a run beside what the file of baselines expects.

    Attributes:
        run: The label `run`.
        instance: The machine.
        figure: `pace`, in epochs per hour, or `memory`, in bytes of its fullest accelerator.
        expected: What is expected. Source: training_expected_epoch_seconds and
            training_expected_memory_bytes.
        measured: The pace until the run's last progress, or the highest memory in use; None if
            unknown. Source: training_epoch, accelerator_memory_used_bytes.
        by_hour: The same of each hour, at the end of the hour.
    """

    run: str
    instance: str
    figure: Figure
    expected: float
    measured: float | None = None
    by_hour: Points = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """The training of the period.

    Attributes:
        is_told: Whether an exporter reports runs, so that an empty list means that there were none.
        attempts: Every start that was active in the period, the latest first.
        observed: Runs that are known from logs or event files only.
        best: The best value of each metric of each run.
        expected: What is expected of runs, with what was measured.
        lost_seconds: Time of steps that were repeated after failures.
            Source: training_lost_seconds_total; None if unknown.
        lost_steps: The number of these steps. Source: training_lost_steps_total; None if unknown.
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
        """The mean duration of the starts that finished; None if none did."""
        lengths = [
            each.ended - each.started
            for each in self.attempts
            if each.outcome == "completed" and each.ended is not None
        ]
        return sum(lengths) / len(lengths) if lengths else None

    @property
    def unresumed(self) -> tuple[Attempt, ...]:
        """The starts that failed and were not followed by another."""
        return tuple(each for each in self.attempts if each.outcome in BAD and not each.is_resumed)


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert that fired in the period, with every time that it did. Source: ALERTS.

    Attributes:
        alert: The label `alertname`.
        severity: `critical`, `warning` or `info`; empty if the rule has none.
        instance: The machine; empty if the alert has no such label.
        subject: The run, container, mount point or device; empty for the machine as a whole.
        verdict: The alert's summary, with the cause of death of its run or container.
        spans: Begin and end of each time that it fired, in Unix seconds; the end is that of the
            period if it was still firing.
        is_firing: Whether it was firing at the end of the period.
        resolution: How it ended, as text.
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
        """The sum of all its spans."""
        return sum(end - begin for begin, end in self.spans)


@dataclass(frozen=True, slots=True)
class Deaths:
    """Deaths of one container for one reason.

    Attributes:
        instance: The machine.
        name: The container's name.
        reason: A reason of `docs/diagnosis.md`.
        count: The number of deaths. Source: container_deaths_total.
        last: Unix seconds of the last one.
        is_running: Whether it was running at the end of the period; None if unknown.
    """

    instance: str
    name: str
    reason: str
    count: int
    last: float
    is_running: bool | None


def group_attempts(attempts: Iterable[Attempt]) -> dict[tuple[str, tuple[str, ...]], list[Attempt]]:
    """Return the starts by run and machines, in the order of each run's first."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Attempt]] = {}
    for each in attempts:
        grouped.setdefault((each.run, each.instances), []).append(each)
    return grouped


def choose_best(best: Iterable[Best]) -> tuple[Best, ...]:
    """Return the best of each metric and split, over all runs."""
    chosen: dict[tuple[str, str], Best] = {}
    for each in best:
        other = chosen.get((each.name, each.split))
        if other is None or is_better(each, other):
            chosen[each.name, each.split] = each
    return tuple(chosen.values())


def is_better(one: Best, other: Best) -> bool:
    """Return whether one value is better than another of the same metric."""
    return one.value < other.value if one.is_lower_better else one.value > other.value
