"""Metric families as the collectors hand them over.

A family's fixed part (name, type, HELP, labels of each sample) changes only when a device, an
interface or a mount comes or goes; its values change on every scrape. So the two travel apart:
a `Block` carries fresh values and a hashable `shape`, and can describe the families of that
shape when the writer meets it for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

MetricType = Literal["counter", "gauge", "histogram", "info", "unknown"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The fixed part of one metric family.

    Attributes:
        name: The name in full as it stands on the page, with `_total` or `_info`.
        type: The Prometheus type.
        help: One sentence that ends with the source.
        samples: For each sample, in the order of the block's values, its suffix (empty but for
            the `_bucket`, `_sum` and `_count` of a histogram) and its labels.
    """

    name: str
    type: MetricType
    help: str
    samples: tuple[tuple[str, Labels], ...] = (("", ()),)


@dataclass(frozen=True, slots=True)
class Block:
    """Some families of one collector with their values.

    Attributes:
        shape: Equal for two blocks of a collector exactly when `describe` gives equal families.
        describe: Gives the families; called when somebody meets the shape for the first time.
        values: One number per sample, flat, in the order of the families and their samples.
    """

    shape: Hashable
    describe: Callable[[], tuple[Family, ...]]
    values: Sequence[float]


def label_samples(label: str, values: Sequence[str]) -> tuple[tuple[str, Labels], ...]:
    """Give the samples of a family that has one label, one sample for each of its values."""
    return tuple(("", ((label, value),)) for value in values)
