"""SIGTERM while a scrape is in flight (goal 20)."""

from __future__ import annotations

import threading
import time

from bench.client import Answer, Client
from bench.figures import Figures, is_quick, spread
from bench.subjects import Subject, fake_machine, our_exporter
from tests.fakes.machine import FakeMachine

DELAY_MICROSECONDS = 20_000
ROUNDS = 10
QUICK_ROUNDS = 2
HEAD_START_SECONDS = 0.1


class Scrape(threading.Thread):
    """A scrape in a separate thread."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self.answer: Answer | None = None
        self.ended_at = 0.0

    def run(self) -> None:
        """Scrape once and record the answer and the time."""
        try:
            self.answer = self._client.get()
        except OSError as error:
            print(f"       not answered: {error}")
        self.ended_at = time.perf_counter()


def stop_once(machine: FakeMachine) -> tuple[bool, float]:
    """Return whether the scrape was answered, and the seconds from the answer to the exit."""
    with our_exporter(machine) as subject:
        scrape = Scrape(subject.client())
        time.sleep(0.3)
        scrape.start()
        time.sleep(HEAD_START_SECONDS)
        if not scrape.is_alive():
            raise RuntimeError("the scrape was over before SIGTERM; make the driver slower")
        return stop(subject, scrape)


def stop(subject: Subject, scrape: Scrape) -> tuple[bool, float]:
    """Send SIGTERM and wait for the ends of the process and of the scrape."""
    subject.process.terminate()
    subject.process.wait(20)
    ended_at = time.perf_counter()
    scrape.join()
    answer = scrape.answer
    answered = answer is not None and answer.status == 200 and 'device="7"' in answer.text
    return answered, max(0.0, ended_at - scrape.ended_at)


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("stop")
    figures = Figures("stop", quick=quick)
    with fake_machine(delay_microseconds=DELAY_MICROSECONDS) as machine:
        stops = [stop_once(machine) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
    figures.reach("20a", sum(not answered for answered, _ in stops), note=f"of {len(stops)}")
    figures.reach("20b", spread([seconds for _, seconds in stops]))
    figures.write()


if __name__ == "__main__":
    main()
