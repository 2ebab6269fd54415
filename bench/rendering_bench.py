"""Rendering of the same samples by trainvitals and by prometheus_client in one process (goal 5)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bench.figures import Figures, is_quick, pair_ratio, percentile
from bench.subjects import GAP_SECONDS, fake_machine
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.families import Block
from trainvitals.metrics.machine import Machine
from trainvitals.prometheus import convert_block

SNAPSHOTS = 60
QUICK_SNAPSHOTS = 15


class Fixed(Collector):
    """A collector that returns families created in advance."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        return iter(self._families)


def collect(count: int) -> list[tuple[Block, ...]]:
    """Return several readings of the fake machine, without reuse."""
    with fake_machine() as fake:
        fake.attach()
        machine = Machine()
        try:
            pages = []
            for _ in range(count):
                time.sleep(GAP_SECONDS)
                pages.append(machine.runner.snapshot().blocks)
            return pages
        finally:
            machine.close()


def change_values(pages: Sequence[tuple[Block, ...]]) -> list[tuple[Block, ...]]:
    """Return the same pages with entirely new values, which is the worst case of the writer."""
    numbers = random.Random(5)
    return [
        tuple(
            Block(block.shape, block.describe, [numbers.uniform(0, 1e9) for _ in block.values])
            for block in blocks
        )
        for blocks in pages
    ]


def time_both(pages: Sequence[tuple[Block, ...]]) -> tuple[list[float], list[float]]:
    """Render each page in both ways and return the seconds.

    Raises:
        AssertionError: The two texts differ.
    """
    exposition = Exposition()
    exposition.write(pages[0])
    ours: list[float] = []
    theirs: list[float] = []
    for blocks in pages[1:]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Fixed([family for block in blocks for family in convert_block(block)]))
        started_at = time.perf_counter()
        expected = generate_latest(registry)
        theirs.append(time.perf_counter() - started_at)
        started_at = time.perf_counter()
        text = exposition.write(blocks)
        ours.append(time.perf_counter() - started_at)
        if text != expected:
            raise AssertionError("our page differs from prometheus_client's")
    return ours, theirs


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("rendering")
    figures = Figures("rendering", quick=quick)
    pages = collect(QUICK_SNAPSHOTS if quick else SNAPSHOTS)
    ours, theirs = time_both(pages)
    figures.reach(
        "5",
        pair_ratio(ours, theirs),
        ours=f"{percentile(ours, 0.5) * 1e3:.3f} ms",
        peer=f"{percentile(theirs, 0.5) * 1e3:.2f} ms",
        note=f"{sum(len(block.values) for block in pages[0])} samples, byte for byte the same",
    )
    ours, theirs = time_both(change_values(pages))
    figures.tell("rendering where every value is new", str(pair_ratio(ours, theirs)))
    figures.write()


if __name__ == "__main__":
    main()
