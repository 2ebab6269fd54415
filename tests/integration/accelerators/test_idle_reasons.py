"""The reasons why fake GPUs of real processes idle, as real exporters report them.

One exporter at a time reads this machine's `/proc`. Another exporter reads a copy of `/proc` that
lacks a process, as in a container, and in which a process waits in a driver, which a test cannot
bring about.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess

GIB = 1 << 30
QUIET_SECONDS = 2.0
LOOKS = 6
THRESHOLDS = f"""
groups:
- name: thresholds
  rules:
  - {{record: 'threshold:accelerator_held_idle:reason_seconds', expr: vector({QUIET_SECONDS})}}
"""
FIRST = {
    "wait_for_named_pipe": "waits_for_data",
    "wait_for_feeder": "waits_for_data",
    "wait_for_network": "waits_for_data",
    "wait_for_file": "waits_for_data",
    "wait_for_reading_worker": "waits_for_data",
    "wait_for_receiving_workers": "waits_for_data",
    "stop": "stopped",
    "stop_in_debugger": "stopped",
    "sleep_in_loop": "sleeps",
    "wait_at_terminal": "sleeps",
    "wait_as_notebook": "sleeps",
    "compile_extension": "compiles",
    "end_unseen_by_parent": "ended",
    "wait_for_stopped_rank": "waits_for_rank",
}
# Situations that use a CPU come after the others, a few at a time, as they compete for the CPUs.
SECOND = {
    "wait_for_busy_workers": "waits_for_data",
    "compute": "computes_on_cpu",
    "compile_kernels": "compiles",
}
THIRD = {
    "compute_in_thread": "computes_on_cpu",
    "compile_with_torch": "compiles",
    "wait_for_computing_rank": "waits_for_rank",
}
# Situations of the copied `/proc`, each of a process that sleeps.
COPIED = {"in_driver": "blocked_in_driver", "in_container": "unseen", "killed": "ended"}
SITUATIONS = {**FIRST, **SECOND, **THIRD, **COPIED}


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, set[str]]]:
    """The idle reasons that the exporters report for each situation."""
    directory = tmp_path_factory.mktemp("idle")
    with ExitStack() as stack:
        yield {
            **watch(directory, FIRST),
            **watch(directory, SECOND),
            **watch(directory, THIRD),
            **watch_copy(directory, stack),
        }


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_reason_is_that_of_the_situation(reasons, situation):
    """The device of each situation has a single idle reason, the expected one."""
    assert reasons[situation] == {SITUATIONS[situation]}


class Watched:
    """A machine with a GPU for each situation, and the exporter that reads it."""

    def __init__(self, directory: Path, pids: Mapping[str, int], *arguments: str) -> None:
        directory.mkdir()
        self.machine = FakeMachine(directory, gpus=len(pids))
        for slot, pid in enumerate(pids.values()):
            self.machine.idle(slot)
            self.machine.processes(slot, [(pid, GIB)])
        (directory / "thresholds.yml").write_text(THRESHOLDS)
        thresholds = f"--thresholds.file={directory / 'thresholds.yml'}"
        self.exporter = ExporterProcess(directory, self.machine, arguments=(thresholds, *arguments))
        self.situations = tuple(pids)

    def look(self, then: Callable[[], None] = lambda: None) -> dict[str, set[str]]:
        """Return the reasons after the devices have idled for long enough.

        Args:
            then: A function to call after the first scrape.
        """
        with self.machine, self.exporter as exporter:
            for _ in range(LOOKS):
                page = exporter.scrape("accelerator")
                then()
                then = lambda: None  # noqa: E731 - it is called only once
                time.sleep(QUIET_SECONDS / 2)
        found: dict[str, set[str]] = {situation: set() for situation in self.situations}
        for each in page.find("accelerator_idle_reason"):
            found[self.situations[int(each.labels["device"])]].add(each.labels["reason"])
        return found


def start(directory: Path, stack: ExitStack, situation: str, name: str = "") -> int:
    """Start a situation, and return the PID of the process that holds the device."""
    folder = directory / (name or situation)
    folder.mkdir()
    command = [sys.executable, "-m", "tests.fakes.idling", situation, str(folder)]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    return int(process.stdout.readline())


def watch(directory: Path, situations: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the reasons that an exporter reports for situations that exist at the same time."""
    with ExitStack() as these:
        pids = {situation: start(directory, these, situation) for situation in situations}
        return Watched(directory / f"machine-{next(iter(pids))}", pids).look()


def watch_copy(directory: Path, stack: ExitStack) -> dict[str, set[str]]:
    """Return the reasons that an exporter reports from the copy of `/proc`."""
    pids = {situation: start(directory, stack, "sleep_in_loop", situation) for situation in COPIED}
    copy = directory / "proc"
    copy.mkdir()
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            (copy / path.name).symlink_to(path)
    (copy / str(pids["killed"])).symlink_to(f"/proc/{pids['killed']}")
    copy_in_driver(copy / str(pids["in_driver"]), pids["in_driver"])
    watched = Watched(directory / "machine-copy", pids, f"--path.procfs={copy}")
    return watched.look(then=lambda: os.kill(pids["killed"], signal.SIGKILL))


def copy_in_driver(folder: Path, pid: int) -> None:
    """Write a process's files in the copy of `/proc`, as if its thread waited in the driver."""
    thread = folder / "task" / str(pid)
    thread.mkdir(parents=True)
    stat = Path(f"/proc/{pid}/stat").read_text()
    head, _, rest = stat.rpartition(") ")
    for place in (folder, thread):
        (place / "stat").write_text(f"{head}) D{rest[1:]}")
        (place / "wchan").write_text("uvm_va_space_down_write")
    for name in ("cgroup", "io", "schedstat"):
        shutil.copy(f"/proc/{pid}/{name}", folder / name)
