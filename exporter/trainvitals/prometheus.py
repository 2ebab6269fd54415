"""A collector of the exporter's metrics for programs that run a prometheus_client server.

    from prometheus_client import REGISTRY
    from trainvitals.prometheus import MachineCollector

    REGISTRY.register(MachineCollector())

`prometheus_client` itself exports metrics of this process under the names `process_*`. Therefore
the collector `process` is disabled unless the caller passes a machine that includes this collector.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trainvitals.metrics.families import Block
from trainvitals.metrics.machine import Machine, MachineOptions

_DEADLINE_SECONDS = 5.0


class MachineCollector(Collector):
    """A collector of all exporter metrics for any prometheus_client registry.

    Args:
        machine: The machine to read; by default, this machine without the collector `process`.
        deadline_seconds: The timeout of one collection, in seconds. The metrics of collectors that
            do not finish within this time are omitted.
    """

    def __init__(
        self, machine: Machine | None = None, *, deadline_seconds: float = _DEADLINE_SECONDS
    ) -> None:
        self._machine = machine or Machine(MachineOptions(disabled=("process",)))
        self._deadline_seconds = deadline_seconds

    def collect(self) -> Iterator[Metric]:
        """Read the machine and return its metrics."""
        for block in self._machine.runner.snapshot(seconds=self._deadline_seconds).blocks:
            yield from convert_block(block)

    def describe(self) -> list[Metric]:
        """Return no metrics, so that registering the collector does not read the machine."""
        return []

    def close(self) -> None:
        """Stop reading the machine and release the accelerator drivers."""
        self._machine.close()


def convert_block(block: Block) -> Iterator[Metric]:
    """Return the metric families of a block as prometheus_client metrics."""
    values = iter(block.values)
    for family in block.describe():
        stem = {"counter": "_total", "info": "_info"}.get(family.type, "")
        metric = Metric(family.name.removesuffix(stem), family.help, family.type)
        for suffix, labels in family.samples:
            metric.add_sample(family.name + suffix, dict(labels), next(values))
        yield metric
