"""The training jobs of simulated machines: properties, slowdowns and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.course import Course
from trainvitals.sources.runs.endings import Reason

DEAD = "dead"
"""The stage in which a run's processes have ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of each attempt of a run.

    Attributes:
        reason: The reason as the exporter would determine it.
        exit_code: The exit code; None for a process terminated by a signal.
        signal: The terminating signal.
        exception: The class of the exception that ended the process; empty for none.
        raising_rank: The rank with this outcome, after which the launcher terminated the other
            ranks with SIGTERM; None if all ranks have this outcome.
    """

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    exception: str = ""
    raising_rank: int | None = None

    def of_rank(self, rank: int) -> Outcome:
        """Return the outcome of a rank."""
        return self if self.raising_rank in (None, rank) else TERMINATED


KILLED = Outcome("signal", signal=9)
OUT_OF_MEMORY = Outcome("oom", signal=9)
TERMINATED = Outcome("signal", signal=15)
INTERRUPTED = Outcome("exception", exit_code=130, exception="KeyboardInterrupt")
FINISHED = Outcome("finished", exit_code=0)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The slowdown of a run by one slow rank.

    Attributes:
        rank: The slow rank.
        factor: The factor by which a step is longer, over time; 1 for no slowdown.
    """

    rank: int
    factor: Course


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    Attributes:
        run: The run name.
        framework: The training framework and its version.
        devices: The accelerator of each rank.
        pid: The process ID of the first rank; the IDs of the other ranks follow.
        step_seconds: The usual duration of a step.
        samples: The number of samples per rank in a step.
        tokens: The number of tokens per sample; 0 for none.
        total_steps: The number of steps in the run.
        epoch_steps: The number of steps in an epoch.
        loss: The initial loss and the loss to which it converges.
        accuracy: The initial accuracy and the accuracy to which it converges; None if not reported.
        metrics: Named metrics of the evaluations: the initial value and the final value of each.
        data_wait: The share of a step in which the ranks wait for data.
        slow_data_wait: The share of a step in which the ranks wait for data while storage is slow.
        memory_bytes: The device memory allocated for tensors.
        reserved_bytes: The device memory reserved by the allocator.
        flops_per_sample: The model's floating-point operations per sample; 0 if not reported.
        peak_flops: The device's peak FLOP/s.
        stale_after: The number of the evaluation after which nothing improves; None for never.
        checkpoint_age_seconds: The maximum age of the last checkpoint; None if not set.
        alerts: The active alerts, as bits of `runfile.ALERTS`.
        nan_filter: Whether the framework hides NaN losses; None if the framework has no such
            filter.
        first_rank: The number of the first rank on this machine.
        world_size: The number of ranks on all machines; 0 if all ranks are on this machine.
        utilization: The device utilisation during a step, excluding the wait for data.
        slowest: The duration of the slowest recent step, as a multiple of the usual duration.
        warm_restart_seconds: The interval at which the learning rate schedule restarts and the loss
            rises by a third; 0 for never.
        overflow_seconds: The interval at which a gradient overflows because of loss scaling; 0 for
            never.
    """

    run: str
    framework: tuple[str, str]
    devices: tuple[str, ...]
    pid: int
    step_seconds: float
    samples: int
    total_steps: int
    epoch_steps: int
    loss: tuple[float, float]
    memory_bytes: int
    reserved_bytes: int
    tokens: int = 0
    accuracy: tuple[float, float] | None = None
    metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    data_wait: float = 0.02
    slow_data_wait: float = 0.45
    flops_per_sample: float = 0.0
    peak_flops: float = 0.0
    stale_after: int | None = None
    checkpoint_age_seconds: float | None = None
    alerts: int = 0
    nan_filter: bool | None = None
    first_rank: int = 0
    world_size: int = 0
    utilization: float = 1.0
    slowest: float = 1.6
    warm_restart_seconds: float = 0.0
    overflow_seconds: float = 0.0
