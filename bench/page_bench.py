"""The CPU use of the live page without viewers, with one and with fifty (goal 26)."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import NamedTuple

from bench.figures import Figures, is_quick
from bench.subjects import Subject, fake_machine, our_exporter
from tests.fakes.machine import FakeMachine

SECONDS = 60.0
QUICK_SECONDS = 12.0
SETTLE_SECONDS = 4.0
FEW, MANY = 1, 50
INTERVAL_SECONDS = 1.0
GPUS = 8
ONE_CALL_A_READING = "nvmlDeviceGetPowerUsage"


class Cost(NamedTuple):
    """The resources used for a number of viewers.

    Attributes:
        share: The CPU use in percent of one core.
        collections: Collections per second.
        answers: Answers per second to all viewers together.
        kilobytes: The size of one answer as received.
    """

    share: float
    collections: float
    answers: float
    kilobytes: float


class Viewers:
    """Clients that request the live page once a second like browsers, at different moments."""

    def __init__(self, subject: Subject, count: int) -> None:
        self._ended = threading.Event()
        self.answers = [0] * count
        self.sizes = [0] * count
        self._threads = [
            threading.Thread(target=self._look, args=(subject, number, count))
            for number in range(count)
        ]

    def __enter__(self) -> Viewers:  # noqa: PYI034 - Self is not in Python 3.10
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _look(self, subject: Subject, number: int, count: int) -> None:
        client = subject.client("/live", keep_alive=True)
        at = time.monotonic() + number / count * INTERVAL_SECONDS
        while not self._ended.wait(max(0.0, at - time.monotonic())):
            self.sizes[number] = len(client.get().body)
            self.answers[number] += 1
            at += INTERVAL_SECONDS
        client.close()


def measure(subject: Subject, machine: FakeMachine, count: int, seconds: float) -> Cost:
    """Measure the resources used for the given number of viewers over the given time."""
    with Viewers(subject, count) as viewers:
        time.sleep(SETTLE_SECONDS)
        before = subject.tree.cpu_seconds(), machine.calls(ONE_CALL_A_READING), sum(viewers.answers)
        time.sleep(seconds)
        after = subject.tree.cpu_seconds(), machine.calls(ONE_CALL_A_READING), sum(viewers.answers)
    cpu, calls, answers = (now - then for then, now in zip(before, after, strict=True))
    return Cost(
        share=100 * cpu / seconds,
        collections=calls / GPUS / seconds,
        answers=answers / seconds,
        kilobytes=max(viewers.sizes, default=0) / 1e3,
    )


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("page")
    seconds = QUICK_SECONDS if quick else SECONDS
    figures = Figures("page", quick=quick)
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine(GPUS))
        subject = stack.enter_context(our_exporter(machine, "--no-collector.container"))
        none, one, many = (measure(subject, machine, count, seconds) for count in (0, FEW, MANY))
    figures.reach("26a", round(none.share, 4), ours=f"{none.collections:.2f} collections/s")
    figures.reach("26b", round(one.share, 3), ours=f"{one.kilobytes:.1f} kB an answer")
    figures.reach("26c", round(one.collections, 2), ours=f"{one.answers:.1f} answers/s")
    figures.reach("26d", round(many.collections, 2), ours=f"{many.answers:.1f} answers/s")
    figures.tell("fifty viewers, % of a core", round(many.share, 2))
    figures.tell("measured for", f"{seconds:.0f} s")
    figures.write()


if __name__ == "__main__":
    main()
