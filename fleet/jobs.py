"""The training jobs of the simulated machines: their figures, their slowdowns and their ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.course import Course
from trainvitals.sources.runs.endings import Reason

DEAD = "dead"
"""The stage in which a run's processes have ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How each attempt of a run ends.

    Attributes:
        reason: As the exporter would find it.
        exit_code: Its exit code; None for one that a signal ended.
        signal: That signal.
        exception: The class of the exception that ended it; empty for none.
        raising_rank: The rank that ended so, whereupon its launcher ended the others by SIGTERM;
            None where all ended alike.
    """

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    exception: str = ""
    raising_rank: int | None = None

    def of_rank(self, rank: int) -> Outcome:
        """Return how a rank ended."""
        return self if self.raising_rank in (None, rank) else TERMINATED


KILLED = Outcome("signal", signal=9)
OUT_OF_MEMORY = Outcome("oom", signal=9)
TERMINATED = Outcome("signal", signal=15)
INTERRUPTED = Outcome("exception", exit_code=130, exception="KeyboardInterrupt")
FINISHED = Outcome("finished", exit_code=0)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """One rank that slows the others down.

    Attributes:
        rank: Which.
        factor: By how much a step takes longer; 1 for not at all.
    """

    rank: int
    factor: Course


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    Attributes:
        run: The run's name.
        framework: What it is written in, and its version.
        devices: The accelerator of each rank.
        pid: The process of the first rank; those of the others follow.
        step_seconds: How long a step takes while all is well.
        samples: How many samples a rank has in a step.
        tokens: How many tokens a sample has; 0 for none.
        total_steps: Of the whole run.
        epoch_steps: Of an epoch.
        loss: Where it begins, and where it tends to.
        accuracy: Likewise; None where it is not reported.
        metrics: Named metrics of the evaluations: where each begins, and where it tends to.
        data_wait: Which share of a step the ranks wait for data.
        slow_data_wait: The same while the storage is slow.
        memory_bytes: What tensors take of the device's memory.
        reserved_bytes: What the allocator holds.
        flops_per_sample: What the model needs; 0 where it is not reported.
        peak_flops: What the device can do.
        stale_after: From the how-manieth evaluation on nothing gets better; None for never.
        checkpoint_age_seconds: How old the last checkpoint may be; None where it is not set.
        alerts: Bits of `runfile.ALERTS` that are active.
        nan_filter: Whether the framework hides losses that are NaN; None where it has no such.
        first_rank: The number of the first rank on this machine.
        world_size: How many ranks there are on all machines; 0 where all are here.
        utilization: Which share of a device a step without waiting keeps busy.
        slowest: How many times longer than usual the slowest recent step took.
        warm_restart_seconds: How often the learning rate starts again, and the loss jumps by a
            third; 0 for never.
        overflow_seconds: How often a gradient overflows, as loss scaling provokes it; 0 for never.
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
