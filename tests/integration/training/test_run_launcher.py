"""PyTorch launchers under `trainvitals run`, and the endings of their ranks, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_files import decode
from tests.unit.sources.runs.trainer import kernel_tells_exits
from trainvitals.sources.runs.endings import read_ending

pytest.importorskip("torch")
# Importing PyTorch takes seconds if the machine is busy.
pytestmark = pytest.mark.timeout(240)

RUN = (sys.executable, "-m", "trainvitals", "run")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RANK = """
import os, signal, time, torch
from torch.utils.data import DataLoader, TensorDataset
def train(rank, *, end):
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4):
        optimizer.zero_grad(); model(batch[0]).square().mean().backward(); optimizer.step()
    open(f"ready.{rank}", "w").close()
    while not os.path.exists("ready.0") or not os.path.exists("ready.1"): time.sleep(0.05)
    time.sleep(1)  # one look of the launcher
    if rank == 1: end()
    time.sleep(600)
def fail(): raise ValueError("the text of rank 1")
def die(): os.kill(os.getpid(), signal.SIGKILL)
"""
ELASTIC = 'train(int(os.environ["RANK"]), end={})\n'
RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record
record(lambda: train(int(os.environ["RANK"]), end=fail))()
"""
SPAWN = """
if __name__ == "__main__":
    from functools import partial
    torch.multiprocessing.spawn(partial(train, end=fail), nprocs=2)
"""
FORK_SERVER = """
if __name__ == "__main__":
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ranks = [context.Process(target=train, args=(rank,), kwargs={"end": die}) for rank in (0, 1)]
    for rank in ranks: rank.start()
    ranks[1].join()
    ranks[0].terminate()
    ranks[0].join()
"""


CELLS = (
    "import torch\nfrom torch.utils.data import DataLoader, TensorDataset",
    """
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4):
    optimizer.zero_grad(); model(batch[0]).square().mean().backward(); optimizer.step()
""",
    "def restore(state):\n    raise LookupError('no shard')\n\nrestore({})",
)


def launch(
    tmp_path: Path, body: str, *command: str, script: str = "train.py"
) -> subprocess.CompletedProcess[str]:
    """Run a program under `trainvitals run`."""
    (tmp_path / script).write_text(body, encoding="utf-8")
    return subprocess.run(
        (*RUN, "--name", "r", "--run-dir", "runs", "--", *command, script),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )


def read_ends(tmp_path: Path) -> dict[tuple[int, int], tuple[object, ...]]:
    """Return the ending of each rank of each attempt."""
    found = {}
    for path in (tmp_path / "runs").glob("*.tv"):
        identity, note = decode(path.read_bytes()).identity, read_ending(path)
        assert identity is not None
        end = None if note is None else (note.reason, note.signal, note.exception)
        found[identity.rank, identity.attempt] = end
    return found


def read_error(tmp_path: Path) -> str:
    """Return the traceback in the launch note."""
    [path] = (tmp_path / "runs").glob("*.launch")
    error: str = json.loads(path.read_text())["error"]
    return error


@pytest.mark.parametrize("body", [ELASTIC.format("fail"), RECORDED])
def test_the_failing_rank_of_torchrun_is_the_cause(tmp_path, body):
    """The exception of a rank under torchrun is recorded, with and without `@record`."""
    done = launch(tmp_path, RANK + body, *TORCHRUN)
    assert done.returncode == 1
    assert "2 of which reported run r" in done.stderr
    ends = read_ends(tmp_path)
    assert ends[1, 0] == ("exception", None, "ValueError")
    assert ends[0, 0] == ("signal", 15, None)
    assert read_error(tmp_path).rstrip().endswith("ValueError: the text of rank 1")


def test_a_restart_of_torchrun_is_an_attempt(tmp_path):
    """After a restart by torchrun, each attempt has its own ranks and endings."""
    launch(tmp_path, RANK + ELASTIC.format("fail"), *TORCHRUN, "--max-restarts", "1")
    assert sorted(read_ends(tmp_path)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert read_ends(tmp_path)[1, 1] == ("exception", None, "ValueError")


def test_a_rank_of_torchrun_that_is_killed_is_noted(tmp_path):
    """The signal that killed a rank is recorded if the kernel reports it after torchrun's wait."""
    done = launch(tmp_path, RANK + ELASTIC.format("die"), *TORCHRUN)
    assert done.returncode == 1
    expected = ("signal", 9, None)
    # Before Linux 6.15, the launcher must read the ending before the parent waits for the process.
    known = {expected} if kernel_tells_exits() else {expected, None}
    assert read_ends(tmp_path)[1, 0] in known


def test_the_failing_rank_of_spawn_is_the_cause(tmp_path):
    """The exception of a rank is recorded although `torch.multiprocessing.spawn` handles it."""
    done = launch(tmp_path, RANK + SPAWN, sys.executable)
    assert done.returncode == 1
    notes = [read_ending(path) for path in (tmp_path / "runs").glob("*.tv")]
    ends = sorted((note.reason, note.exception or "") for note in notes if note)
    assert ends == [("exception", "ValueError"), ("signal", "")]
    assert "ValueError: the text of rank 1" in read_error(tmp_path)


@pytest.mark.parametrize("preloaded", [[], ["torch"]])
def test_ranks_of_a_fork_server_report_each(tmp_path, preloaded):
    """From Python 3.14 on, `multiprocessing` starts processes through a fork server on Linux."""
    done = launch(tmp_path, RANK + FORK_SERVER.replace("PRELOADED", str(preloaded)), sys.executable)
    assert done.returncode == 0
    assert "2 of which reported run r" in done.stderr


@pytest.mark.parametrize("cells", [CELLS, CELLS[2:]], ids=["after training", "before training"])
def test_the_failing_cell_of_a_notebook_is_the_cause(tmp_path, cells):
    """The exception of a notebook cell is the reported cause although IPython handles it."""
    notebook: dict[str, object] = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    notebook["cells"] = [
        {"cell_type": "code", "id": f"c{number}", "source": text}
        | {"execution_count": None, "metadata": {}, "outputs": []}
        for number, text in enumerate(cells)
    ]
    command = (sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook")
    done = launch(tmp_path, json.dumps(notebook), *command, script="train.ipynb")
    assert done.returncode == 1
    found = subprocess.run(
        (*RUN[:-1], "diagnose", "--json", "--run-dir", "runs", "--engine", "none", "r"),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    said = json.loads(found.stdout)
    assert said["reason"] == "exception"
    assert "`LookupError: no shard`, raised at cell In[" in said["summary"]
