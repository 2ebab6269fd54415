"""The whole machine as a collector for programs that already have a prometheus_client server.

    from prometheus_client import REGISTRY
    from trainvitals.prometheus import MachineCollector

    REGISTRY.register(MachineCollector())

`prometheus_client` brings metrics of its own process under the names `process_*`; so this leaves
the collector `process` out unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trainvitals.families import Block
from trainvitals.machine import Machine, MachineOptions

_DEADLINE_SECONDS = 5.0


class MachineCollector(Collector):
    """Every metric of the exporter, in any registry of prometheus_client.

    Args:
        machine: What to read; by default this machine without the collector `process`.
        deadline_seconds: How long one collection may take; what is not there by then is missing.
    """

    def __init__(
        self, machine: Machine | None = None, *, deadline_seconds: float = _DEADLINE_SECONDS
    ) -> None:
        self._machine = machine or Machine(MachineOptions(disabled=("process",)))
        self._deadline_seconds = deadline_seconds

    def collect(self) -> Iterator[Metric]:
        """Read the machine."""
        for block in self._machine.runner.snapshot(seconds=self._deadline_seconds).blocks:
            yield from convert_block(block)

    def describe(self) -> list[Metric]:
        """Describe nothing, so that registering reads nothing."""
        return []

    def close(self) -> None:
        """Stop reading and let go of the drivers."""
        self._machine.close()


def convert_block(block: Block) -> Iterator[Metric]:
    """Give a block's families as those of prometheus_client."""
    values = iter(block.values)
    for family in block.describe():
        stem = {"counter": "_total", "info": "_info"}.get(family.type, "")
        metric = Metric(family.name.removesuffix(stem), family.help, family.type)
        for suffix, labels in family.samples:
            metric.add_sample(family.name + suffix, dict(labels), next(values))
        yield metric
