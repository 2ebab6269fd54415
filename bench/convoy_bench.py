"""Scrapes while another client sends requests without pause, with a slow driver (goal 13).

Python runs one thread at a time, and a thread that makes many short foreign calls can wait for the
interpreter lock after each of them. The benchmark measures the default configuration, and one in
which every scrape makes a new reading.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figures import Figures, Spread, is_quick, percentile, spread
from bench.subjects import GAP_SECONDS, ROOT, Subject, fake_machine, our_exporter

DELAY_MICROSECONDS = 50
ROUNDS = 12
QUICK_ROUNDS = 3
SCRAPES = 8


@contextmanager
def streaming(subject: Subject) -> Iterator[None]:
    """Run another client that sends requests without pause."""
    command = [sys.executable, "-m", "bench.stream", str(subject.port)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        time.sleep(GAP_SECONDS)
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def scrape(subject: Subject) -> float:
    """Return the median duration of several scrapes."""
    client = subject.client()
    seconds = []
    for _ in range(SCRAPES):
        seconds.append(client.get().seconds)
        time.sleep(GAP_SECONDS)
    return percentile(seconds, 0.5)


def measure(subject: Subject, rounds: int) -> tuple[Spread, float, float]:
    """Return the ratio of scrapes beside the other client to scrapes alone, and both in seconds."""
    alone = []
    beside = []
    for _ in range(rounds):
        alone.append(scrape(subject))
        with streaming(subject):
            beside.append(scrape(subject))
    ratios = [one / other for one, other in zip(beside, alone, strict=True)]
    return spread(ratios), percentile(beside, 0.5), percentile(alone, 0.5)


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("convoy")
    figures = Figures("convoy", quick=quick)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with fake_machine(delay_microseconds=DELAY_MICROSECONDS) as machine:
        with our_exporter(machine) as subject:
            ratio, beside, alone = measure(subject, rounds)
        with our_exporter(machine, reuse=False) as subject:
            each, each_beside, each_alone = measure(subject, rounds)
    figures.reach(
        "13",
        ratio,
        ours=f"{beside * 1e3:.2f} ms",
        peer=f"alone {alone * 1e3:.2f} ms",
        note=f"without reuse of readings {each} ({each_beside * 1e3:.1f} / {each_alone * 1e3:.1f} ms)",
    )
    figures.write()


if __name__ == "__main__":
    main()
