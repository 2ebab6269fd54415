"""A soak test of the exporter: after hours of faults its resource usage must not have grown.

    python -m tests.support.soak --minutes 360

The exporter is scraped once a second. A driver fault begins every 5 s. A training run starts every
10 s, ends in one of three ways, and leaves its file. `--speed 10` multiplies the faults and runs by
ten, so that half an hour corresponds to five hours.

The table has a row for each minute. At the end, the last tenth of the time is compared with the
tenth that ends after a sixth of the time, which is one hour of six.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import psutil

from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess
from tests.support.processes import ENDS_WITH_PARENT

SCRAPE_SECONDS = 1.0
FAULT_SECONDS = 5.0
RUN_SECONDS = 10.0
MOST_GROWTH_BYTES = 1 << 20
_ROOT = Path(__file__).parents[2]
_MIB = 1 << 20
_LEAST_SECONDS = 10.0
_GPUS = 4
_UNKNOWN_ERROR = 999  # NVML_ERROR_UNKNOWN
_FELL_OFF = 79
_ENDS = ("finish", "raise", "kill")
_COLUMNS = (
    "minute   MiB  with children  descriptors  threads  scrapes  missed  slowest s  faults  runs"
)
_TRAINER = """
import os, signal, sys, time
from trainvitals import TrainingMonitor

run, how = sys.argv[1:]
with TrainingMonitor(run, total_steps=100) as monitor:
    monitor.start_epoch(0)
    for number in range(20):
        monitor.update_batch(8, loss=2.0 / (number + 1), **{f"extra_{run}": 1.0})
        time.sleep(0.1)
    if how == "raise":
        raise LookupError
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True)
class Look:
    """The measurements at one scrape.

    Attributes:
        at: The time since the beginning, in seconds.
        own: The resident bytes of the exporter.
        whole: The resident bytes of the exporter and its children.
        descriptors: The number of open file descriptors of the exporter.
        threads: The number of threads of the exporter.
        seconds: The duration of the scrape; None if the scrape was missed.
    """

    at: float
    own: int
    whole: int
    descriptors: int
    threads: int
    seconds: float | None


@dataclass
class Soak:
    """A soak test and its measurements.

    Attributes:
        seconds: The duration of the test.
        speed: The factor by which faults and runs are more frequent.
        patience: The duration in seconds above which a scrape counts as missed. The scrape timeout
            in the header is always one second.
        looks: The measurements of each scrape.
        faults: The number of faults that began.
        runs: The number of runs that started.
    """

    seconds: float
    speed: float = 1.0
    patience: float = SCRAPE_SECONDS
    looks: list[Look] = field(default_factory=list)
    faults: int = 0
    runs: int = 0

    def run(self, directory: Path, report: Callable[[str], None] = lambda _: None) -> None:
        """Run the soak test and report a row for each minute."""
        report(_COLUMNS)
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm") as runs,
            FakeMachine(directory, _GPUS) as machine,
            ExporterProcess(directory, machine, environ={"TRAINVITALS_RUN_DIR": runs}) as exporter,
            self._troubled(machine, runs),
        ):
            self._watch(exporter, report)

    def judge(self, most_growth: int = MOST_GROWTH_BYTES) -> list[str]:
        """Return a description of each problem found.

        Args:
            most_growth: The permitted growth of memory in bytes; a short test needs more, because
                the exporter has not warmed up.
        """
        first, last = self._window(1 / 6), self._window(1)
        wrong = []
        # Driver readers start and end as children, and a scrape may coincide with a descriptor that
        # is about to be closed, so leaks show in the minimum. Pools keep the threads of a burst.
        for name, before, after, most in (
            ("MiB", _median(first, "own"), _median(last, "own"), most_growth),
            ("MiB with children", _least(first, "whole"), _least(last, "whole"), most_growth),
            ("descriptors", self._most_until(first, "descriptors"), _least(last, "descriptors"), 0),
            ("threads", self._most_until(first, "threads"), _least(last, "threads"), 0),
        ):
            if after - before > most:
                unit = _MIB if name.startswith("MiB") else 1
                began, ended = before / unit, after / unit
                wrong.append(
                    f"{name}: {began:.1f} after a sixth of the time, {ended:.1f} at the end"
                )
        if missed := sum(each.seconds is None for each in self.looks):
            wrong.append(f"{missed} of {len(self.looks)} scrapes were missed")
        return wrong

    def _window(self, end: float) -> list[Look]:
        """Return the measurements of the tenth of the time that ends at this fraction."""
        until = end * self.seconds
        begin = until - max(self.seconds / 10, _LEAST_SECONDS)
        return [each for each in self.looks if begin <= each.at < until] or self.looks[-1:]

    def _most_until(self, window: Sequence[Look], name: str) -> int:
        return max(getattr(each, name) for each in self.looks if each.at <= window[-1].at)

    def _watch(self, exporter: ExporterProcess, report: Callable[[str], None]) -> None:
        began = time.monotonic()
        minute: list[Look] = []
        for number in itertools.count():
            due = number * SCRAPE_SECONDS
            if due >= self.seconds:
                break
            time.sleep(max(0.0, began + due - time.monotonic()))
            look = _look(exporter, due, self.patience)
            self.looks.append(look)
            minute.append(look)
            if (due + SCRAPE_SECONDS) % 60 < SCRAPE_SECONDS:
                report(self._format(minute))
                minute = []

    @contextmanager
    def _troubled(self, machine: FakeMachine, runs: str) -> Iterator[None]:
        """Cause faults and start runs until the end of the block."""
        ended = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            troubles = [
                pool.submit(_repeat, self._break_and_mend(machine), FAULT_SECONDS / 2, self, ended),
                pool.submit(_repeat, self._train(runs), RUN_SECONDS, self, ended),
            ]
            try:
                yield
            finally:
                ended.set()
        for each in troubles:
            each.result()

    def _break_and_mend(self, machine: FakeMachine) -> Generator[None, None, None]:
        for number, (begin, end) in enumerate(itertools.cycle(list_faults(machine)), 1):
            begin()
            self.faults = number
            yield
            end()
            yield

    def _train(self, runs: str) -> Generator[None, None, None]:
        environ = {
            **os.environ,
            "PYTHONPATH": str(_ROOT / "exporter"),
            "TRAINVITALS_RUN_DIR": runs,
        }
        trainers: list[subprocess.Popen[bytes]] = []
        try:
            for number, how in enumerate(itertools.cycle(_ENDS), 1):
                command = (*ENDS_WITH_PARENT, sys.executable, "-c", _TRAINER, f"soak-{number}", how)
                trainers.append(subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL))
                trainers = [each for each in trainers if each.poll() is None]
                self.runs = number
                yield
        finally:
            for each in trainers:
                each.kill()
                each.wait()

    def _format(self, minute: Sequence[Look]) -> str:
        answered = [each.seconds for each in minute if each.seconds is not None]
        return (
            f"{(minute[-1].at + SCRAPE_SECONDS) / 60:6.0f}"
            f"{_median(minute, 'own') / _MIB:6.1f}{_median(minute, 'whole') / _MIB:15.1f}"
            f"{_range(minute, 'descriptors'):>13}{_range(minute, 'threads'):>9}{len(minute):9}"
            f"{len(minute) - len(answered):8}{max(answered, default=0):11.2f}"
            f"{self.faults:8}{self.runs:6}"
        )


def list_faults(
    machine: FakeMachine,
) -> tuple[tuple[Callable[[], object], Callable[[], object]], ...]:
    """Return a function that begins and a function that ends each fault."""
    temperature, power = "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"
    return (
        (lambda: machine.hang(temperature, 1), lambda: machine.unhang(temperature, 1)),
        (lambda: machine.fail(power, 2, _UNKNOWN_ERROR), lambda: machine.fail(power, 2, 0)),
        (lambda: machine.lose(3), lambda: machine.restore(3)),
        (lambda: machine.hang("nvml*"), lambda: machine.unhang("nvml*")),
        (lambda: machine.deliver_xid(0, _FELL_OFF), lambda: None),
        (machine.unload_driver, machine.load_driver),
        (lambda: machine.hang("nvml*", 2), lambda: machine.unhang("nvml*", 2)),
        (machine.mismatch, lambda: None),
    )


def _repeat(
    acts: Generator[None, None, None], seconds: float, soak: Soak, ended: threading.Event
) -> None:
    with closing(acts):
        while not ended.wait(seconds / soak.speed):
            next(acts)


def _look(exporter: ExporterProcess, at: float, patience: float) -> Look:
    try:
        page = exporter.scrape(timeout=SCRAPE_SECONDS)
        is_in_time = page.status == HTTPStatus.OK and page.seconds <= patience
        seconds = page.seconds if is_in_time else None
    except OSError:
        seconds = None
    process = psutil.Process(exporter.pid)
    own = process.memory_info().rss
    children = sum(map(_resident, process.children(recursive=True)))
    return Look(at, own, own + children, process.num_fds(), process.num_threads(), seconds)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _median(looks: Sequence[Look], name: str) -> float:
    return statistics.median(getattr(each, name) for each in looks)


def _least(looks: Sequence[Look], name: str) -> int:
    return min(getattr(each, name) for each in looks)


def _range(looks: Sequence[Look], name: str) -> str:
    values = [getattr(each, name) for each in looks]
    return f"{min(values)}-{max(values)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test; return 1 if resource usage grew or a scrape was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.soak")
    parser.add_argument("--minutes", type=float, default=360.0, help="how long it lasts")
    parser.add_argument("--speed", type=float, default=1.0, help="times as many faults and runs")
    options = parser.parse_args(arguments)
    soak = Soak(options.minutes * 60, options.speed)
    with tempfile.TemporaryDirectory(prefix="trainvitals-soak-") as directory:
        soak.run(Path(directory), lambda line: print(line, flush=True))
    wrong = soak.judge()
    print("\n".join(wrong) or "nothing grew, and no scrape was missed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
