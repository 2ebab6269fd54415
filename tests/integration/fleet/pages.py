"""The metric pages of the demo's simulated machines."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.exporter import build_collectors
from fleet.machine import Machine
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.families import Block

BEGIN = 1_700_049_600.0
"""The Unix time at which the stories of tests begin."""

Series = tuple[str, tuple[tuple[str, str], ...]]


class Pages:
    """The metric pages that the exporter serves for a simulated machine.

    Args:
        machine: The machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._now = BEGIN
        self._collectors = build_collectors(machine, lambda: self._now)
        self._exposition = Exposition(openmetrics=True)

    def write(self, now: float) -> str:
        """Return the text of the metric page at a moment."""
        return self._exposition.write(self._express(now)).decode()

    def read(self, now: float) -> dict[Series, float]:
        """Return the value of each series at a moment, by name and labels."""
        return {series: value for series, value, _ in self.read_typed(now)}

    def read_typed(self, now: float) -> Iterator[tuple[Series, float, str]]:
        """Yield each series at a moment, with its value and type."""
        for block in self._express(now):
            values = iter(block.values)
            for family in block.describe():
                for suffix, labels in family.samples:
                    name = f"{family.name}{suffix}"
                    yield (name, tuple(sorted(labels))), next(values), family.type

    def _express(self, now: float) -> list[Block]:
        self._now = now
        return [each for one in self._collectors for each in one.express(one.read(0.0))]


def pick(page: dict[Series, float], name: str, /, **labels: str) -> list[float]:
    """Return the values of all series with this name and these labels."""
    return [
        value
        for (found, pairs), value in page.items()
        if found == name and labels.items() <= dict(pairs).items()
    ]
