"""Eight GPUs and one, with a driver whose calls take a millisecond (goal 14)."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.figures import Figures, is_quick, pair_ratio, percentile
from bench.subjects import GAP_SECONDS, fake_machine, our_exporter

DELAY_MICROSECONDS = 1000
ROUNDS = 100
QUICK_ROUNDS = 20


def main() -> None:
    """Measure."""
    quick = is_quick("devices")
    figures = Figures("devices", quick=quick)
    seconds: dict[int, list[float]] = {8: [], 1: []}
    with ExitStack() as stack:
        clients = {}
        for gpus in seconds:
            machine = stack.enter_context(
                fake_machine(gpus, delay_microseconds=DELAY_MICROSECONDS)
            )
            clients[gpus] = stack.enter_context(our_exporter(machine)).client()
            clients[gpus].get()
        for count in range(QUICK_ROUNDS if quick else ROUNDS):
            for gpus in seconds if count % 2 else reversed(seconds):
                seconds[gpus].append(clients[gpus].get().seconds)
                time.sleep(GAP_SECONDS / 2)
    figures.reach(
        "14",
        pair_ratio(seconds[8], seconds[1]),
        ours=f"{percentile(seconds[8], 0.5) * 1e3:.1f} ms",
        peer=f"one GPU {percentile(seconds[1], 0.5) * 1e3:.1f} ms",
    )
    figures.write()


if __name__ == "__main__":
    main()
