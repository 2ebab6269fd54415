"""Divides the durations in rules and routes, so that a drill takes minutes instead of hours."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

Document = dict[str, Any]  # A parsed YAML mapping.

_UNITS_MILLISECONDS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
# Digits and a unit in a metric name, such as `run:samples:rate10m`, are not a duration.
_DURATION = re.compile(r"(?<![\w.])(?:\d+(?:ms|[smhdwy]))+(?!\w)")
_PART = re.compile(r"(?<!\d)(\d+)(ms|[smhdwy])")
_WINDOW = "window_seconds"
_CONSTANT = re.compile(r"vector\((\d+(?:\.\d+)?)\)")
_DURATION_KEYS = frozenset({"group_wait", "group_interval", "repeat_interval", "resolve_timeout"})


def read_duration(text: str) -> float:
    """Return a duration in Prometheus' syntax, such as `1h30m` or `250ms`, in seconds."""
    parts = _PART.findall(text)
    return sum(int(count) * _UNITS_MILLISECONDS[unit] for count, unit in parts) / 1000


def write_duration(seconds: float) -> str:
    """Return seconds in Prometheus' syntax for durations; the result is at least 1 ms or 0."""
    return f"{max(1, round(seconds * 1000))}ms" if seconds else "0s"


def divide_duration(text: str, speed: float) -> str:
    """Return a duration in Prometheus' syntax, divided by the speed."""
    return write_duration(read_duration(text) / speed)


def divide_rules(document: Document, speed: float) -> Document:
    """Divide a rule file's durations: ranges, offsets, `for`, `keep_firing_for` and event windows.

    Args:
        document: The parsed rule file.
        speed: The divisor of the durations.

    Returns:
        A copy of the rule file with the divided durations.
    """
    faster = copy.deepcopy(document)
    for group in faster["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _divide_expression(rule.get("record", ""), str(rule["expr"]), speed)
            for key in ("for", "keep_firing_for"):
                if key in rule:
                    rule[key] = divide_duration(str(rule[key]), speed)
    return faster


def _divide_expression(record: str, expression: str, speed: float) -> str:
    if record.endswith(_WINDOW):
        return _CONSTANT.sub(lambda found: f"vector({float(found[1]) / speed})", expression)
    return _DURATION.sub(lambda found: divide_duration(found[0], speed), expression)


def find_longest_duration(expression: str) -> float:
    """Return the longest range or offset in an expression, in seconds; 0 if there is none."""
    return max((read_duration(found) for found in _DURATION.findall(expression)), default=0.0)


def divide_routes(document: Document, speed: float, webhook_url: str) -> Document:
    """Divide the durations in Alertmanager's configuration, and replace all channels by a webhook.

    Args:
        document: The configuration of Alertmanager as parsed YAML.
        speed: The divisor of the durations.
        webhook_url: The base URL for notifications; each receiver's index is appended.

    Returns:
        A copy of the configuration with the same routes, groups and inhibitions, but without
        templates.
    """
    faster = cast("Document", _divide_values(document, speed))
    faster["receivers"] = [
        {
            "name": receiver["name"],
            "webhook_configs": [
                {"url": f"{webhook_url}/{number}", "send_resolved": True, "max_alerts": 0}
            ],
        }
        for number, receiver in enumerate(document["receivers"])
    ]
    return {key: value for key, value in faster.items() if key != "templates"}


def _divide_values(value: object, speed: float) -> object:
    if isinstance(value, Mapping):
        return {
            key: divide_duration(str(inner), speed)
            if key in _DURATION_KEYS
            else _divide_values(inner, speed)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_divide_values(inner, speed) for inner in value]
    return value
