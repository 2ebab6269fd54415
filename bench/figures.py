"""Measured numbers: medians, ratios of pairs, and the file that a benchmark leaves for the report."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"


class Spread(NamedTuple):
    """The middle of some numbers, and where a tenth lies below and above."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3g} ({self.low:.3g}-{self.high:.3g})"


def percentile(numbers: Sequence[float], share: float) -> float:
    """Return the number with this share (0 to 1) of the others below it, by nearest rank."""
    ordered = sorted(numbers)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(numbers: Sequence[float]) -> Spread:
    """Return median, 10th and 90th percentile."""
    return Spread(percentile(numbers, 0.1), statistics.median(numbers), percentile(numbers, 0.9))


def pair_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of the ratios of pairs that were measured next to each other."""
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def median_interval(numbers: Sequence[float]) -> Spread:
    """Return the median and its 95 % confidence interval, whatever the numbers' distribution.

    By the normal approximation of how many of them lie below their true median.
    """
    ordered = sorted(numbers)
    middle, half = len(ordered) / 2, 0.98 * math.sqrt(len(ordered))
    low, high = max(0, math.floor(middle - half)), min(len(ordered) - 1, math.ceil(middle + half))
    return Spread(ordered[low], statistics.median(ordered), ordered[high])


class Figures:
    """What one benchmark measured.

    Args:
        name: The benchmark.
        quick: It ran with few repetitions.
    """

    def __init__(self, name: str, *, quick: bool) -> None:
        self.name = name
        self._document: dict[str, object] = {
            "taken_at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "quick": quick,
        }
        self._goals: dict[str, dict[str, object]] = {}
        self._details: dict[str, object] = {}

    def reach(
        self, goal: str, value: float | Spread, *, ours: str = "", peer: str = "", note: str = ""
    ) -> None:
        """Enter what was reached of a goal; see `goals`.

        Args:
            goal: Its number.
            value: What is compared with the goal.
            ours: Our absolute figure.
            peer: The peer's.
            note: What a reader must know.
        """
        middle = value.middle if isinstance(value, Spread) else value
        self._goals[goal] = {
            "value": middle,
            "shown": str(value) if isinstance(value, Spread) else f"{value:.3g}",
            "ours": ours,
            "peer": peer,
            "note": note,
        }
        print(f"  {goal:4} {self._goals[goal]['shown']:24} ours {ours}; peer {peer}; {note}")

    def tell(self, key: str, value: object) -> None:
        """Enter something else worth knowing."""
        self._details[key] = value
        print(f"       {key}: {value}")

    def write(self) -> None:
        """Leave the file for the report."""
        RESULTS.mkdir(exist_ok=True)
        document = {**self._document, "goals": self._goals, "details": self._details}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n")


def is_quick(name: str) -> bool:
    """Read the one option that benchmarks have, and say which of them begins."""
    unknown = [word for word in sys.argv[1:] if word != "--quick"]
    if unknown:
        sys.exit(f"{name}: unknown option {unknown[0]}; there is --quick")
    print(f"{name}:", flush=True)
    return "--quick" in sys.argv[1:]
