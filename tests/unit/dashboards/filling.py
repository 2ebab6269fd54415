"""Grafana's variables in queries, filled in as Grafana does it.

A variable of which several values can be chosen becomes one value, `(a|b)`, or its `allValue`; the
matcher around it must take all three, and `=` takes the first alone.
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

# What no board defines and Grafana knows.
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

# Two values each; any other variable takes its name. Grafana escapes what means something in a
# regular expression, so these have nothing of the kind.
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
    """What Grafana fills in for the time variables: one way of looking at a board.

    Attributes:
        rate_interval: Of `$__rate_interval`: max(step + scrape interval, 4 scrape intervals).
        interval: Of `$__interval`, the step.
        range_seconds: Of `$__range` and `$__range_s`, what the time picker shows.
    """

    rate_interval: str
    interval: str
    range_seconds: int

    def by_variable(self) -> dict[str, str]:
        """Return what is filled in, by variable."""
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


# An hour on a wide screen, and a week on a narrow one, at a scrape interval of 5 s.
HOUR = Times("20s", "5s", 3600)
WEEK = Times("20m5s", "20m", 7 * 24 * 3600)


def list_values(board: Board) -> dict[str, tuple[str, str, str]]:
    """Return what each variable of a board can become: one value, several, all."""
    values = {}
    for variable in board.variables:
        name = str(variable.get("name"))
        one, other = _KNOWN.get(name, (f"{name}-1", f"{name}-2"))
        if variable.get("type") == "textbox":  # whoever writes nothing in it leaves it empty
            one, other = str(variable.get("query") or ""), "1"
        if is_multiple(variable):
            several = f"({one}|{other})"
            values[name] = (one, several, str(variable.get("allValue") or several))
        else:
            values[name] = (one, other, other)
    return values


def fill(text: str, values: Mapping[str, str]) -> str:
    """Write values in place of variables; those that nobody knows stay."""
    return VARIABLE.sub(lambda found: values.get(_name(found), found[0]), text)


def fill_thrice(text: str, board: Board) -> tuple[str, str, str]:
    """Fill a query in with one value for each variable, with several, and with all."""
    values = list_values(board)
    ways = [{name: three[at] for name, three in values.items()} for at in range(3)]
    one, several, every = ways
    return (
        fill(text, one | HOUR.by_variable()),
        fill(text, several | WEEK.by_variable()),
        fill(text, every | HOUR.by_variable()),
    )


def find_variables(text: str) -> set[str]:
    """Name the variables in a text; `$1` is a group of a regular expression."""
    return {name for found in VARIABLE.finditer(text) if not (name := _name(found)).isdigit()}


def _name(found: re.Match[str]) -> str:
    return found["plain"] or found["name"] or found["old"]
