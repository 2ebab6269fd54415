"""A driver call for one GPU that never returns (goal 9)."""

from __future__ import annotations

import statistics
import time

from bench.client import Answer, Client
from bench.figures import Figures, is_quick, percentile, spread
from bench.subjects import GAP_SECONDS, Subject, fake_machine, our_exporter
from tests.fakes.machine import FakeMachine

ROUNDS = 5
QUICK_ROUNDS = 1
SCRAPES = 20
GPU = 2
CALL = "nvmlDeviceGetPowerUsage"
MOST_SCRAPES_TO_HEAL = 40


class Round:
    """One hang: the scrapes before, during and after it."""

    def __init__(self, subject: Subject, machine: FakeMachine) -> None:
        client = subject.client()
        healthy_page, self.healthy = scrape(client, SCRAPES)
        wanted = without_gpu(healthy_page)
        machine.hang(CALL, device=GPU)
        self.first = client.get().seconds
        time.sleep(GAP_SECONDS)
        threads = subject.tree.threads()
        page, self.later = scrape(client, SCRAPES)
        self.threads_lost = subject.tree.threads() - threads
        self.missing_percent = 100 * len(wanted - without_gpu(page)) / len(wanted)
        self.success = success_of(page)
        self.others_up = page.text.count("accelerator_temperature_celsius{device=")
        machine.unhang(CALL, device=GPU)
        self.scrapes_to_heal = self._heal(client, set(healthy_page.samples))

    def _heal(self, client: Client, wanted: set[str]) -> int:
        for count in range(1, MOST_SCRAPES_TO_HEAL):
            time.sleep(GAP_SECONDS)
            page = client.get()
            if success_of(page) == 1 and wanted <= set(page.samples):
                return count
        return MOST_SCRAPES_TO_HEAL


def scrape(client: Client, count: int) -> tuple[Answer, list[float]]:
    """Scrape several times; return the last page and all durations."""
    answers = []
    for _ in range(count):
        answers.append(client.get())
        time.sleep(GAP_SECONDS)
    return answers[-1], [answer.seconds for answer in answers]


def without_gpu(page: Answer) -> set[str]:
    """Return the samples that do not belong to the hung GPU."""
    mine = f'device="{GPU}"'
    return {
        sample
        for sample in page.samples
        if not ("accel" in sample or "gpu" in sample) or mine not in sample
    }


def success_of(page: Answer) -> float:
    """Return the page's value of `trainvitals_collector_success` for the accelerator collector."""
    line = 'trainvitals_collector_success{collector="accelerator"} '
    return float(page.text.partition(line)[2].split()[0])


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("hang")
    figures = Figures("hang", quick=quick)
    with fake_machine() as machine, our_exporter(machine) as subject:
        rounds = [Round(subject, machine) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
    ratios = [statistics.median(one.later) / statistics.median(one.healthy) for one in rounds]
    shown = {
        name: f"{statistics.median([percentile(getattr(one, name), 0.5) for one in rounds]) * 1e3:.2f} ms"
        for name in ("healthy", "later")
    }
    figures.reach("9a", spread(ratios), ours=shown["later"], peer=f"healthy {shown['healthy']}")
    figures.reach("9b", max(one.missing_percent for one in rounds))
    figures.reach("9c", max(one.threads_lost for one in rounds))
    firsts = [round(one.first, 3) for one in rounds]
    figures.reach("9d", max(firsts), note=f"the longest of {firsts}; the deadline is 5 s")
    figures.reach("9e", max(one.scrapes_to_heal for one in rounds))
    figures.reach("9f", max(one.success for one in rounds))
    figures.write()


if __name__ == "__main__":
    main()
