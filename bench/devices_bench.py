"""Scrapes of eight GPUs compared with one GPU, with driver calls of one millisecond (goal 14)."""

from __future__ import annotations

from contextlib import ExitStack

from bench.figures import Figures, is_quick, pair_ratio, percentile
from bench.subjects import fake_machine, our_exporter, scrape_in_turn

DELAY_MICROSECONDS = 1000
ROUNDS = 100
QUICK_ROUNDS = 20


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("devices")
    figures = Figures("devices", quick=quick)
    clients = []
    with ExitStack() as stack:
        for gpus in (8, 1):
            machine = stack.enter_context(fake_machine(gpus, delay_microseconds=DELAY_MICROSECONDS))
            clients.append(stack.enter_context(our_exporter(machine)).client())
        eight, one = scrape_in_turn(clients, QUICK_ROUNDS if quick else ROUNDS)
    figures.reach(
        "14",
        pair_ratio(eight, one),
        ours=f"{percentile(eight, 0.5) * 1e3:.1f} ms",
        peer=f"one GPU {percentile(one, 0.5) * 1e3:.1f} ms",
    )
    figures.write()


if __name__ == "__main__":
    main()
