"""Metric tables, with a line for each metric family and a row of values for each subject.

A subject is a device, a disk, an interface, a container or a rank. A table is a tuple of `Metric`.
A collector writes the fields of each subject to a row, and `table_block` converts the rows to
metric families. An absent value has no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from trainvitals.metrics.families import Block, Family, Labels, MetricType

Row = Sequence[float | None]
Samples = tuple[tuple[str, Labels], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric family that has the same samples for each subject.

    Attributes:
        name: The name of the metric family.
        type: The Prometheus type of the metric family.
        help: The HELP text of the metric family.
        fields: The names of the subject's fields that contain the values. The value of a field may
            be a tuple of several values.
        samples: The suffix of each sample, and the labels that the sample has in addition to the
            subject's labels.
    """

    name: str
    type: MetricType
    help: str
    fields: tuple[str, ...]
    samples: Samples = (("", ()),)


def gauge(name: str, field: str, help_: str) -> Metric:
    """Return a gauge that has one sample for each subject."""
    return Metric(name, "gauge", help_, (field,))


def counter(name: str, field: str, help_: str) -> Metric:
    """Return a counter that has one sample for each subject."""
    return Metric(name, "counter", help_, (field,))


def by(label: str, values: Iterable[str]) -> Samples:
    """Return the samples of a metric: one sample for each value of a label."""
    return tuple(("", ((label, value),)) for value in values)


def list_fields(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return the fields of a metric table, in the order of the values in a row."""
    return tuple(field for metric in metrics for field in metric.fields)


def table_block(
    shape: tuple[str, ...],
    metrics: Sequence[Metric],
    subjects: tuple[Labels, ...],
    rows: Sequence[Row],
    *,
    absent: float | None = None,
) -> Block:
    """Return a block with the metric families of a table.

    Args:
        shape: The names of the collector and the table, which distinguish the block from all other
            blocks.
        metrics: The metrics in the table.
        subjects: The labels of each subject.
        rows: The row of each subject, with a value for each sample of each metric.
        absent: The value that marks an absent sample.
    """
    masks = tuple([bytes([value != absent for value in row]) for row in rows])
    columns = list(zip(*rows, strict=True))
    values: list[float] = []
    for metric, span in _lay_out(metrics):
        series = [row[span] for row in rows] if metric.type == "histogram" else columns[span]
        values += [
            value for each in series for value in each if value != absent and value is not None
        ]
    describe = partial(_describe, metrics, subjects, masks)
    return Block((*shape, subjects, masks), describe, values)


def _lay_out(metrics: Sequence[Metric]) -> list[tuple[Metric, slice]]:
    """Return each metric with the slice of a row that contains the metric's values.

    The metrics are in the order of the table, except that histograms follow all other metrics.
    """
    laid: list[tuple[Metric, slice]] = []
    at = 0
    for metric in metrics:
        laid.append((metric, slice(at, at + len(metric.samples))))
        at += len(metric.samples)
    return sorted(laid, key=lambda entry: entry[0].type == "histogram")


def _describe(
    metrics: Sequence[Metric], subjects: Sequence[Labels], masks: Sequence[bytes]
) -> tuple[Family, ...]:
    rows = list(zip(subjects, masks, strict=True))
    families = []
    for metric, span in _lay_out(metrics):
        columns = list(enumerate(metric.samples, span.start))
        # OpenMetrics requires the samples of a histogram to be adjacent.
        if metric.type == "histogram":
            cells = [(row, column) for row in rows for column in columns]
        else:
            cells = [(row, column) for column in columns for row in rows]
        samples = tuple(
            (suffix, (*subject, *labels))
            for (subject, mask), (at, (suffix, labels)) in cells
            if mask[at]
        )
        if samples:
            families.append(Family(metric.name, metric.type, metric.help, samples))
    return tuple(families)


def scalar_block(collector: str, families: tuple[Family, ...], values: Row) -> Block:
    """Return a block of metric families without labels; families with the value None are left out.

    Args:
        collector: The name of the collector; a collector can have only one such block.
        families: The metric families of the block.
        values: The value of each metric family.
    """
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return Block((collector, "scalars"), lambda: families, known)
    present = tuple([value is not None for value in values])
    return Block((collector, present), partial(_select, families, present), known)


def _select(families: tuple[Family, ...], present: tuple[bool, ...]) -> tuple[Family, ...]:
    return tuple(family for family, known in zip(families, present, strict=True) if known)
