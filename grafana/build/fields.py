"""Field settings of a panel as Grafana's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from grafana.build.palette import CALM, OK, UNKNOWN, State

Json = dict[str, Any]
Steps = Sequence[tuple[float | None, str]]

# Otherwise Grafana would colour a missing value like the lowest step.
NOTHING_IS_GREY: Final[Json] = {
    "options": {"match": "null", "result": {"color": UNKNOWN, "index": 99}},
    "type": "special",
}
# The text of `noValue` is for a panel without data. Grafana also shows it in every cell, state and
# legend without a value, unless an override sets another text.
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
    """Return the default field settings; the text `empty` is shown if the panel has no values."""
    defaults: Json = {
        "mappings": write_mappings(states),
        "noValue": empty,
        "thresholds": write_steps(steps),
        "unit": unit,
    }
    return defaults if decimals is None else {**defaults, "decimals": decimals}


def write_steps(steps: Steps) -> Json:
    """Return steps as Grafana thresholds."""
    written = [{"color": colour, "value": value} for value, colour in steps]
    return {"mode": "absolute", "steps": written}


def write_mappings(states: Sequence[State]) -> list[Json]:
    """Return the value mappings for states: the text and colour of each number."""
    if not states:
        return []
    options = {
        str(state.number): {"color": state.colour, "index": at, "text": state.text}
        for at, state in enumerate(states)
    }
    return [{"options": options, "type": "value"}]


def calm_steps(steps: Steps, calm: str = CALM) -> Steps:
    """Return steps with a neutral colour in place of OK, so that only problems are coloured."""
    return tuple((value, calm if colour == OK else colour) for value, colour in steps)


def calm_states(states: Sequence[State], calm: str = CALM) -> tuple[State, ...]:
    """Return states with a neutral colour in place of OK."""
    return tuple(replace(one, colour=calm) if one.colour == OK else one for one in states)
