"""CPU time and wake-ups of the exporter while no client sends requests (goal 7)."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.figures import Figures, is_quick
from bench.subjects import Subject, fake_machine, node_exporter, nvitop_exporter, our_exporter

SECONDS = 60.0
QUICK_SECONDS = 10.0
SETTLE_SECONDS = 3.0


def measure(subjects: list[Subject], seconds: float) -> dict[str, tuple[float, float]]:
    """Return the CPU milliseconds and the wake-ups per second of each exporter."""

    def look() -> list[tuple[float, int]]:
        return [(subject.tree.cpu_seconds(), subject.tree.switches()) for subject in subjects]

    before = look()
    time.sleep(seconds)
    after = look()
    return {
        subject.name: ((now[0] - then[0]) / seconds * 1e3, (now[1] - then[1]) / seconds)
        for subject, then, now in zip(subjects, before, after, strict=True)
    }


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("rest")
    seconds = QUICK_SECONDS if quick else SECONDS
    figures = Figures("rest", quick=quick)
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine())
        ours = stack.enter_context(our_exporter(machine))
        connected = stack.enter_context(our_exporter(machine, name="with a connection"))
        node = stack.enter_context(node_exporter())
        polling = stack.enter_context(nvitop_exporter(machine))
        client = connected.client(keep_alive=True)
        client.get()
        time.sleep(SETTLE_SECONDS)
        rest = measure([ours, connected, node, polling], seconds)
        client.close()
    peers = {
        index: f"node_exporter {rest['node_exporter'][index]:.3f}, "
        f"nvitop-exporter {rest['nvitop-exporter'][index]:.2f}"
        for index in (0, 1)
    }
    for cpu_goal, wake_goal, name in (("7a", "7b", ours.name), ("7c", "7d", connected.name)):
        for index, goal in enumerate((cpu_goal, wake_goal)):
            value = round(rest[name][index], 4)
            figures.reach(goal, value, ours=f"{value}", peer=peers[index])
    figures.tell("measured for", f"{seconds:.0f} s")
    figures.write()


if __name__ == "__main__":
    main()
