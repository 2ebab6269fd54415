"""Time, CPU, size and memory of a scrape, compared with other exporters (goals 1, 2, 4, 6, 18, 19).

All exporters run at the same time and are scraped in turn, with the order reversed each time, so
that other load on the machine affects them equally. trainvitals reuses a reading for 0.2 s; the
rounds are further apart.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.figures import Figures, Spread, is_quick, pair_ratio, percentile, spread
from bench.subjects import (
    GAP_SECONDS,
    Subject,
    fake_machine,
    floor,
    node_exporter,
    nvitop_exporter,
    our_exporter,
)

ROUNDS = 1000
QUICK_ROUNDS = 60
CPU_ROUNDS = 10  # the rounds over which each CPU time is measured
BACK_TO_BACK = 200


class Measured:
    """The measurements of one exporter."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.client = subject.client()
        page = self.client.get()
        self.series = len(page.samples)
        self.page_bytes = len(page.text.encode())
        self.wire_bytes = len(page.body)
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self._cpu_before = subject.tree.cpu_seconds()

    def scrape(self) -> None:
        """Scrape once and record the duration."""
        self.seconds.append(self.client.get().seconds)

    def read_cpu(self) -> None:
        """Record the CPU time per scrape since the previous call."""
        now = self.subject.tree.cpu_seconds()
        self.cpu_seconds.append((now - self._cpu_before) / CPU_ROUNDS)
        self._cpu_before = now


def measure(subjects: list[Subject], rounds: int) -> dict[str, Measured]:
    """Scrape all exporters in turn and return the measurements by name."""
    measured = [Measured(subject) for subject in subjects]
    for count in range(1, rounds + 1):
        for one in measured if count % 2 else reversed(measured):
            one.scrape()
        time.sleep(GAP_SECONDS)
        if count % CPU_ROUNDS == 0:
            for one in measured:
                one.read_cpu()
    return {one.subject.name: one for one in measured}


def measure_back_to_back(subjects: list[Subject]) -> dict[str, float]:
    """Scrape without pauses, so that trainvitals answers most scrapes from one reading."""
    clients = {subject.name: subject.client(keep_alive=True) for subject in subjects}
    seconds: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(BACK_TO_BACK):
        for name, client in clients.items():
            seconds[name].append(client.get().seconds)
    return {name: percentile(times, 0.5) * 1e3 for name, times in seconds.items()}


def enter(figures: Figures, by_name: dict[str, Measured]) -> None:
    """Record the comparisons of time, CPU, size and series."""
    ours, node = by_name["trainvitals"], by_name["node_exporter"]
    bound, polling = by_name["floor"], by_name["nvitop-exporter"]
    figures.reach(
        "1",
        pair_ratio(ours.seconds, node.seconds),
        ours=milliseconds(ours),
        peer=milliseconds(node),
    )
    figures.reach("2", per_sample(ours, node), ours=microseconds(ours), peer=microseconds(node))
    figures.reach("4a", per_sample(ours, bound), ours=microseconds(ours), peer=microseconds(bound))
    scale = bound.series / ours.series
    figures.reach(
        "4b",
        spread([a / b * scale for a, b in zip(ours.seconds, bound.seconds, strict=True)]),
        ours=milliseconds(ours),
        peer=milliseconds(bound),
    )
    wire = {one.subject.name: one.wire_bytes / one.series for one in (ours, node)}
    figures.reach(
        "18",
        wire["trainvitals"] / wire["node_exporter"],
        ours=f"{wire['trainvitals']:.1f} B",
        peer=f"{wire['node_exporter']:.1f} B",
    )
    peers = node.series + polling.series
    figures.reach(
        "19", ours.series / peers, ours=f"{ours.series}", peer=f"{node.series} + {polling.series}"
    )


def enter_memory(figures: Figures, by_name: dict[str, Measured], secure: Measured) -> None:
    """Record the comparisons of memory."""
    node = by_name["node_exporter"].subject.tree.memory()
    for goal, one in (("6a", by_name["trainvitals"]), ("6b", secure)):
        memory = one.subject.tree.memory()
        figures.reach(
            goal,
            memory.once / node.rss,
            ours=f"{memory.once:.1f} MiB",
            peer=f"{node.rss:.1f} MiB",
            note=f"by PSS {memory.pss / node.rss:.2f} ({memory.pss:.1f} MiB), by the sum of RSS "
            f"{memory.rss / node.rss:.2f} ({memory.rss:.1f} MiB, main process {memory.main:.1f})",
        )


def per_sample(ours: Measured, peer: Measured) -> Spread:
    """Return the spread of the ratios of CPU time per sample."""
    scale = peer.series / ours.series
    pairs = zip(ours.cpu_seconds, peer.cpu_seconds, strict=True)
    return spread([mine / theirs * scale for mine, theirs in pairs])


def milliseconds(one: Measured) -> str:
    """Return the text of the median scrape time."""
    return f"{percentile(one.seconds, 0.5) * 1e3:.2f} ms"


def microseconds(one: Measured) -> str:
    """Return the text of the median CPU time per sample."""
    return f"{percentile(one.cpu_seconds, 0.5) / one.series * 1e6:.2f} us"


def describe(one: Measured) -> dict[str, object]:
    """Return the row of an exporter in the table of details."""
    memory = one.subject.tree.memory()
    return {
        "series": one.series,
        "bytes": one.page_bytes,
        "gzip bytes": one.wire_bytes,
        "p50 ms": round(percentile(one.seconds, 0.5) * 1e3, 2),
        "p99 ms": round(percentile(one.seconds, 0.99) * 1e3, 2),
        "CPU ms/scrape": round(spread(one.cpu_seconds).middle * 1e3, 2),
        "RSS MiB": round(memory.rss, 1),
        "PSS MiB": round(memory.pss, 1),
        "threads": one.subject.tree.threads(),
    }


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("scrape")
    figures = Figures("scrape", quick=quick)
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine())
        subjects = [
            stack.enter_context(it)
            for it in (
                our_exporter(machine),
                node_exporter(),
                floor(machine),
                nvitop_exporter(machine),
            )
        ]
        secure = stack.enter_context(our_exporter(machine, name="trainvitals, TLS", tls=True))
        by_name = measure([*subjects, secure], QUICK_ROUNDS if quick else ROUNDS)
        enter(figures, by_name)
        enter_memory(figures, by_name, by_name["trainvitals, TLS"])
        for name, one in by_name.items():
            figures.tell(name, describe(one))
        apart = measure_back_to_back(subjects[:2])
        shown = ", ".join(f"{name} {p50:.2f} ms" for name, p50 in apart.items())
        figures.tell("back to back, keep-alive, ours reusing readings for 0.2 s (p50)", shown)
    figures.write()


if __name__ == "__main__":
    main()
