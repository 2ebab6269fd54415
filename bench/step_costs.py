"""The time to record a training step in the training process, compared with two other recorders.

Run by `training_bench` in a separate process, because prometheus_client decides at its import,
by PROMETHEUS_MULTIPROC_DIR, whether it writes for several processes. Prints JSON: the seconds per
step for each recorder, one number per block of steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from prometheus_client import Counter, Gauge, Histogram

from trainvitals import TrainingMonitor
from trainvitals.runfile import BUCKET_BOUNDS

STEPS = 50  # in a block
PHASES = ("forward", "backward", "optimizer")
NEVER = 1e9
_CODES = {phase: number for number, phase in enumerate((*PHASES, "data_wait"))}
VALUES = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}


class Marks:
    """A minimal timer of the phases of a step."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.began = self.now
        self.phase = "data_wait"
        self.seconds = dict.fromkeys((*PHASES, "data_wait"), 0.0)

    def mark(self, phase: str) -> None:
        """Begin a phase."""
        now = time.monotonic()
        self.seconds[self.phase] += now - self.now
        self.phase, self.now = phase, now

    def end_step(self) -> float:
        """Begin to wait for data and return the seconds of the step."""
        self.mark("data_wait")
        seconds, self.began = self.now - self.began, self.now
        return seconds


class JSONFile:
    """A recorder that writes the numbers of a step as JSON to a new file and renames it.

    Args:
        directory: The directory of the file.
    """

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "rank0.json")
        self._marks = Marks()
        self.mark = self._marks.mark
        self._steps = self._samples = self._tokens = 0
        self._train_seconds = 0.0

    def update_batch(self, batch_size: int, sequence_length: int, *, loss: float) -> None:
        """End a step and write its numbers."""
        seconds = self._marks.end_step()
        self._steps += 1
        self._samples += batch_size
        self._tokens += batch_size * sequence_length
        self._train_seconds += seconds
        document = {
            "time": time.time(),
            "phase": self._marks.phase,
            "steps": self._steps,
            "global_step": self._steps,
            "epoch_step": self._steps,
            "samples": self._samples,
            "tokens": self._tokens,
            "loss": loss,
            "step_seconds": seconds,
            "train_seconds": self._train_seconds,
            "phase_seconds": self._marks.seconds,
        }
        hidden = self._path + ".tmp"
        with open(hidden, "w", encoding="utf-8") as file:  # noqa: PTH123 - the quickest way, as below
            json.dump(document, file)
        os.rename(hidden, self._path)  # noqa: PTH104


class Multiprocess:
    """A recorder that sets the numbers of a step with prometheus_client in multiprocess mode.

    The numbers are those that trainvitals records of a step. The labelled metrics are looked up
    once, not in each step.
    """

    def __init__(self) -> None:
        names = ("run", "rank")
        who = ("bench", "0")
        self._marks = Marks()
        phases = Counter("bench_phase_seconds", "Seconds.", (*names, "phase"))
        self._phases = {phase: phases.labels(*who, phase) for phase in (*PHASES, "data_wait")}
        self._steps, self._samples, self._tokens = (
            Counter(f"bench_{name}", "Sum.", names).labels(*who)
            for name in ("steps", "samples", "tokens")
        )
        self._loss, self._step_seconds, self._global_step, self._epoch_step, self._progress = (
            Gauge(f"bench_{name}", "Last.", names).labels(*who)
            for name in ("loss", "step_seconds", "global_step", "epoch_step", "progress_seconds")
        )
        self._phase = Gauge("bench_phase", "The phase's number.", names).labels(*who)
        self._done = 0
        self._durations = Histogram(
            "bench_step_duration_seconds", "Durations.", names, buckets=BUCKET_BOUNDS
        ).labels(*who)

    def mark(self, phase: str) -> None:
        """Begin a phase."""
        marks = self._marks
        before, since = marks.phase, marks.now
        marks.mark(phase)
        self._phases[before].inc(marks.now - since)
        self._phase.set(_CODES[phase])

    def update_batch(self, batch_size: int, sequence_length: int, *, loss: float) -> None:
        """End a step and set its numbers."""
        marks = self._marks
        before, since = marks.phase, marks.now
        seconds = marks.end_step()
        self._phases[before].inc(marks.now - since)
        self._phase.set(_CODES["data_wait"])
        self._steps.inc()
        self._samples.inc(batch_size)
        self._tokens.inc(batch_size * sequence_length)
        self._loss.set(loss)
        self._step_seconds.set(seconds)
        self._done += 1
        self._global_step.set(self._done)
        self._epoch_step.set(self._done)
        self._progress.set(time.time())
        self._durations.observe(seconds)


class Recorder(Protocol):
    """The interface that a training loop calls."""

    def mark(self, phase: str) -> None:
        """Begin a phase."""

    def update_batch(self, batch_size: int, sequence_length: int, *, loss: float) -> None:
        """End a step."""


class Nothing:
    """A recorder that does nothing and shows how long the calls themselves take."""

    def mark(self, phase: str) -> None:
        """Begin a phase."""

    def update_batch(self, batch_size: int, sequence_length: int, *, loss: float) -> None:
        """End a step."""


def time_step(recorder: Recorder) -> float:
    """Return the mean seconds per step of one block."""
    mark, update_batch = recorder.mark, recorder.update_batch
    started_at = time.perf_counter()
    for _ in range(STEPS):
        mark("forward")
        mark("backward")
        mark("optimizer")
        update_batch(32, 512, loss=1.25)
    return (time.perf_counter() - started_at) / STEPS


def time_call(call: Callable[[], object]) -> float:
    """Return the mean seconds per call of one block."""
    started_at = time.perf_counter()
    for _ in range(STEPS):
        call()
    return (time.perf_counter() - started_at) / STEPS


def list_subjects(directory: Path) -> Mapping[str, Callable[[], float]]:
    """Return the timed functions by name; each returns the seconds per step or call."""

    def start(name: str, publish_seconds: float | None) -> TrainingMonitor:
        monitor = TrainingMonitor(name, rank=0, run_dir=directory, publish_seconds=publish_seconds)
        if monitor.path is None:
            raise AssertionError("there is no run file")
        monitor.start_epoch()
        monitor.mark("data_wait")
        return monitor

    every, throttled, seldom, loaded, logged = (
        start(name, seconds)
        for name, seconds in (
            ("every", 0.0),
            ("default", None),
            ("seldom", NEVER),
            ("loaded", NEVER),
            ("logged", 0.0),
        )
    )
    mark, watched, plain = seldom.mark, loaded.batches(iter(int, 1)), iter(int, 1)
    recorders = {
        "ours": every,
        "json": JSONFile(directory),
        "multiprocess": Multiprocess(),
        "default": throttled,
        "seldom": seldom,
        "nothing": Nothing(),
    }
    return {
        **{name: partial(time_step, recorder) for name, recorder in recorders.items()},
        "mark": lambda: time_call(lambda: mark("forward")),
        "batches": lambda: time_call(lambda: next(watched)),
        "no batches": lambda: time_call(lambda: next(plain)),
        "log": lambda: time_call(lambda: logged.log(VALUES)),
        "call": lambda: time_call(lambda: None),
    }


def main() -> None:
    """Time all recorders in turn, with the order reversed in every other round."""
    directory, rounds = Path(sys.argv[1]), int(sys.argv[2])
    subjects = list_subjects(directory)
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    order = list(subjects)
    for _ in range(rounds):
        for name in order:
            seconds[name].append(subjects[name]())
        order.reverse()
    json.dump({name: numbers[2:] for name, numbers in seconds.items()}, sys.stdout)


if __name__ == "__main__":
    main()
