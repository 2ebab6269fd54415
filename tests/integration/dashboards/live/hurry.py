"""The division of durations by sixty, so that a recorded minute represents an hour.

Rules and dashboards look back for minutes, hours and days, but the recording lasts a minute.
Therefore every duration in minutes or more is divided by sixty: 15 minutes become 15 seconds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_DURATION = re.compile(r"(?<![\w.\"'])(\d+)([mhdw])(?!\w)")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
_LEAST_SECONDS = 4  # with less, a rate has a single sample
_HURRIED = ("expr", "for", "keep_firing_for")


def hurry(expr: str) -> str:
    """Return a query or a duration with its durations divided by sixty."""

    def write(found: re.Match[str]) -> str:
        return f"{max(_LEAST_SECONDS, int(found[1]) * _MINUTES[found[2]])}s"

    return _DURATION.sub(write, expr)


def write_hurried_rules(rules: list[Path], directory: Path) -> list[Path]:
    """Write copies of rule files with their durations divided by sixty, and return their paths."""
    directory.mkdir()
    written = []
    for path in rules:
        document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for rule in (rule for group in document["groups"] for rule in group["rules"]):
            rule |= {key: hurry(str(rule[key])) for key in _HURRIED if key in rule}
        written.append(directory / path.name)
        written[-1].write_text(yaml.safe_dump(document), encoding="utf-8")
    return written
