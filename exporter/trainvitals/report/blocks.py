"""The pieces that a report is made of before it becomes text, Markdown or HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Chart = Literal["uses", "busy", "energy", "heat", "metrics"]


@dataclass(frozen=True, slots=True)
class Point:
    """A line with a label.

    Attributes:
        label: What it is; empty for a line without.
        value: What is to be said.
        more: Lines that belong below it.
    """

    label: str
    value: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells.

    Attributes:
        head: What the columns are called.
        rows: As many cells each.
        numbers: The columns that hold numbers, from 0.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report.

    Attributes:
        title: What it is called.
        pieces: What it says.
        charts: What a picture of it can show.
    """

    title: str
    pieces: tuple[Point | Table, ...]
    charts: tuple[Chart, ...] = ()
