"""Ordinary training: attempts of runs, and the stages that each goes through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

HOUR, DAY = 60, 24 * 60
SHOWN_MINUTES_AFTER_DEATH = 15

Ending = Literal["finished", "exception", "interrupted", "signal", "running"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of an attempt in one phase.

    Attributes:
        phase: As in `training_phase`.
        minutes: How long.
        data_wait: Share of training in which it waits for data.
        pace: Its speed as a share of the run's usual.
        utilization: Percent of the device that it keeps busy; None for the run's usual.
        hung: Whether nothing gets on, though the phase says otherwise.
    """

    phase: str
    minutes: int
    data_wait: float = 0.02
    pace: float = 1.0
    utilization: float | None = None
    hung: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """What the attempts of a run have in common.

    Attributes:
        run: Its name.
        devices: The cards that it has on this machine, one for each rank here.
        first_rank: Number of the first rank here.
        world_size: Ranks on all machines.
        step_seconds: How long a step takes.
        slowest_step_seconds: The slowest of the recent ones: the first of an epoch, one with a log.
        samples: Samples of a step, of a rank.
        utilization: Percent of a card that training keeps busy.
        reserved: Share of the card's memory that the allocator holds.
        allocated: Share of the card's memory that tensors take.
        loss: At its start, and what it comes down to.
        warm_restart_minutes: How often the learning rate starts anew, and the loss jumps by a
            third; 0 for never.
        overflow_minutes: How often a gradient overflows, as loss scaling provokes it; 0 for never.
        best_evaluation: Number of the evaluation after which none is better; None for no such.
        checkpoint_max_age_minutes: As the run says.
        wait_outside: Percent of the card in use while it does not train.
    """

    run: str
    devices: tuple[int, ...]
    first_rank: int = 0
    world_size: int = 8
    step_seconds: float = 0.8
    slowest_step_seconds: float = 2.0
    samples: int = 16
    utilization: float = 95.0
    reserved: float = 0.8
    allocated: float = 0.6
    loss: tuple[float, float] = (4.0, 1.8)
    warm_restart_minutes: int = 0
    overflow_minutes: int = 0
    best_evaluation: int | None = None
    checkpoint_max_age_minutes: int = 180
    wait_outside: float = 4.0

    @property
    def ranks(self) -> Iterator[tuple[str, int]]:
        """Give each rank here, and its device."""
        for place, device in enumerate(self.devices):
            yield str(self.first_rank + place), device


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run, and how it ended.

    Attributes:
        job: What it does.
        start: Minute.
        stages: In order.
        ending: How its processes ended; `signal` is a SIGTERM, `interrupted` a Ctrl-C, and `running`
            stays until the end of the week.
        raising_rank: The rank that ended by an exception, when the launcher ended the others by
            SIGTERM; None when all ended alike.
        resumes: Whether it goes on from the checkpoint of the attempt before.
    """

    job: Job
    start: int
    stages: tuple[Stage, ...]
    ending: Ending = "finished"
    raising_rank: str | None = None
    resumes: bool = False

    @property
    def trained_minutes(self) -> int:
        """Minutes that it trains."""
        return sum(stage.minutes for stage in self.stages if stage.phase == "train")

    @property
    def end(self) -> int:
        """Minute in which its processes are gone."""
        return self.start + sum(stage.minutes for stage in self.stages)

    def name_ending(self, rank: str) -> tuple[str, int]:
        """Give the reason and the exit code of a rank."""
        if self.raising_rank is not None and rank != self.raising_rank:
            return "signal", 143
        if self.ending == "interrupted":
            return "exception", 130
        codes = {"finished": 0, "exception": 1, "signal": 143}
        return self.ending, codes[self.ending]


def train(
    minutes: int,
    *,
    init: int = 3,
    compile_minutes: int = 4,
    checkpoint_every: int = 60,
    checkpoint: int = 3,
    validation_every: int = 120,
    validation: int = 6,
    slow_data_at: int | None = None,
    slow_data: tuple[int, float] = (8, 0.45),
) -> tuple[Stage, ...]:
    """Plan an attempt that trains, evaluates and saves at intervals.

    Args:
        minutes: How long it takes in all.
        init: Minutes until the model is there.
        compile_minutes: Minutes until the first step.
        checkpoint_every: Minutes of training between two checkpoints.
        checkpoint: Minutes that one takes.
        validation_every: Minutes of training between two evaluations.
        validation: Minutes that one takes.
        slow_data_at: After how many minutes of training storage is slow for a while.
        slow_data: For how many minutes, and what share of them is spent waiting.
    """
    stages = [Stage("init", init)]
    if compile_minutes:
        stages.append(Stage("compile", compile_minutes))
    left = minutes - init - compile_minutes
    trained = 0
    while left > 0:
        marks = [checkpoint_every - trained % checkpoint_every]
        marks.append(validation_every - trained % validation_every)
        if slow_data_at is not None and trained < slow_data_at:
            marks.append(slow_data_at - trained)
        if trained == slow_data_at:
            length, share = slow_data
            length = min(length, left, *marks)
            pace = (1 - share) / 0.98
            stages.append(Stage("train", length, data_wait=share, pace=pace, utilization=95 * pace))
        else:
            length = min(left, *marks)
            stages.append(Stage("train", length))
        trained += length
        left -= length
        if left > 0 and trained % validation_every == 0:
            stages.append(Stage("validation", min(validation, left)))
            left -= validation
        if left > 0 and trained % checkpoint_every == 0:
            stages.append(Stage("checkpoint", min(checkpoint, left)))
            left -= checkpoint
    return tuple(stages)
