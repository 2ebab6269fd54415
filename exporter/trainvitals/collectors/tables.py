"""Families as tables: one column without labels, or one row for each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from trainvitals.families import Block, Family, MetricType, label_samples

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A family that has one sample for each device.

    Attributes:
        name: The family's name.
        type: Its Prometheus type.
        help: Its HELP.
        value: Takes the value out of what was read of a device.
    """

    name: str
    type: MetricType
    help: str
    value: Callable[[Row], float]


def list_values(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[float]:
    """Give the values of all columns, one column after the other."""
    return [column.value(row) for column in columns for row in rows]


def list_families(
    columns: Sequence[Column[Row]], label: str, keys: Sequence[str]
) -> tuple[Family, ...]:
    """Give the families of all columns; the keys are the values of the label, one for each row."""
    samples = label_samples(label, keys)
    return tuple(Family(column.name, column.type, column.help, samples) for column in columns)


def scalar_block(
    collector: str, families: tuple[Family, ...], values: Sequence[float | None]
) -> Block:
    """Give a block of families without labels, without those whose value is None.

    Args:
        collector: Whose block it is; it has no other of this kind.
        families: The families.
        values: The value of each.
    """
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return Block((collector, "scalars"), lambda: families, known)
    present = tuple([value is not None for value in values])
    return Block((collector, present), partial(_select, families, present), known)


def _select(families: tuple[Family, ...], present: tuple[bool, ...]) -> tuple[Family, ...]:
    return tuple(family for family, known in zip(families, present, strict=True) if known)
