"""Ten thousand readings of a machine whose devices and processes change (goal 17).

Processes on GPUs, network interfaces, disks and mounts are replaced again and again, each time
under new names. The host is a copy of the fake host of the tests, whose files are rewritten between
scrapes. The reuse of readings is disabled, so that each scrape makes a new one.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from bench.figures import Figures, is_quick
from bench.subjects import ROOT, fake_machine, our_exporter
from tests.fakes.machine import FakeMachine

SCRAPES = 10_000
QUICK_SCRAPES = 1500
WARM_UP = 500
CHANGE_EVERY = 10
LOOK_EVERY = 100
NEWCOMERS = 3  # of each kind, present at the same time


class Host:
    """A fake host whose devices change.

    Args:
        directory: The directory for its files.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copytree(ROOT / "tests/fixtures/machine", directory, dirs_exist_ok=True)
        (directory / "root").mkdir()
        self._lists = {
            name: (directory / "proc" / name).read_text()
            for name in ("1/net/dev", "diskstats", "1/mountinfo")
        }
        self.flags = (
            f"--path.procfs={directory}/proc",
            f"--path.sysfs={directory}/sys",
            f"--path.rootfs={directory}/root",
        )

    def change(self, turn: int) -> None:
        """Replace the devices of the previous turn with those of this turn."""
        numbers = range(turn * NEWCOMERS, turn * NEWCOMERS + NEWCOMERS)
        for number in numbers:
            (self.directory / f"root/mnt/volume{number}").mkdir(parents=True)
        self._write("1/net/dev", [f"  tap{number}: {'7 ' * 16}" for number in numbers])
        self._write("diskstats", [f" 8 0 sd{_letters(number)} {'9 ' * 17}" for number in numbers])
        self._write(
            "1/mountinfo",
            [f"{900 + n} 29 8:{n} / /mnt/volume{n} rw - ext4 /dev/volume{n} rw" for n in numbers],
        )

    def restore(self) -> None:
        """Remove all devices that `change` added."""
        for name in self._lists:
            self._write(name, [])

    def _write(self, name: str, lines: list[str]) -> None:
        text = self._lists[name] + "".join(line + "\n" for line in lines)
        (self.directory / "proc" / name).write_text(text)


def _letters(number: int) -> str:
    """Return the letters of a disk's name: a, b, ... z, aa, ab, ..."""
    text = ""
    number += 26  # the fixture's disks use the single letters
    while number >= 0:
        text = chr(ord("a") + number % 26) + text
        number = number // 26 - 1
    return text


def change_processes(machine: FakeMachine, turn: int) -> None:
    """Replace the processes that compute on the GPUs."""
    for slot in range(8):
        first = 100_000 + (turn * 8 + slot) * NEWCOMERS
        machine.processes(slot, [(first + place, 1 << 30) for place in range(NEWCOMERS)])


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("drift")
    scrapes = QUICK_SCRAPES if quick else SCRAPES
    figures = Figures("drift", quick=quick)
    rss: list[float] = []
    seen: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as directory:
        host = Host(Path(directory))
        with fake_machine() as machine, our_exporter(machine, *host.flags, reuse=False) as subject:
            change_processes(machine, 0)
            client = subject.client(keep_alive=True)
            before = set(client.get().samples)
            for count in range(scrapes):
                if count % CHANGE_EVERY == 0:
                    host.change(count // CHANGE_EVERY)
                    change_processes(machine, count // CHANGE_EVERY)
                page = client.get()
                if count % LOOK_EVERY == 0:
                    rss.append(subject.tree.memory().rss)
                    seen |= set(page.samples)
            host.restore()
            change_processes(machine, 0)
            after = set(client.get().samples)
    settled = rss[WARM_UP // LOOK_EVERY :]
    tenth = max(1, len(settled) // 10)
    drift = statistics.median(settled[-tenth:]) - statistics.median(settled[:tenth])
    figures.reach(
        "17a",
        round(drift, 3),
        ours=f"{rss[0]:.2f} MiB at first, {settled[0]:.2f} after {WARM_UP}, {settled[-1]:.2f} after {scrapes}",
        note=f"scrapes {WARM_UP} to {scrapes}, first and last tenth",
    )
    figures.reach(
        "17b", len(after - before), note=f"{len(seen)} series seen, {len(after)} at the end"
    )
    if before - after:
        figures.tell("missing afterwards", sorted(before - after)[:5])
    figures.write()


if __name__ == "__main__":
    main()
