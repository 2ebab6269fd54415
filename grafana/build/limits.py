"""The alert thresholds from `thresholds.yml`.

`prometheus/rules/thresholds.yml` contains a rule for each threshold: `record:
threshold:<alert>:<name>` and `expr: vector(<number>)`. Panels use these values to draw lines at the
thresholds of alerts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainvitals.verdicts.thresholds import read_thresholds

THRESHOLDS = Path(__file__).resolve().parents[2] / "prometheus/rules/thresholds.yml"


@cache
def read_limits(path: Path = THRESHOLDS) -> Mapping[str, float]:
    """Return every threshold by name without `threshold:`, such as `high_memory_usage:ratio`."""
    return read_thresholds(path)


def limit(name: str) -> float:
    """Return the threshold of an alert.

    Raises:
        KeyError: The threshold does not exist.
    """
    return read_limits()[name]
