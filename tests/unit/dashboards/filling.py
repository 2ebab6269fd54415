"""Substitution of Grafana's variables in queries, as Grafana does it.

A variable with several choices is replaced with one value, `(a|b)`, or its `allValue`. The matcher
must accept all three, but `=` accepts only a single value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.unit.dashboards.boards import Board, is_multiple

VARIABLE = re.compile(
    r"\$(?P<plain>\w+)|\$\{(?P<name>\w+)(?:\.(?P<field>[^:}]+))?(?::(?P<format>[^}]+))?\}"
    r"|\[\[(?P<old>\w+)(?::\w+)?\]\]"
)

# Grafana's built-in variables, which no dashboard defines.
BUILT_IN = frozenset(
    {
        "__rate_interval",
        "__interval",
        "__interval_ms",
        "__range",
        "__range_s",
        "__range_ms",
        "__from",
        "__to",
        "__url_time_range",
        "__data",
        "__field",
        "__value",
        "__series",
    }
)

# Two values for each variable; other variables get values derived from their names. The values
# contain no special characters of regular expressions, which Grafana would escape.
_KNOWN: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "job": ("trainvitals", "prometheus"),
        "instance": ("gpu-box:9200", "gaudi-box:9200"),
        "kind": ("gpu", "hpu"),
        "device": ("0", "1"),
        "rank": ("0", "1"),
    }
)


@dataclass(frozen=True, slots=True)
class Times:
    """The values of Grafana's time variables for one time range and screen width.

    Attributes:
        rate_interval: The `$__rate_interval`: max(step + scrape interval, 4 scrape intervals).
        interval: The `$__interval`, which is the step.
        range_seconds: The `$__range` in seconds, which is the range of the time picker.
    """

    rate_interval: str
    interval: str
    range_seconds: int

    def by_variable(self) -> dict[str, str]:
        """Return the values by the name of the variable."""
        return {
            "__rate_interval": self.rate_interval,
            "__interval": self.interval,
            "__interval_ms": "5000",
            "__range": f"{self.range_seconds}s",
            "__range_s": str(self.range_seconds),
            "__range_ms": f"{self.range_seconds}000",
            "__from": "1700000000000",
            "__to": "1700003600000",
        }


# An hour on a wide screen and a week on a narrow screen, for a scrape interval of 5 s.
HOUR = Times("20s", "5s", 3600)
WEEK = Times("20m5s", "20m", 7 * 24 * 3600)


def list_values(board: Board) -> dict[str, tuple[str, str, str]]:
    """Return three replacements for each variable of a dashboard: one value, several, all."""
    values = {}
    for variable in board.variables:
        name = str(variable.get("name"))
        one, other = _KNOWN.get(name, (f"{name}-1", f"{name}-2"))
        if variable.get("type") == "textbox":  # a text box is empty unless it has a default
            one, other = str(variable.get("query") or ""), "1"
        if is_multiple(variable):
            several = f"({one}|{other})"
            values[name] = (one, several, str(variable.get("allValue") or several))
        else:
            values[name] = (one, other, other)
    return values


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace variables with values; variables without a value are kept."""
    return VARIABLE.sub(lambda found: values.get(_name(found), found[0]), text)


def fill_thrice(text: str, board: Board) -> tuple[str, str, str]:
    """Return a query with one value for each variable, with several values, and with all."""
    values = list_values(board)
    ways = [{name: three[at] for name, three in values.items()} for at in range(3)]
    one, several, every = ways
    return (
        fill(text, one | HOUR.by_variable()),
        fill(text, several | WEEK.by_variable()),
        fill(text, every | HOUR.by_variable()),
    )


def find_variables(text: str) -> set[str]:
    """Return the names of the variables in a text; `$1` is a regular expression's group."""
    return {name for found in VARIABLE.finditer(text) if not (name := _name(found)).isdigit()}


def _name(found: re.Match[str]) -> str:
    return found["plain"] or found["name"] or found["old"]
