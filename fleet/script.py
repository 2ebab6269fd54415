"""What happens, in stages that follow each other, with the first again after the last."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a script.

    Attributes:
        name: What happens in it.
        seconds: How long it takes.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a script is at a moment.

    Attributes:
        name: Of the stage.
        start: When the stage began, Unix seconds.
        round: How often the script has gone round before.
        round_start: When this round began, Unix seconds.
    """

    name: str
    start: float
    round: int
    round_start: float


class Script:
    """Stages in a circle.

    Args:
        stages: In their order.
        start: When the first round began, Unix seconds; nothing is asked about what was before.
    """

    def __init__(self, stages: Sequence[Stage], start: float) -> None:
        self.stages = tuple(stages)
        self.start = start
        self._ends = tuple(accumulate(stage.seconds for stage in stages))
        self.seconds = self._ends[-1]

    def at(self, now: float) -> Scene:
        """Return the scene of a moment."""
        number, elapsed = divmod(max(0.0, now - self.start), self.seconds)
        place = min(bisect_right(self._ends, elapsed), len(self.stages) - 1)
        round_start = self.start + number * self.seconds
        begun = self._ends[place] - self.stages[place].seconds
        return Scene(self.stages[place].name, round_start + begun, int(number), round_start)

    def spent(self, name: str, now: float) -> float:
        """Return how many seconds it has been in stages of a name."""
        number, elapsed = divmod(max(0.0, now - self.start), self.seconds)
        return number * self._within(name, self.seconds) + self._within(name, elapsed)

    def last_end(self, name: str, now: float) -> float | None:
        """Return when a stage of a name last ended; None where none has."""
        scene = self.at(now)
        for round_start in (scene.round_start, scene.round_start - self.seconds):
            for stage, end in zip(reversed(self.stages), reversed(self._ends), strict=True):
                if stage.name == name and self.start < round_start + end <= now:
                    return round_start + end
        return None

    def begin_last(self, name: str) -> float:
        """Return how many seconds into a round its last stage of a name begins."""
        (*_, begun) = (
            end - stage.seconds
            for stage, end in zip(self.stages, self._ends, strict=True)
            if stage.name == name
        )
        return begun

    def count_ends(self, name: str, now: float) -> int:
        """Return how many stages of a name have ended."""
        number, elapsed = divmod(max(0.0, now - self.start), self.seconds)
        named = [
            end for stage, end in zip(self.stages, self._ends, strict=True) if stage.name == name
        ]
        return int(number) * len(named) + sum(end <= elapsed for end in named)

    def longest(self, name: str) -> float:
        """Return the seconds of the longest stage of a name."""
        return max(stage.seconds for stage in self.stages if stage.name == name)

    def _within(self, name: str, elapsed: float) -> float:
        begun = (end - stage.seconds for stage, end in zip(self.stages, self._ends, strict=True))
        return sum(
            min(stage.seconds, max(0.0, elapsed - since))
            for stage, since in zip(self.stages, begun, strict=True)
            if stage.name == name
        )
