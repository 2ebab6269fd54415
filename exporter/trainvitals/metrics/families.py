"""Metric families in the form that collectors return.

The fixed part of a family (name, type, HELP, labels of each sample) changes only when a device, an
interface or a mount is added or removed. The values change on every scrape. A `Block` therefore
contains the values and a hashable `shape`; its function `describe`, which returns the fixed parts,
is called only when this shape is rendered for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

MetricType = Literal["counter", "gauge", "histogram", "info", "unknown"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The fixed part of a metric family.

    Attributes:
        name: The full name of the family, including `_total` or `_info`.
        type: The Prometheus type of the family.
        help: The HELP text of the family, which is one sentence followed by the source.
        samples: The suffix and the labels of each sample, in the order of the block's values; the
            suffix is empty except for `_bucket`, `_sum` and `_count` of a histogram.
    """

    name: str
    type: MetricType
    help: str
    samples: tuple[tuple[str, Labels], ...] = (("", ()),)


@dataclass(frozen=True, slots=True)
class Block:
    """Metric families from one collector, with their values.

    Attributes:
        shape: A key that is equal for two blocks of a collector if and only if their families are
            equal.
        describe: A function that returns the metric families; it is called once for each new shape.
        values: The value of each sample, as a flat sequence in the order of the families and of the
            families' samples.
    """

    shape: Hashable
    describe: Callable[[], tuple[Family, ...]]
    values: Sequence[float]


def label_samples(label: str, values: Sequence[str]) -> tuple[tuple[str, Labels], ...]:
    """Return the samples of a family with one label: a sample for each value of the label."""
    return tuple(("", ((label, value),)) for value in values)
