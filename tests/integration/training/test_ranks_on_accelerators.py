"""The exporter joins a rank with its process and the accelerators that the process uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess, Page
from tests.support.trainers import Loop

GIB = 1 << 30
RUN = {"run": "instrumented", "rank": "0"}
# The test's own directory would be shared by all mount namespaces, so /dev/shm is used.
HIDDEN_RUNS = Path(f"/dev/shm/trainvitals-test-join-{os.getpid()}")
CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
OWN_SHM = ("sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """Start a fake machine with eight GPUs of different UUIDs."""
    with FakeMachine(tmp_path, gpus=8) as machine:
        for slot in range(8):
            machine.gpu(slot).uuid = f"GPU-0000000{slot}"
        yield machine


def scrape(exporter: ExporterProcess, **labels: str) -> Page:
    """Scrape until the rank has these labels."""
    return exporter.scrape_until(
        lambda page: page.value("training_rank_info", **RUN, **labels) == 1,
        "training",
        "accelerator",
    )


def test_a_rank_is_joined_with_the_accelerators_that_its_process_computes_on(
    tmp_path: Path, machine: FakeMachine
):
    """The label `gpu_uuid` of a rank follows the driver's list of processes."""
    runs = tmp_path / "runs"
    with Loop(runs) as loop, ExporterProcess(tmp_path, machine) as exporter:
        pid = loop.process.pid
        scrape(exporter, host_pid=str(pid), gpu_uuid="")
        machine.processes(2, [(1, GIB), (pid, 4 * GIB)])
        machine.processes(5, [(1, GIB)])
        page = scrape(exporter, host_pid=str(pid), gpu_uuid="GPU-00000002")
        assert len(page.find("training_rank_info")) == 1
        assert page.value("accelerator_processes", uuid="GPU-00000002") == 2
        machine.processes(5, [(pid, GIB)])
        scrape(exporter, gpu_uuid="GPU-00000002,GPU-00000005")
        machine.processes(2, [])
        scrape(exporter, gpu_uuid="GPU-00000005")
        machine.unload_driver()
        scrape(exporter, gpu_uuid="GPU-00000005")


@pytest.fixture(params=[(), ("--map-root-user",)], ids=["as root", "in a user namespace"])
def container(request: pytest.FixtureRequest) -> Iterator[Sequence[str]]:
    """Yield a command prefix that runs a program in its own PID namespace with its own /dev/shm."""
    wrapper = (*CONTAINER, *request.param, *OWN_SHM)
    tried = subprocess.run([*wrapper, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs the permission to make namespaces: {tried.stderr.strip()}")
    yield wrapper
    shutil.rmtree(HIDDEN_RUNS, ignore_errors=True)


def test_a_rank_in_a_container_that_shares_nothing_is_joined_by_its_host_pid(
    tmp_path: Path, machine: FakeMachine, container: Sequence[str]
):
    """A rank in a container is joined by its PID on the host, which the driver lists."""
    arguments = (f"--run-dir={HIDDEN_RUNS}",)
    with Loop(HIDDEN_RUNS, wrapper=container) as loop:
        (inside,) = psutil.Process(loop.process.pid).children()
        machine.processes(2, [(inside.pid, 4 * GIB)])
        machine.processes(7, [(1, GIB)])
        assert not HIDDEN_RUNS.exists()
        assert f"NSpid:\t{inside.pid}\t1\n" in Path(f"/proc/{inside.pid}/status").read_text()
        with ExporterProcess(tmp_path, machine, arguments=arguments) as exporter:
            page = scrape(exporter, host_pid=str(inside.pid), gpu_uuid="GPU-00000002")
            assert page.value("training_process_up", **RUN) == 1
            assert page.value("training_stalled", **RUN) == 0
            before = page.value("training_samples_total", **RUN)
            assert before is not None
            page = exporter.scrape_until(
                lambda page: (page.value("training_samples_total", **RUN) or 0) > before, "training"
            )
            assert page.value("training_tokens_total", **RUN) == 128 * (
                page.value("training_samples_total", **RUN) or 0
            )
            inside.kill()
            loop.process.wait()
            page = exporter.scrape_until(
                lambda page: page.value("training_process_up", **RUN) == 0, "training"
            )
            assert page.value("training_rank_info", gpu_uuid="GPU-00000002", **RUN) == 1
    assert not HIDDEN_RUNS.exists()
