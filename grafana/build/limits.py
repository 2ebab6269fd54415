"""The numbers that alerts compare with, read from the file in which they stand.

`prometheus/rules/thresholds.yml` has a rule for each: `record: threshold:<alert>:<name>` and
`expr: vector(<number>)`. A panel draws its lines where alerts begin, so it asks here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import yaml

THRESHOLDS = Path(__file__).resolve().parents[2] / "prometheus/rules/thresholds.yml"

_PREFIX = "threshold:"
_CONSTANT = re.compile(r"vector\(([-+.\de]+)\)")


@cache
def read_limits(path: Path = THRESHOLDS) -> Mapping[str, float]:
    """Give every threshold by its name without `threshold:`, as `high_memory_usage:ratio`."""
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    found = {}
    for rule in (rule for group in groups for rule in group["rules"]):
        constant = _CONSTANT.fullmatch(rule["expr"])
        if constant is not None:
            found[rule["record"].removeprefix(_PREFIX)] = float(constant[1])
    return MappingProxyType(found)


def limit(name: str) -> float:
    """Give the number that an alert compares with.

    Raises:
        KeyError: There is no such threshold.
    """
    return read_limits()[name]
