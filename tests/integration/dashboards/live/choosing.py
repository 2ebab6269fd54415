"""The variables of a board: what they offer, and what is chosen of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tests.integration.dashboards.live.grafana import (
    Asked,
    Choice,
    Choices,
    Look,
    find_step,
    write_query,
)
from tests.integration.dashboards.live.server import Json
from tests.unit.dashboards.boards import Board, Place, is_multiple

Way = Literal["one", "several", "all"]


def choose(asked: Asked, board: Board, way: Way, wanted: Mapping[str, str], look: Look) -> Choices:
    """Choose a value for each variable of a board, from the left to the right.

    Args:
        asked: Prometheus.
        board: The board.
        way: One value, several, or all where a variable can have them; else the first, which is
            what Grafana chooses.
        wanted: What is chosen for some variables, if it is among their values.
        look: The time range.

    Raises:
        AssertionError: What is wanted is none of a variable's values, though it has some.
    """
    chosen: dict[str, Choice] = {}
    for variable in board.variables:
        name = str(variable["name"])
        if variable["type"] == "datasource":
            continue
        if variable["type"] != "query":
            chosen[name] = Choice((wanted.get(name, str(variable.get("query") or "")),))
            continue
        options = list_options(asked, board, name, replace(look, choices=chosen))
        one = wanted.get(name, options[0] if options else "")
        assert one in options or not options, f"{board.title}: {name} cannot be {one}: {options}"
        if not is_multiple(variable):
            chosen[name] = Choice((one,))
        elif not options or (way == "all" and name not in wanted):
            chosen[name] = Choice(
                tuple(options), is_multiple=True, all_value=str(variable.get("allValue") or "")
            )
        elif way == "several" and name not in wanted:
            chosen[name] = Choice(tuple(options[:2]), is_multiple=True)
        else:
            chosen[name] = Choice((one,), is_multiple=True)
    return chosen


def list_options(asked: Asked, board: Board, name: str, look: Look) -> list[str]:
    """Return the values that a variable offers, in its order.

    Raises:
        AssertionError: Prometheus refuses the query, or answers it otherwise in its two ways.
    """
    (question,) = (
        one for one in board.questions if one.kind == "variable" and one.json.get("name") == name
    )
    step = find_step(question, look.seconds, look)
    expr = write_query(question.expr, look, step, look.seconds)
    if question.label:
        options = _list_label_values(asked, question.place, expr, question.label, look)
    else:
        found = asked.ask("query", query=expr, time=f"{look.end:.3f}")
        assert found["status"] == "success", f"{question.place}: {found}"
        options = [_write_result(each) for each in found["data"]["result"]]
    options = list(dict.fromkeys(_cut(options, str(question.json.get("regex") or ""))))
    return sorted(options, key=_natural) if question.json.get("sort") else options


def _list_label_values(
    asked: Asked, place: Place, selector: str, label: str, look: Look
) -> list[str]:
    """Ask as Grafana asks a Prometheus from 2.24 on, and as it asks any other."""
    times = {"start": f"{look.end - look.seconds:.0f}", "end": f"{look.end:.0f}"}
    direct = asked.ask(f"label/{label}/values", "GET", match=[selector], **times)
    series = asked.ask("series", "GET", match=[selector], **times)
    assert direct["status"] == series["status"] == "success", f"{place}: {direct} {series}"
    values = [str(value) for value in direct["data"]]
    others = {str(each[label]) for each in series["data"] if label in each}
    assert set(values) == others, f"{place}: {values} and {others}"
    return values


def _write_result(result: Json) -> str:
    """Write a result of `query_result`, for the variable's regular expression."""
    labels = dict(result["metric"])
    name = labels.pop("__name__", "")
    written = ",".join(f'{key}="{value}"' for key, value in labels.items())
    time, value = result["value"]
    return f"{name}{{{written}}} {value} {time * 1000:g}"


def _cut(options: Sequence[str], pattern: str) -> Iterator[str]:
    """Keep what a variable's regular expression says."""
    if not pattern:
        yield from options
        return
    python = re.compile(pattern.strip("/").replace("(?<", "(?P<"))
    for option in options:
        if found := python.search(option):
            yield found.group(1) if python.groups else found[0]


def _natural(text: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", text.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
