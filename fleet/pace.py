"""The progress of a run: its position in the script, and the totals of its steps.

A script consists of these stages:

=========== =======================================================================
init        the process starts, reads its checkpoint and its data
compile     the graph is compiled
train       steps are done
slow        steps are done while the storage is slow
validation  an evaluation
checkpoint  a checkpoint is written
hung        a step hangs
dead        the process has ended; the next round begins with the next start of the run
=========== =======================================================================
"""

from __future__ import annotations

import math

from fleet.course import Course, Total, constant, ripple
from fleet.jobs import DEAD, Job, Outcome, Slowdown
from fleet.script import Scene, Script
from trainvitals.runfile import BUCKET_BOUNDS

_NOBODY = Slowdown(-1, constant(1.0))
# The steepness of the distribution of step durations around the usual duration.
_STEEPNESS = 14.0
_TRAINING = ("train", "slow")


class Pace:
    """The progress of a run over time.

    Args:
        job: The training job.
        script: The script of the run's stages.
        start: The time at which the run begins, in Unix seconds.
        outcome: The outcome of each round; None for a run whose script has no stage `dead`.
        steps_before: The number of steps completed before the first round.
        slowdown: A rank that temporarily slows the others down; None for no such rank.

    Attributes:
        job: The argument `job`.
        script: The argument `script`.
        start: The argument `start`.
        outcome: The argument `outcome`.
        slowdown: The argument `slowdown`; a slowdown with rank -1 if the argument is None.
    """

    def __init__(
        self,
        job: Job,
        script: Script,
        start: float,
        outcome: Outcome | None,
        steps_before: int,
        slowdown: Slowdown | None,
    ) -> None:
        self.job, self.script, self.start, self.outcome = job, script, start, outcome
        self.slowdown = slowdown or _NOBODY
        self._before = steps_before
        self._steps = Total(self._step_rate, start)
        self._seconds = Total(self._trains, start)
        self._waited = Total(lambda now: self._trains(now) * self.data_wait(now), start)
        self._lost = Total(lambda now: self._trains(now) * self._lost_share(now), start)
        self._buckets = [Total(self._rate_up_to(bound), start) for bound in BUCKET_BOUNDS]

    def scene(self, now: float) -> Scene:
        """Return the current scene; before its start, the run is in the stage `dead`."""
        if now < self.start:
            return Scene(DEAD, -math.inf, 0, -math.inf)
        return self.script.at(now)

    def began(self, now: float) -> float:
        """Return the time at which the current attempt began."""
        return self.scene(now).round_start if self.outcome else self.start

    def attempt(self, now: float) -> int:
        """Return the number of restarts."""
        return self.scene(now).round if self.outcome else 0

    def step_seconds(self, now: float) -> float:
        """Return the duration of a step in seconds."""
        wander = 1 + 0.03 * ripple(self.job.pid + 1, now)
        longer = (1 - self.job.data_wait) / (1 - self.data_wait(now))
        return self.job.step_seconds * longer * self.slowdown.factor(now) * wander

    def is_training(self, now: float) -> bool:
        """Return whether the run is doing steps."""
        return self.scene(now).name in _TRAINING

    def data_wait(self, now: float) -> float:
        """Return the share of a step in which the run waits for data."""
        is_slow = self.scene(now).name == "slow"
        return self.job.slow_data_wait if is_slow else self.job.data_wait

    def last_step(self, now: float) -> float:
        """Return the time at which the last step ended or the current stage began."""
        scene = self.scene(now)
        if scene.name not in _TRAINING:
            return scene.start
        done = self._steps.at(now) % 1
        return max(scene.start, now - done * self.step_seconds(now))

    # Values of the current attempt.

    def steps(self, now: float) -> int:
        """Return the number of steps."""
        return int(self._since(self._steps, now))

    def train_seconds(self, now: float) -> float:
        """Return the total duration of the steps in seconds."""
        return self._since(self._seconds, now)

    def waited_seconds(self, now: float) -> float:
        """Return the part of `train_seconds` that was spent waiting for data."""
        return self._since(self._waited, now)

    def lost_seconds(self, now: float) -> float:
        """Return the part of `train_seconds` that was lost because of the slow rank."""
        return self._since(self._lost, now)

    def stage_seconds(self, name: str, now: float) -> float:
        """Return the time spent in stages with a name, in seconds."""
        return self.script.spent(name, now) - self.script.spent(name, self.began(now))

    def count(self, name: str, now: float) -> int:
        """Return the number of ended stages with a name."""
        return self.script.count_ends(name, now) - self.script.count_ends(name, self.began(now))

    def steps_by_duration(self, now: float) -> list[int]:
        """Return the number of steps in each bucket of `BUCKET_BOUNDS` and of longer steps."""
        steps = self.steps(now)
        up_to = [min(steps, int(self._since(total, now))) for total in self._buckets]
        ends = [*up_to, steps]
        return [high - low for low, high in zip([0, *up_to], ends, strict=True)]

    # Values of the entire run.

    def first_step(self, now: float) -> int:
        """Return the number of the step at which the current attempt began."""
        if self.outcome is None or self.outcome.reason == "finished":
            return self._before
        return self._before + self.attempt(now) * self._kept_steps()

    def learned(self, now: float) -> float:
        """Return the share of the run's total steps that has been completed, 0 to 1."""
        steps = self.first_step(now) + self._since(self._steps, now)
        return min(1.0, steps / self.job.total_steps)

    def lost_steps(self) -> int:
        """Return the number of steps that are lost each time the process ends."""
        return max(0, self._steps_in_round(DEAD) - self._kept_steps())

    def _since(self, total: Total, now: float) -> float:
        return total.at(now) - total.at(self.began(now))

    def _kept_steps(self) -> int:
        """Return the number of steps in a round up to the last checkpoint."""
        if not any(stage.name == "checkpoint" for stage in self.script.stages):
            return 0
        return self._steps_in_round("checkpoint")

    def _steps_in_round(self, until: str) -> int:
        end = self.script.start + self.script.begin_last(until)
        return int(sum(self.script.spent(name, end) for name in _TRAINING) / self.job.step_seconds)

    def _trains(self, now: float) -> float:
        return float(self.is_training(now))

    def _step_rate(self, now: float) -> float:
        return self._trains(now) / self.step_seconds(now)

    def _rate_up_to(self, bound: float) -> Course:
        def rate(now: float) -> float:
            times_longer: float = (self.step_seconds(now) / bound) ** _STEEPNESS
            return self._step_rate(now) / (1 + times_longer)

        return rate

    def _lost_share(self, now: float) -> float:
        return 1 - 1 / self.slowdown.factor(now)
