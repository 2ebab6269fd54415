"""A board's variables: what is chosen for each, and how it is written into a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from docs.build.pictures.prometheus import Request, write_request
from docs.build.pictures.times import Pace, Window

Json = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:\.[^:}]+)?(?::(?P<format>[^}]+))?\}|\$(?P<plain>\w+)")
_LABEL_VALUES = re.compile(r"label_values\((?:(?P<expr>.*),\s*)?(?P<label>\w+)\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((?P<expr>.*)\)", re.DOTALL)
_SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|]")
_WRITTEN: Final = frozenset({"textbox", "constant"})  # a value is typed in, none is asked for
_UNSORTED: Final = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen for a variable.

    Attributes:
        values: One, or all that are chosen.
        is_multiple: Whether several can be chosen, so that they are written as a regular expression.
        every: What stands for all of them, where all are chosen and the board says it.
    """

    values: tuple[str, ...]
    is_multiple: bool = False
    every: str = ""

    def write(self, form: str = "") -> str:
        """Write it into a query; `form` is what stands after the colon in `${run:regex}`."""
        if self.every:
            return self.every
        if form in {"raw", "text", "csv"}:
            return ",".join(self.values)
        if form == "regex" or self.is_multiple:
            parts = [_escape(value, is_quoted=form != "regex") for value in self.values]
            return parts[0] if len(parts) == 1 else f"({'|'.join(parts)})"
        return self.values[0].replace("\\", r"\\").replace("'", r"\\'") if self.values else ""

    def describe(self) -> str:
        """Write it as the picker shows it."""
        return "All" if self.every else " + ".join(self.values) or "None"


def write_variables(text: str, choices: Mapping[str, Choice], times: Mapping[str, str]) -> str:
    """Write choices and times in place of variables; those that nobody knows stay."""

    def write(found: re.Match[str]) -> str:
        name = found["name"] or found["plain"]
        if name in times:
            return times[name]
        return choices[name].write(found["format"] or "") if name in choices else found[0]

    return _VARIABLE.sub(write, text)


def choose(
    board: Json,
    window: Window,
    ask: Callable[[Request], Any],
    chosen: Mapping[str, Sequence[str]],
) -> dict[str, Choice]:
    """Choose a value for each variable of a board, from left to right, as the board does at first.

    Args:
        board: Its JSON.
        window: The time range.
        ask: Asks Prometheus.
        chosen: What is chosen by hand, by the variable's name.

    Raises:
        ValueError: A variable is chosen that the board does not have.
    """
    variables = [one for one in board["templating"]["list"] if one["type"] != "datasource"]
    if unknown := set(chosen) - {one["name"] for one in variables}:
        raise ValueError(f"{board['uid']} has no variable {min(unknown)}")
    choices: dict[str, Choice] = {}
    for variable in variables:
        name, is_multiple = variable["name"], bool(variable.get("multi"))
        if name in chosen:
            choices[name] = Choice(tuple(chosen[name]), is_multiple)
            continue
        if variable["type"] in _WRITTEN:
            choices[name] = Choice((str(variable.get("query") or ""),))
            continue
        listed = list_values(variable, ask(write_question(variable, window, choices)))
        if is_multiple and variable.get("includeAll"):
            every = str(variable.get("allValue") or "")
            choices[name] = Choice(tuple(listed), is_multiple=True, every=every)
        else:
            choices[name] = Choice(tuple(listed[:1]) or ("",), is_multiple)
    return choices


def write_question(variable: Json, window: Window, choices: Mapping[str, Choice]) -> Request:
    """Write what Prometheus is asked for the values of a variable.

    Raises:
        ValueError: Its query is of a kind that is not known here.
    """
    query = variable["query"]
    pace = Pace(window, window.scrape_seconds, 4 * window.scrape_seconds)
    text = query["query"] if isinstance(query, dict) else query
    text = write_variables(text, choices, pace.list_variables())
    if found := _LABEL_VALUES.fullmatch(text.strip()):
        span: list[tuple[str, object]] = [("start", int(window.start)), ("end", int(window.end))]
        match = [("match[]", found["expr"])] if found["expr"] else []
        return write_request(f"label/{found['label']}/values", [*match, *span])
    if found := _QUERY_RESULT.fullmatch(text.strip()):
        return write_request("query", [("query", found["expr"]), ("time", int(window.end))])
    raise ValueError(f"variable {variable['name']} asks in a way that is not known: {text}")


def list_values(variable: Json, answer: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Give the values that an answer holds, sorted as the variable asks."""
    texts = [_write_result(one) for one in answer["result"]] if "result" in answer else answer
    values = _cut(texts, variable.get("regex") or "")
    if variable.get("sort", _UNSORTED) == _UNSORTED:
        return values
    return sorted(values, key=_split_numbers, reverse=variable["sort"] % 2 == 0)


def _escape(value: str, *, is_quoted: bool) -> str:
    """Escape a value for a regular expression; a string of PromQL takes two backslashes for one."""
    backslash = r"\\" if is_quoted else "\\"
    doubled = value.replace("\\", 2 * backslash)
    return _SPECIAL.sub(lambda found: backslash + found[0], doubled)


def _write_result(result: Json) -> str:
    """Write a result of a query as Grafana does before a variable's `regex` cuts it."""
    labels = {name: value for name, value in result["metric"].items() if name != "__name__"}
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{result['metric'].get('__name__', '')}{{{inside}}} {result['value'][1]}"


def _cut(texts: Sequence[str], regex: str) -> list[str]:
    if not regex:
        return list(dict.fromkeys(texts))
    pattern = re.compile(regex.strip("/"))
    found = [match for text in texts if (match := pattern.search(text))]
    named = "value" in pattern.groupindex
    return list(dict.fromkeys(one["value" if named else min(1, pattern.groups)] for one in found))


def _split_numbers(text: str) -> list[tuple[int, float, str]]:
    parts = re.split(r"(\d+)", text)
    return [(0, float(part), "") if part.isdigit() else (1, 0.0, part) for part in parts if part]
