"""The overhead of trainvitals in a training run, and the time to read 64 of its ranks (goal 15)."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figures, Spread, is_quick, median_interval, pair_ratio, spread
from bench.subjects import ROOT, START_SECONDS, environment
from trainvitals.lightning import ResourceMonitorCallback
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.exposition import Exposition
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource

STEP_ROUNDS, QUICK_STEP_ROUNDS = 2000, 200
IMPORTS, QUICK_IMPORTS = 40, 10
FIT_ROUNDS, QUICK_FIT_ROUNDS = 250, 25
READINGS, QUICK_READINGS = 200, 30
RANKS = 64
READING_GAP_SECONDS = 0.15  # long enough for a step of each rank between two readings
SHARED_MEMORY = "/dev/shm"
Seconds = Mapping[str, Sequence[float]]

IMPORT_CODE = """\
import sys, time
sys.path.insert(0, sys.argv[1])
started_at = time.perf_counter()
{}
print(time.perf_counter() - started_at)
"""
# Modules of the standard library that a training program has usually imported already.
LOADED = "import argparse, dataclasses, json, logging, pathlib, typing"
IMPORTS_TIMED = {
    "package": "import trainvitals",
    "monitor": "from trainvitals import TrainingMonitor",
}


def measure_steps(directory: Path, rounds: int) -> Seconds:
    """Return the step times of the recorders; see `step_costs`."""
    (directory / "multiprocess").mkdir()
    settings = {"PROMETHEUS_MULTIPROC_DIR": str(directory / "multiprocess")}
    answer: Seconds = json.loads(run_module("step_costs", directory, rounds, settings=settings))
    return answer


def report_steps(figures: Figures, seconds: Seconds) -> None:
    """Record the time to record a step."""
    ours = seconds["ours"]
    shown = show_microseconds(ours)
    for goal, peer in (("15a", "json"), ("15d", "multiprocess")):
        figures.reach(
            goal, pair_ratio(ours, seconds[peer]), ours=shown, peer=show_microseconds(seconds[peer])
        )
    for goal, name, note in (
        ("15b", "ours", "every step is published"),
        ("15c", "default", "by default steps of less than 1 ms are published together"),
    ):
        figures.reach(
            goal,
            spread([each * 1e6 for each in seconds[name]]),
            ours=show_microseconds(seconds[name]),
            note=f"{note}; the loop around it costs {show_microseconds(seconds['nothing'])}",
        )
    for name, subject, rest in (
        ("a mark", "mark", "call"),
        ("batches(), a batch", "batches", "no batches"),
        ("log() of five names, published", "log", "call"),
    ):
        figures.tell(name, show_difference(seconds[subject], seconds[rest]))


def show_difference(these: Sequence[float], those: Sequence[float]) -> str:
    """Return the text of the differences of medians and minima."""
    middle = statistics.median(these) - statistics.median(those)
    return f"{middle * 1e6:.2f} us (least {(min(these) - min(those)) * 1e6:.2f})"


def show_microseconds(seconds: Sequence[float]) -> str:
    """Return the text of the median and the minimum."""
    return f"{statistics.median(seconds) * 1e6:.2f} us (least {min(seconds) * 1e6:.2f})"


def report_imports(figures: Figures, count: int) -> None:
    """Time imports in new interpreters in turn, without the start of the interpreter."""
    codes = {
        **{name: IMPORT_CODE.format(line) for name, line in IMPORTS_TIMED.items()},
        "late": f"{LOADED}\n{IMPORT_CODE.format(IMPORTS_TIMED['monitor'])}",
    }
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(1 + count):  # the first round compiles
        for name, code in codes.items():
            command = [sys.executable, "-I", "-c", code, str(ROOT / "exporter")]
            answer = subprocess.run(command, env=environment(None), capture_output=True, check=True)
            seconds[name].append(float(answer.stdout))
    for goal, name in (("15e", "package"), ("15f", "monitor")):
        numbers = [each * 1e3 for each in seconds[name][1:]]
        figures.reach(goal, spread(numbers), note=f"least {min(numbers):.3g} ms")
    late = [each * 1e3 for each in seconds["late"][1:]]
    figures.tell(
        "import of TrainingMonitor, ms, where the standard library's usual modules are loaded",
        f"{spread(late)}, least {min(late):.3g}",
    )


def report_loops(figures: Figures, directory: Path, rounds: int) -> None:
    """Record the overhead in training loops; see `fit_costs` and `run_costs`."""
    run_module("fit_costs", directory, rounds)
    answer: Mapping[str, Seconds] = json.loads((directory / "answer.json").read_text())
    fit, loop = answer["lightning"], answer["loop"]
    run_module("run_costs", directory, rounds)
    run: Seconds = json.loads((directory / "observed.json").read_text())
    share = time_sample()
    for goal, ours, peer, more in (
        ("15g", fit["enabled"], fit["absent"], share),
        ("15h", fit["disabled"], fit["absent"], 0.0),
        ("15i", loop["watched"], loop["plain"], 0.0),
        ("15k", run["observed"], run["bare"], 0.0),
    ):
        ratios = [one / other for one, other in zip(ours, peer, strict=True)]
        low, middle, high = (number + more for number in median_interval(ratios))
        figures.reach(
            goal,
            Spread(low, middle, high),
            ours=f"{statistics.median(ours) * 1e3:.3f} ms",
            peer=f"{statistics.median(peer) * 1e3:.3f} ms",
            note=f"in brackets is the 95 % confidence interval of the median of {len(ratios)} pairs"
            + (f"; {more:.4f} of it is the look at the resources once a second" if more else ""),
        )

    hooks = [one / other for one, other in zip(fit["bare"], fit["absent"], strict=True)]
    figures.tell(
        "Lightning: with a callback that does nothing / without", str(median_interval(hooks))
    )


def time_sample() -> float:
    """Return the seconds that each read of the resources by the callback takes."""
    with tempfile.TemporaryDirectory() as directory:
        callback = ResourceMonitorCallback(timeseries_path=directory)
        seconds = []
        for _ in range(20):
            time.sleep(0.05)
            started_at = time.perf_counter()
            callback.get_gpu_metrics()
            callback.get_cpu_memory_metrics()
            callback.get_io_metrics()
            seconds.append(time.perf_counter() - started_at)
    return statistics.median(seconds)


def report_reading(figures: Figures, directory: Path, count: int) -> None:
    """Time the reading of ranks that perform steps meanwhile."""
    with rank_fleet(directory) as run_dir:
        plain = RunDirectory(run_dir)
        collector = TrainingCollector(TrainingSource(TrainingOptions(run_dir)))
        exposition = Exposition()

        def read_files() -> None:
            if len(plain.read(time.time()).files) != RANKS:
                raise AssertionError("a rank is missing")

        def make_page() -> int:
            reading = collector.read(time.monotonic() + 5)
            if len(reading.ranks) != RANKS:
                raise AssertionError("a rank is missing")
            return exposition.write(collector.express(reading)).count(b"\ntraining_")

        wait_for_ranks(plain)
        series = make_page()
        seconds = time_in_turn({"files": read_files, "page": make_page}, count)
        collector.close()
        plain.close()
    figures.reach(
        "15j",
        spread([each * 1e3 for each in seconds["files"]]),
        note=f"least {min(seconds['files']) * 1e3:.2f} ms; {RANKS} processes that step meanwhile",
    )
    figures.tell(
        f"{RANKS} ranks, read, judged and written as {series} series, ms",
        f"{spread([each * 1e3 for each in seconds['page']])}, least {min(seconds['page']) * 1e3:.2f}",
    )


def time_in_turn(calls: Mapping[str, Callable[[], object]], rounds: int) -> Seconds:
    """Return the seconds of each call, with the order reversed in every other round."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(2 + rounds):
        time.sleep(READING_GAP_SECONDS)
        for name in order:
            started_at = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - started_at)
        order.reverse()
    return {name: numbers[2:] for name, numbers in seconds.items()}


@contextmanager
def rank_fleet(directory: Path) -> Iterator[Path]:
    """Start 64 ranks and yield the directory of their run files; see `bench.rank_fleet`."""
    run_dir = directory / "fleet"
    command = [sys.executable, "-m", "bench.rank_fleet", str(run_dir), str(RANKS)]
    fleet = subprocess.Popen(command, env=settings_for({}), stdin=subprocess.PIPE)
    try:
        yield run_dir
    finally:
        fleet.communicate()


def wait_for_ranks(directory: RunDirectory) -> None:
    """Wait until each rank has a run file.

    Raises:
        RuntimeError: A run file is missing after the allowed time.
    """
    until = time.monotonic() + START_SECONDS
    while len(directory.read(time.time()).files) < RANKS:
        if time.monotonic() > until:
            raise RuntimeError(f"not all of {RANKS} ranks started")
        time.sleep(0.1)


def run_module(
    name: str, directory: Path, rounds: int, *, settings: Mapping[str, str] | None = None
) -> bytes:
    """Run a module of the benchmarks in a separate process and return its output."""
    command = [sys.executable, "-m", f"bench.{name}", str(directory), str(rounds)]
    answer = subprocess.run(
        command, env=settings_for(settings or {}), stdout=subprocess.PIPE, check=True
    )
    return answer.stdout


def settings_for(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment in which a process finds our sources and the benchmarks."""
    own = environment(None)
    return {**own, "PYTHONPATH": f"{own['PYTHONPATH']}{os.pathsep}{ROOT}", **settings}


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("training")
    figures = Figures("training", quick=quick)
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY, prefix="trainvitals-bench-") as name:
        directory = Path(name)
        report_steps(figures, measure_steps(directory, QUICK_STEP_ROUNDS if quick else STEP_ROUNDS))
        report_imports(figures, QUICK_IMPORTS if quick else IMPORTS)
        report_loops(figures, directory, QUICK_FIT_ROUNDS if quick else FIT_ROUNDS)
        report_reading(figures, directory, QUICK_READINGS if quick else READINGS)
    figures.write()


if __name__ == "__main__":
    main()
