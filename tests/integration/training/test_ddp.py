"""Four ranks under torchrun, and the metrics that a real exporter serves of them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.exporter_process import ExporterProcess
from tests.support.run_files import decode
from tests.support.waiting import wait_until
from trainvitals.runfile import STATE, STEP

ROOT = Path(__file__).parents[3]
FAKES = Path(__file__).parents[2] / "fakes"
RANKS = {"0", "1", "2", "3"}
START_SECONDS = 90.0


@pytest.fixture
def run_dir():
    """Yield a run directory in memory, so that every step is written at once."""
    memory = Path("/dev/shm")
    directory = tempfile.mkdtemp(prefix="trainvitals-", dir=memory if memory.is_dir() else None)
    yield Path(directory)
    shutil.rmtree(directory)


class Launched:
    """A command in a session of its own; all processes of the session are killed at the end.

    Args:
        directory: The directory of the log.
        run_dir: The run directory.
        command: The arguments of Python.
    """

    def __init__(self, directory, run_dir, *command):
        self.log = directory / "launched.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "exporter"),
                    "OMP_NUM_THREADS": "1",
                    "TRAINVITALS_RUN_DIR": str(run_dir),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        session = self.process.pid
        for pid in psutil.pids():
            with suppress(ProcessLookupError):
                if os.getsid(pid) == session:
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, text):
        """Wait until the command has printed a text."""

        def read():
            return self.log.read_text(errors="replace")

        wait_until(
            lambda: text in read() or self.process.poll() is not None, START_SECONDS, describe=read
        )
        assert text in read()


def ranks_of(page, name, value):
    """Return the ranks for which a metric has a value."""
    return {rank for rank, found in page.values(name, "rank", run="ddp").items() if found == value}


def is_slow_alone(page):
    """Return whether only rank 3 is a straggler, and the other ranks are about equally fast."""
    slowdown = page.values("training_rank_slowdown_ratio", "rank", phase="data_wait")
    return (
        ranks_of(page, "training_rank_straggler", 1) == {"3"}
        and slowdown["3"] > 3
        and max(slowdown[rank] for rank in RANKS - {"3"}) < 1.33
    )


def test_four_ranks_from_start_to_restart(tmp_path, run_dir):
    """All ranks, the straggler, the killed rank and the 30 steps lost by a restart are reported."""
    torchrun = (
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "--max-restarts=1",
        "--monitor-interval=0.2", FAKES / "ddp_training.py", tmp_path,
    )  # fmt: skip
    with (
        ExporterProcess(tmp_path, environ={"TRAINVITALS_RUN_DIR": str(run_dir)}) as exporter,
        Launched(tmp_path, run_dir, *torchrun) as launched,
    ):
        page = exporter.scrape_until(
            lambda page: ranks_of(page, "training_process_up", 1) == RANKS,
            "training",
            seconds=START_SECONDS,
        )
        assert page.value("training_world_size", run="ddp") == 4
        assert page.value("training_ranks_seen", run="ddp") == 4
        hosts = {sample.labels["host_pid"] for sample in page.find("training_rank_info")}
        children = {str(child.pid) for child in psutil.Process(launched.process.pid).children()}
        assert hosts == children

        page = exporter.scrape_until(is_slow_alone, "training", seconds=START_SECONDS)

        (tmp_path / "die").touch()
        page = exporter.scrape_until(
            lambda page: "1" in ranks_of(page, "training_process_up", 0), "training"
        )
        ended = page.values("training_process_exits_total", "reason", run="ddp")
        assert ended["signal"] + ended["unknown"] >= 1  # the exit reason may be unknown
        assert ended["oom"] == 0

        page = exporter.scrape_until(
            lambda page: page.value("training_lost_steps_total", run="ddp") not in (None, 0),
            "training",
            seconds=START_SECONDS,
        )
        assert page.value("training_lost_steps_total", run="ddp") == 30
        assert page.value("training_restarts_total", run="ddp") == 1
        assert page.value("training_lost_seconds_total", run="ddp") > 30 * 0.04
        assert launched.process.wait(60) == 0

        page = exporter.scrape_until(
            lambda page: page.value("training_ranks_seen", run="ddp") == 0, "training"
        )
        ended = page.values("training_process_exits_total", "reason", run="ddp")
        assert ended["finished"] == 4
        assert sum(ended.values()) == 8


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_of_a_data_loader_make_no_run_files(tmp_path, run_dir, start_method):
    """Data loader workers make no run file, and their calls of the monitor do not count."""
    stop = tmp_path / "stop"
    script = FAKES / "loader_training.py"
    with Launched(tmp_path, run_dir, script, start_method, stop) as launched:
        launched.wait_for("loaded")
        assert len(psutil.Process(launched.process.pid).children(recursive=True)) >= 2
        (path,) = run_dir.iterdir()
        stop.touch()
        assert launched.process.wait(30) == 0
        assert list(run_dir.iterdir()) == [path]
    record = decode(path.read_bytes())
    assert record.identity.pid == launched.process.pid
    assert record.step[STEP["samples"]] == 8
    assert record.step[STEP["steps"]] == 4
    assert record.state[STATE["data_errors"]] == 0
