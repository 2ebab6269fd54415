"""How a run gets on: where it is in its script, and what its steps come to.

A script has these stages:

=========== =======================================================================
init        the process starts, reads its checkpoint and its data
compile     the graph is compiled
train       steps are done
slow        the same, while the storage is slow
validation  an evaluation
checkpoint  a checkpoint is written
hung        a step does not end
dead        the process has ended; the next round is the next start of the run
=========== =======================================================================
"""

from __future__ import annotations

import math

from fleet.course import Course, Total, constant, ripple
from fleet.jobs import DEAD, Job, Outcome, Slowdown
from fleet.script import Scene, Script
from trainvitals.runfile import BUCKET_BOUNDS

_NOBODY = Slowdown(-1, constant(1.0))
# How steeply the durations of steps gather around the usual one.
_STEEPNESS = 14.0
_TRAINING = ("train", "slow")


class Pace:
    """The course of a run.

    Args:
        job: The job.
        script: When what happens.
        start: From when on there is a run, Unix seconds.
        outcome: How each round ends; None for a run whose script has no death.
        steps_before: What was done before the first round.
        slowdown: A rank that slows the others down, at times.

    Attributes:
        job: The same.
        script: The same.
        start: The same.
        outcome: The same.
        slowdown: The same; of rank -1 where no rank does so.
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
        """Return the scene; before its start the run has been dead since ever."""
        if now < self.start:
            return Scene(DEAD, -math.inf, 0, -math.inf)
        return self.script.at(now)

    def began(self, now: float) -> float:
        """Return when the present attempt began."""
        return self.scene(now).round_start if self.outcome else self.start

    def attempt(self, now: float) -> int:
        """Return how often it was started again."""
        return self.scene(now).round if self.outcome else 0

    def step_seconds(self, now: float) -> float:
        """Return how long a step takes."""
        wander = 1 + 0.03 * ripple(self.job.pid + 1, now)
        longer = (1 - self.job.data_wait) / (1 - self.data_wait(now))
        return self.job.step_seconds * longer * self.slowdown.factor(now) * wander

    def is_training(self, now: float) -> bool:
        """Return whether it does steps."""
        return self.scene(now).name in _TRAINING

    def data_wait(self, now: float) -> float:
        """Return which share of a step it waits for data."""
        is_slow = self.scene(now).name == "slow"
        return self.job.slow_data_wait if is_slow else self.job.data_wait

    def last_step(self, now: float) -> float:
        """Return the moment at which its last step ended, or what it does began."""
        scene = self.scene(now)
        if scene.name not in _TRAINING:
            return scene.start
        done = self._steps.at(now) % 1
        return max(scene.start, now - done * self.step_seconds(now))

    # Of the present attempt.

    def steps(self, now: float) -> int:
        """Count its steps."""
        return int(self._since(self._steps, now))

    def train_seconds(self, now: float) -> float:
        """Return how long its steps took."""
        return self._since(self._seconds, now)

    def waited_seconds(self, now: float) -> float:
        """Return how much of that was spent waiting for data."""
        return self._since(self._waited, now)

    def lost_seconds(self, now: float) -> float:
        """Return how much of that was there only because of the slow rank."""
        return self._since(self._lost, now)

    def stage_seconds(self, name: str, now: float) -> float:
        """Return how long it was in stages of a name."""
        return self.script.spent(name, now) - self.script.spent(name, self.began(now))

    def count(self, name: str, now: float) -> int:
        """Count the stages of a name that have ended."""
        return self.script.count_ends(name, now) - self.script.count_ends(name, self.began(now))

    def steps_by_duration(self, now: float) -> list[int]:
        """Count its steps by `BUCKET_BOUNDS`, and those that took longer."""
        steps = self.steps(now)
        up_to = [min(steps, int(self._since(total, now))) for total in self._buckets]
        ends = [*up_to, steps]
        return [high - low for low, high in zip([0, *up_to], ends, strict=True)]

    # Of the whole run.

    def first_step(self, now: float) -> int:
        """Return the step of the whole run at which the present attempt began."""
        if self.outcome is None or self.outcome.reason == "finished":
            return self._before
        return self._before + self.attempt(now) * self._kept_steps()

    def learned(self, now: float) -> float:
        """Return how much of all steps is done, 0 to 1."""
        steps = self.first_step(now) + self._since(self._steps, now)
        return min(1.0, steps / self.job.total_steps)

    def lost_steps(self) -> int:
        """Return how many steps each death costs."""
        return max(0, self._steps_in_round(DEAD) - self._kept_steps())

    def _since(self, total: Total, now: float) -> float:
        return total.at(now) - total.at(self.began(now))

    def _kept_steps(self) -> int:
        """Return the steps of a round that its last checkpoint has."""
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
