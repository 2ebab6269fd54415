"""The variables of a dashboard: their options and the chosen values."""

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
    """Return a choice for each variable of a dashboard, from left to right.

    Args:
        asked: The Prometheus to query.
        board: The dashboard.
        way: Whether to choose one value, several or all, if a variable can have several; for
            other variables the first value is chosen, as by Grafana.
        wanted: The values to choose for some variables.
        look: The time range.

    Raises:
        AssertionError: A wanted value is not among the options of a variable that has options.
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
    """Return the options of a variable, sorted if the variable is.

    Raises:
        AssertionError: Prometheus rejects the query, or its two APIs return different values.
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
    """Return the values of a label, after a comparison of the two APIs that Grafana uses for them.

    Grafana uses the API for label values from Prometheus 2.24 on, and the API for series before.
    """
    times = {"start": f"{look.end - look.seconds:.0f}", "end": f"{look.end:.0f}"}
    direct = asked.ask(f"label/{label}/values", "GET", match=[selector], **times)
    series = asked.ask("series", "GET", match=[selector], **times)
    assert direct["status"] == series["status"] == "success", f"{place}: {direct} {series}"
    values = [str(value) for value in direct["data"]]
    others = {str(each[label]) for each in series["data"] if label in each}
    assert set(values) == others, f"{place}: {values} and {others}"
    return values


def _write_result(result: Json) -> str:
    """Return the text of a result of `query_result`, to which the variable's pattern is applied."""
    labels = dict(result["metric"])
    name = labels.pop("__name__", "")
    written = ",".join(f'{key}="{value}"' for key, value in labels.items())
    time, value = result["value"]
    return f"{name}{{{written}}} {value} {time * 1000:g}"


def _cut(options: Sequence[str], pattern: str) -> Iterator[str]:
    """Yield the parts of the options that match the variable's regular expression."""
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
