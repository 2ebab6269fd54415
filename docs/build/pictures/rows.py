"""Answers as the rows of a table, put together and named as the panel says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from docs.build.pictures.asking import Answer
from docs.build.pictures.fields import configure

Json = Mapping[str, Any]
Cell = float | str | None
Row = dict[str, Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: Its head.
        config: What holds for it.
    """

    title: str
    config: Json


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table with its rows in order.

    Attributes:
        columns: From left to right.
        rows: The cells by the columns' titles; one that is missing is empty.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]


def read_sheet(panel: Json, answers: Sequence[Answer]) -> Sheet:
    """Make the table of a panel.

    Raises:
        ValueError: A transformation is not known here.
    """
    frames = [frame for frame in _read_frames(answers) if frame]
    names: list[str] = list(dict.fromkeys(name for frame in frames for name in frame[0]))
    for step in panel.get("transformations") or ():
        if step["id"] not in _STEPS:
            raise ValueError(f"panel {panel['title']!r} transforms by {step['id']!r}")
        names, frames = _STEPS[step["id"]](names, frames, step["options"])
    rows = frames[0] if frames else []
    kinds = {
        name: "string" if any(isinstance(row.get(name), str) for row in rows) else "number"
        for name in names
    }
    columns = [Column(name, configure(panel, name, kind=kinds[name])) for name in names]
    return Sheet(columns, _sort(rows, panel["options"].get("sortBy") or ()))


def _read_frames(answers: Sequence[Answer]) -> list[list[Row]]:
    frames = []
    for answer in answers:
        value = f"Value #{answer.query.target['refId']}" if len(answers) > 1 else "Value"
        labels = list(dict.fromkeys(name for one in answer.series for name in one["metric"]))
        frames.append(
            [
                {
                    "Time": float(one["value"][0]),
                    **{name: one["metric"].get(name, "") for name in labels},
                    value: float(one["value"][1]),
                }
                for one in answer.series
            ]
        )
    return frames


def _merge(names: list[str], frames: list[list[Row]], _: Json) -> tuple[list[str], list[list[Row]]]:
    """Put rows together that have the same labels, as far as they do not contradict each other."""
    if len(frames) <= 1:
        return names, frames
    shared = [name for name in frames[0][0] if all(name in frame[0] for frame in frames)]
    by_key: dict[tuple[Cell, ...], list[Row]] = {}
    order: list[Row] = []
    for row in (row for frame in frames for row in frame):
        same = by_key.setdefault(tuple(row[name] for name in shared), [])
        fitting = [
            one for one in same if all(one.get(name, row[name]) == row[name] for name in row)
        ]
        for one in fitting:
            one.update(row)
        if not fitting:
            same.append(dict(row))
            order.append(same[-1])
    return names, [order]


def _organize(
    names: list[str], frames: list[list[Row]], options: Json
) -> tuple[list[str], list[list[Row]]]:
    """Leave columns out, put them in order, and rename them."""
    excluded = {name for name, is_out in (options.get("excludeByName") or {}).items() if is_out}
    places, titles = options.get("indexByName") or {}, options.get("renameByName") or {}
    kept = sorted(
        (name for name in names if name not in excluded),
        key=lambda name: places.get(name, len(places)),
    )
    renamed = {name: titles.get(name) or name for name in kept}
    frames = [
        [{renamed[name]: cell for name, cell in row.items() if name in renamed} for row in frame]
        for frame in frames
    ]
    return list(renamed.values()), frames


_Step = Callable[[list[str], list[list[Row]], Json], tuple[list[str], list[list[Row]]]]
_STEPS: Final[Mapping[str, _Step]] = {"merge": _merge, "organize": _organize}


def _sort(rows: Sequence[Row], orders: Sequence[Json]) -> list[Row]:
    found = list(rows)
    for order in reversed(orders):
        name = order["displayName"]
        found.sort(key=lambda row: _rank(row.get(name)), reverse=bool(order.get("desc")))
    return found


def _rank(cell: Cell) -> tuple[int, float, str]:
    if cell is None:
        return (0, 0.0, "")
    return (1, 0.0, cell) if isinstance(cell, str) else (1, cell, "")
