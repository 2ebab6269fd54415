"""Statistics of measured numbers, and the result file that a benchmark writes for the report."""

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
    """The median of some numbers with their 10th and 90th percentile."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3g} ({self.low:.3g}-{self.high:.3g})"


def percentile(numbers: Sequence[float], share: float) -> float:
    """Return the percentile of the numbers for a share from 0 to 1, by the nearest-rank method."""
    ordered = sorted(numbers)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(numbers: Sequence[float]) -> Spread:
    """Return the median with the 10th and 90th percentile."""
    return Spread(percentile(numbers, 0.1), statistics.median(numbers), percentile(numbers, 0.9))


def pair_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of the ratios of values that were measured in pairs."""
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def median_interval(numbers: Sequence[float]) -> Spread:
    """Return the median and its 95 % confidence interval, for any distribution of the numbers.

    The count of numbers below the true median is approximated by a normal distribution.
    """
    ordered = sorted(numbers)
    middle, half = len(ordered) / 2, 0.98 * math.sqrt(len(ordered))
    low, high = max(0, math.floor(middle - half)), min(len(ordered) - 1, math.ceil(middle + half))
    return Spread(ordered[low], statistics.median(ordered), ordered[high])


class Figures:
    """The results of one benchmark.

    Args:
        name: The name of the benchmark.
        quick: Whether it runs with few repetitions.
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
        """Record and print the result for a goal; see `goals`.

        Args:
            goal: The goal's number.
            value: The figure that is compared with the goal.
            ours: The absolute figure of trainvitals.
            peer: The absolute figure of the peer.
            note: A remark for the reader of the report.
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
        """Record and print an additional detail."""
        self._details[key] = value
        print(f"       {key}: {value}")

    def write(self) -> None:
        """Write the results to the file that the report reads."""
        RESULTS.mkdir(exist_ok=True)
        document = {**self._document, "goals": self._goals, "details": self._details}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n")


def is_quick(name: str) -> bool:
    """Print the benchmark's name and return whether the option `--quick` was passed."""
    unknown = [word for word in sys.argv[1:] if word != "--quick"]
    if unknown:
        sys.exit(f"{name}: unknown option {unknown[0]}; there is --quick")
    print(f"{name}:", flush=True)
    return "--quick" in sys.argv[1:]
