"""The time from exec to the first complete page, and from SIGTERM to the exit (goal 8)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bench.client import Client
from bench.figures import Figures, is_quick, pair_ratio, percentile
from bench.subjects import fake_machine, find_port, node_command, our_command, start
from tests.fakes.machine import FakeMachine

ROUNDS = 25
QUICK_ROUNDS = 5
GPUS = 8


def start_once(
    command: Sequence[str], port: int, wanted: str, machine: FakeMachine | None
) -> tuple[float, float, float]:
    """Return the seconds to the first page and to the exit, and the CPU seconds to the first page.

    Raises:
        AssertionError: The first page lacks the wanted samples.
    """
    client = Client(port)
    started_at = time.perf_counter()
    process = start(command, machine)
    while True:
        try:
            answer = client.get()
            break
        except ConnectionRefusedError:
            time.sleep(0.0005)
    first = time.perf_counter() - started_at
    busy = read_cpu_seconds(process.pid)
    names = [sample.partition("{")[0] for sample in answer.samples]
    process.terminate()
    told_at = time.perf_counter()
    process.wait()
    if wanted not in names or (machine is not None and names.count(wanted) != GPUS):
        raise AssertionError(f"the first page has {names.count(wanted)} x {wanted}")
    return first, time.perf_counter() - told_at, busy


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds used by all threads of a process, from their schedstat files."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("start")
    figures = Figures("start", quick=quick)
    starts: dict[str, list[float]] = {"ours": [], "node": []}
    ends: dict[str, list[float]] = {"ours": [], "node": []}
    busy: dict[str, list[float]] = {"ours": [], "node": []}
    ports = find_port(), find_port()
    with fake_machine(GPUS) as machine:
        for _ in range(1 + (QUICK_ROUNDS if quick else ROUNDS)):
            mine = start_once(our_command(ports[0]), ports[0], "accelerator_up", machine)
            theirs = start_once(node_command(ports[1]), ports[1], "node_load1", None)
            for name, (first, end, cpu) in (("ours", mine), ("node", theirs)):
                starts[name].append(first)
                ends[name].append(end)
                busy[name].append(cpu)
    figures.reach(
        "8",
        pair_ratio(starts["ours"][1:], starts["node"][1:]),
        ours=f"{percentile(starts['ours'][1:], 0.5) * 1e3:.0f} ms",
        peer=f"{percentile(starts['node'][1:], 0.5) * 1e3:.0f} ms",
    )
    shown = {name: f"{percentile(times, 0.5) * 1e3:.0f} ms" for name, times in ends.items()}
    figures.tell("SIGTERM to the end, without a scrape in flight", shown)
    cpu_shown = {name: f"{percentile(times, 0.5) * 1e3:.0f} ms" for name, times in busy.items()}
    figures.tell("CPU time to the first full answer", cpu_shown)
    figures.write()


if __name__ == "__main__":
    main()
