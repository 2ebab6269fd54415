"""Scrapes on a host with two busy processes for each core (goal 12)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.figures import Figures, is_quick, pair_ratio, percentile
from bench.subjects import fake_machine, node_exporter, our_exporter, scrape_in_turn

ROUNDS = 150
QUICK_ROUNDS = 25


@contextmanager
def burners() -> Iterator[None]:
    """Run two processes for each core that compute without pause."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("busy")
    figures = Figures("busy", quick=quick)
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine())
        ours = stack.enter_context(our_exporter(machine))
        node = stack.enter_context(node_exporter())
        stack.enter_context(burners())
        clients = (ours.client(), node.client())
        mine, theirs = scrape_in_turn(clients, QUICK_ROUNDS if quick else ROUNDS)
    p99 = {name: f"{percentile(s, 0.99) * 1e3:.0f}" for name, s in (("a", mine), ("b", theirs))}
    figures.reach(
        "12",
        pair_ratio(mine, theirs),
        ours=f"{percentile(mine, 0.5) * 1e3:.1f} ms",
        peer=f"{percentile(theirs, 0.5) * 1e3:.1f} ms",
        note=f"p99 {p99['a']} and {p99['b']} ms",
    )
    ratio = percentile(mine, 0.5) / percentile(theirs, 0.5)
    figures.tell("ratio of the two p50", round(ratio, 3))
    figures.write()


if __name__ == "__main__":
    main()
