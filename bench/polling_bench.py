"""CPU time per sample with a scrape every 15 s, compared with a polling exporter (goal 3)."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.figures import Figures, is_quick, pair_ratio, percentile
from bench.subjects import Subject, fake_machine, node_exporter, nvitop_exporter, our_exporter

INTERVAL_SECONDS = 15.0
ROUNDS = 8
QUICK_ROUNDS = 2


def measure(subjects: list[Subject], rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds per delivered sample of each exporter, one number per round."""
    clients = [subject.client(keep_alive=True) for subject in subjects]
    cpu: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for client in clients:
        client.get()
    before = [subject.tree.cpu_seconds() for subject in subjects]
    for _ in range(rounds):
        time.sleep(INTERVAL_SECONDS)
        series = [len(client.get().samples) for client in clients]
        after = [subject.tree.cpu_seconds() for subject in subjects]
        for subject, count, then, now in zip(subjects, series, before, after, strict=True):
            cpu[subject.name].append((now - then) / count)
        before = after
    return cpu


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("polling")
    figures = Figures("polling", quick=quick)
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine())
        subjects = [
            stack.enter_context(it)
            for it in (our_exporter(machine), nvitop_exporter(machine), node_exporter())
        ]
        cpu = measure(subjects, QUICK_ROUNDS if quick else ROUNDS)
    shown = {name: f"{percentile(costs, 0.5) * 1e6:.1f} us" for name, costs in cpu.items()}
    figures.reach(
        "3",
        pair_ratio(cpu["trainvitals"], cpu["nvitop-exporter"]),
        ours=shown["trainvitals"],
        peer=shown["nvitop-exporter"],
        note=f"node_exporter {shown['node_exporter']}",
    )
    figures.write()


if __name__ == "__main__":
    main()
