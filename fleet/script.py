"""Scripts: repeating sequences of stages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a script.

    Attributes:
        name: The name of the activity in the stage.
        seconds: The duration of the stage in seconds.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Scene:
    """The position of a script at a time.

    Attributes:
        name: The name of the current stage.
        start: The time at which the stage began, in Unix seconds.
        round: The number of completed rounds.
        round_start: The time at which the current round began, in Unix seconds.
    """

    name: str
    start: float
    round: int
    round_start: float


class Script:
    """A sequence of stages that repeats in rounds.

    Args:
        stages: The stages in order.
        start: The time at which the first round begins, in Unix seconds; earlier times are not
            meaningful.
    """

    def __init__(self, stages: Sequence[Stage], start: float) -> None:
        self.stages = tuple(stages)
        self.start = start
        self._ends = tuple(accumulate(stage.seconds for stage in stages))
        self.seconds = self._ends[-1]

    def at(self, now: float) -> Scene:
        """Return the scene at a time."""
        number, elapsed = divmod(max(0.0, now - self.start), self.seconds)
        place = min(bisect_right(self._ends, elapsed), len(self.stages) - 1)
        round_start = self.start + number * self.seconds
        begun = self._ends[place] - self.stages[place].seconds
        return Scene(self.stages[place].name, round_start + begun, int(number), round_start)

    def spent(self, name: str, now: float) -> float:
        """Return the total time spent in stages with a name, in seconds."""
        number, elapsed = divmod(max(0.0, now - self.start), self.seconds)
        return number * self._within(name, self.seconds) + self._within(name, elapsed)

    def last_end(self, name: str, now: float) -> float | None:
        """Return the time at which a stage with a name last ended; None if none has ended."""
        scene = self.at(now)
        for round_start in (scene.round_start, scene.round_start - self.seconds):
            for stage, end in zip(reversed(self.stages), reversed(self._ends), strict=True):
                if stage.name == name and self.start < round_start + end <= now:
                    return round_start + end
        return None

    def begin_last(self, name: str) -> float:
        """Return the offset in a round at which the last stage with a name begins, in seconds."""
        (*_, begun) = (
            end - stage.seconds
            for stage, end in zip(self.stages, self._ends, strict=True)
            if stage.name == name
        )
        return begun

    def count_ends(self, name: str, now: float) -> int:
        """Return the number of ended stages with a name."""
        number, elapsed = divmod(max(0.0, now - self.start), self.seconds)
        named = [
            end for stage, end in zip(self.stages, self._ends, strict=True) if stage.name == name
        ]
        return int(number) * len(named) + sum(end <= elapsed for end in named)

    def longest(self, name: str) -> float:
        """Return the duration of the longest stage with a name, in seconds."""
        return max(stage.seconds for stage in self.stages if stage.name == name)

    def _within(self, name: str, elapsed: float) -> float:
        begun = (end - stage.seconds for stage, end in zip(self.stages, self._ends, strict=True))
        return sum(
            min(stage.seconds, max(0.0, elapsed - since))
            for stage, since in zip(self.stages, begun, strict=True)
            if stage.name == name
        )
