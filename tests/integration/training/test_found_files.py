"""Runs of processes on accelerators that only write files and are found without a flag."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess
from tests.support.prometheus_process import PrometheusProcess
from tests.support.trainers import Loop
from tests.support.waiting import wait_until

GIB = 1 << 30
INFO = "training_run_info"
TABLE = """
import pathlib, time
folder = pathlib.Path("lightning_logs/version_0")
folder.mkdir(parents=True)
with (folder / "metrics.csv").open("w") as file:
    file.write("epoch,step,train_loss,val_loss\\n0,10,0.5,\\n0,20,,0.75\\n")
time.sleep(600)
"""
PRINTED = """
import time
print("Epoch 3: val_loss: 0.25 | val_iou: 0.5", flush=True)
time.sleep(600)
"""
CHATTER = """
import time
for _ in range(30):
    print("still here", flush=True)
time.sleep(600)
"""


@contextmanager
def script(folder: Path, text: str, output: str = "output.txt") -> Iterator[int]:
    """Run a script in a working folder with redirected output, and yield its PID."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / output).open("w", encoding="utf-8") as file:
        child = subprocess.Popen([sys.executable, "-c", text], cwd=folder, stdout=file)
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """Start a fake machine with two GPUs."""
    with FakeMachine(tmp_path, gpus=2) as machine:
        yield machine


def wait_for_files(folder: Path, names: Sequence[str]) -> None:
    """Wait until the files of a process are not empty."""
    paths = [folder / name for name in names]
    wait_until(lambda: all(path.exists() and path.stat().st_size for path in paths))


def test_a_process_that_only_writes_a_table_is_a_run(tmp_path: Path, machine: FakeMachine):
    """Runs are found from the open files and the working folders of GPU processes."""
    work = tmp_path / "resnet"
    with script(work, TABLE) as pid, script(tmp_path / "unet", PRINTED) as other:
        wait_for_files(work, ["lightning_logs/version_0/metrics.csv"])
        wait_for_files(tmp_path / "unet", ["output.txt"])
        machine.processes(0, [(pid, GIB)])
        machine.processes(1, [(other, GIB)])
        with ExporterProcess(tmp_path, machine) as exporter:
            run = {"run": "resnet/lightning_logs/version_0", "rank": "0"}
            printed = {"run": "unet/output", "rank": "0"}
            page = exporter.scrape_until(
                lambda page: (
                    page.value("training_loss", **run) == 0.5
                    and page.value("validation_loss", **printed) == 0.25
                ),
                "training",
                "accelerator",
            )
            assert page.value("training_global_step", **run) == 20
            assert page.value("validation_loss", **run) == 0.75
            assert len(page.find(INFO)) == 2
            assert page.value("training_followed_files", state="understood") == 2
            assert page.value("training_followed_files", state="not_understood") == 0


def test_a_file_that_is_not_understood_is_told(tmp_path: Path, machine: FakeMachine):
    """A file that is not understood and a glob without matches are counted in metrics."""
    with script(tmp_path / "work", CHATTER) as pid:
        wait_for_files(tmp_path / "work", ["output.txt"])
        machine.processes(0, [(pid, GIB)])
        arguments = (f"--trainlog.glob={tmp_path}/nowhere/*.log",)
        with ExporterProcess(tmp_path, machine, arguments=arguments) as exporter:
            page = exporter.scrape_until(
                lambda page: page.value("training_followed_files", state="not_understood") == 1,
                "training",
                "accelerator",
            )
            assert page.value("training_file_globs_unmatched") == 1
            assert page.value("trainvitals_collector_success", collector="training") == 1
            assert not page.find(INFO)


def test_a_process_with_a_run_file_is_one_run(tmp_path: Path, machine: FakeMachine):
    """A process with a run file is one run; `--trainlog.follow=none` disables the search."""
    with Loop(tmp_path / "runs") as loop, script(tmp_path / "work", TABLE) as pid:
        wait_for_files(tmp_path / "work", ["lightning_logs/version_0/metrics.csv"])
        machine.processes(0, [(loop.process.pid, GIB), (pid, GIB)])
        with ExporterProcess(tmp_path, machine) as exporter:
            page = exporter.scrape_until(
                lambda page: len(page.find(INFO)) == 2, "training", "accelerator"
            )
            assert page.values(INFO, "source") == {"client": 1, "csv": 1}
        with ExporterProcess(tmp_path, machine, arguments=("--trainlog.follow=none",)) as exporter:
            for _ in range(3):
                page = exporter.scrape("training", "accelerator")
            assert page.values(INFO, "source") == {"client": 1}


def test_prometheus_sees_a_run_that_nobody_named(
    tmp_path: Path, machine: FakeMachine, prometheus: Path
):
    """Prometheus has the loss and the source of a run that was found without a flag."""
    with script(tmp_path / "resnet", TABLE) as pid:
        wait_for_files(tmp_path / "resnet", ["lightning_logs/version_0/metrics.csv"])
        machine.processes(0, [(pid, GIB)])
        with (
            ExporterProcess(tmp_path, machine) as exporter,
            PrometheusProcess(
                prometheus, tmp_path / "prometheus", exporter.port, interval="2s"
            ) as server,
        ):
            server.wait_until_it_scrapes()
            joined = f'training_loss * on(run) group_left(source) {INFO}{{source="csv"}}'
            wait_until(
                lambda: bool(server.ask(joined)),
                60.0,
                describe=lambda: (exporter.scrape("training", "accelerator").text, exporter.log),
            )
            ((labels, value),) = server.ask(joined)
            assert (labels["run"], value) == ("resnet/lightning_logs/version_0", 0.5)
