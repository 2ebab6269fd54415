"""What is trained on the recorded machines, what slows it down, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from demo.course import Course
from trainvitals.sources.training.endings import Reason

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
    """

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    exception: str = ""


KILLED = Outcome("signal", signal=9)
OUT_OF_MEMORY = Outcome("oom", signal=9)
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
    """What is trained, and how.

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
        accuracy: Likewise; None where it is not told.
        metrics: Named metrics of the evaluations: where each begins, and where it tends to.
        data_wait: Which share of a step the ranks wait for data.
        memory_bytes: What tensors take of the device's memory.
        reserved_bytes: What the allocator holds.
        flops_per_sample: What the model needs; 0 where it is not told.
        peak_flops: What the device can do.
        stale_after: From the how-manieth evaluation on nothing gets better; None for never.
        checkpoint_age_seconds: How old the last checkpoint may be; None where nobody says.
        alerts: Bits of `runfile.ALERTS` that are active.
        nan_filter: Whether the framework hides losses that are NaN; None where it has no such.
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
    flops_per_sample: float = 0.0
    peak_flops: float = 0.0
    stale_after: int | None = None
    checkpoint_age_seconds: float | None = None
    alerts: int = 0
    nan_filter: bool | None = None
