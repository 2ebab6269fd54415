"""Fields: what holds for the values of a panel, as Grafana's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from grafana.build.palette import CALM, OK, UNKNOWN, State

Json = dict[str, Any]
Steps = Sequence[tuple[float | None, str]]

# Without this Grafana colours a missing value like the lowest step.
NOTHING_IS_GREY: Final[Json] = {
    "options": {"match": "null", "result": {"color": UNKNOWN, "index": 99}},
    "type": "special",
}
# The text of `noValue` is for a panel without data. Grafana writes it into every cell, state and
# legend that lacks a value, too, unless these have a shorter one of their own.
SAY_NOTHING: Final[Json] = {
    "matcher": {"id": "byRegexp", "options": "/.*/"},
    "properties": [{"id": "noValue", "value": ""}],
}


def write_defaults(
    unit: str,
    steps: Steps,
    states: Sequence[State],
    empty: str,
    *,
    decimals: int | None = None,
) -> Json:
    """Return what holds for all values; `empty` is shown where the panel has none."""
    defaults: Json = {
        "mappings": write_mappings(states),
        "noValue": empty,
        "thresholds": write_steps(steps),
        "unit": unit,
    }
    return defaults if decimals is None else {**defaults, "decimals": decimals}


def write_steps(steps: Steps) -> Json:
    """Return thresholds."""
    written = [{"color": colour, "value": value} for value, colour in steps]
    return {"mode": "absolute", "steps": written}


def write_mappings(states: Sequence[State]) -> list[Json]:
    """Return the texts and colours of numbers."""
    if not states:
        return []
    options = {
        str(state.number): {"color": state.colour, "index": at, "text": state.text}
        for at, state in enumerate(states)
    }
    return [{"options": options, "type": "value"}]


def calm_steps(steps: Steps, calm: str = CALM) -> Steps:
    """Return steps whose OK is a colour that nobody looks at: there is one where something is wrong."""
    return tuple((value, calm if colour == OK else colour) for value, colour in steps)


def calm_states(states: Sequence[State], calm: str = CALM) -> tuple[State, ...]:
    """Return states whose OK is a colour that nobody looks at."""
    return tuple(replace(one, colour=calm) if one.colour == OK else one for one in states)
