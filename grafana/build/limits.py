"""The numbers that alerts compare with, read from `thresholds.yml`.

`prometheus/rules/thresholds.yml` has a rule for each: `record: threshold:<alert>:<name>` and
`expr: vector(<number>)`. A panel draws its lines where alerts begin, so it asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainvitals.verdicts.thresholds import read_thresholds

THRESHOLDS = Path(__file__).resolve().parents[2] / "prometheus/rules/thresholds.yml"


@cache
def read_limits(path: Path = THRESHOLDS) -> Mapping[str, float]:
    """Return every threshold by its name without `threshold:`, as `high_memory_usage:ratio`."""
    return read_thresholds(path)


def limit(name: str) -> float:
    """Return the number that an alert compares with.

    Raises:
        KeyError: There is no such threshold.
    """
    return read_limits()[name]
