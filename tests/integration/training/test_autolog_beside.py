"""`trainvitals run` beside compilers, copies, other injectors, ranks and faults."""

from __future__ import annotations

import os
import sys

import pytest

from tests.support.observed import HEAD, run, run_all
from trainvitals.runfile import STATE, STEP, State

pytestmark = pytest.mark.timeout(300)

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))

COUNTS = """
from torch._dynamo.utils import counters
print(dict(counters["stats"]), sum(counters["graph_break"].values()), dict(counters["recompiles"]))
"""
# Programs whose output is the same with and without the observation.
PROGRAMS = {
    "11: a model that is compiled": """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model = torch.compile(model, fullgraph=True, backend="eager")
for batch in load():
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
"""
    + COUNTS,
    "11: an optimizer that is compiled": """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
step = torch.compile(optimizer.step, backend="eager")
for batch in load():
    optimizer.zero_grad(); lose(batch).backward(); step()
"""
    + COUNTS,
    "11: a step that is compiled whole": """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
@torch.compile(backend="eager")
def step(batch):
    optimizer.zero_grad(); loss = lose(batch); loss.backward(); optimizer.step(); return loss
for batch in load(): step(batch)
"""
    + COUNTS,
    "23: copies and pickles": """
import copy, hashlib, inspect, io, pickle
optimizer, loader = torch.optim.Adam(model.parameters()), load()
for batch in loader:
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
def save(value):
    file = io.BytesIO(); torch.save(value, file); return file.getvalue()
for value in (model, optimizer, optimizer.state_dict(), loader, torch.save, torch.autograd.backward):
    print(hashlib.sha256(save(value)).hexdigest())
    # A pickled storage contains addresses.
    for data in (pickle.dumps(value), pickle.dumps(copy.deepcopy(value))):
        print(b"trainvitals" in data, type(pickle.loads(data)))
for function in (torch.save, torch.Tensor.backward, torch.nn.Module.train):
    print(function.__qualname__, inspect.signature(function))
""",
}
COMPILED_STEPS = {"11: an optimizer that is compiled", "11: a step that is compiled whole"}


def test_a_program_gives_what_it_gives_without(tmp_path_factory):
    """The graphs, graph breaks, recompiles and saved bytes equal those without the observation."""
    with_it, without = (
        run_all(
            tmp_path_factory.mktemp("beside"), PROGRAMS, environ={"TRAINVITALS_AUTOLOG": switch}
        )
        for switch in ("1", "0")
    )
    for name in PROGRAMS:
        one, other = with_it[0][name], without[0][name]
        assert one.code == 0, (name, with_it[1])
        assert (one.code, one.output) == (other.code, other.output), name
        assert len(other.records) == 0, name
        # A compiled step calls no hook; it ends when the next step discards the gradients.
        assert one.step("steps") == (6 if name in COMPILED_STEPS else 8), name


RESTARTED = (
    HEAD
    + """
import os, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in load():
        optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
    if attempt == "0":
        if rank == "1": raise KeyError("layer")
        time.sleep(60)
main()
"""
)


def test_a_rank_that_fails_and_its_restart_are_told_apart(tmp_path):
    """A failed rank and its restart are separate attempts, and torchrun's agent is not a rank."""
    script = tmp_path / "train.py"
    script.write_text(RESTARTED, encoding="utf-8")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = ("--", sys.executable, *launcher, "--max-restarts=1", script)
    done, records = run(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    found = {(each.identity.attempt, each.identity.rank): each for each in records}
    assert sorted(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    # The agent may end rank 0 of the first attempt at any step.
    assert {each.step[STEP["steps"]] for key, each in found.items() if key != (0, 0)} == {8}
    states = {key: State(each.state[STATE["state"]]) for key, each in found.items()}
    assert states[0, 1] == State.FAILED
    assert found[0, 1].last_words == "KeyError"
    assert {states[1, 0], states[1, 1]} <= {State.FINISHED, State.ENDED}


# Runs the next `sitecustomize` on the path, as ddtrace does.
OTHER_INJECTOR = """
import os, sys
here, before = os.path.dirname(os.path.abspath(__file__)), list(sys.path)
sys.seen = getattr(sys, "seen", "") + os.path.basename(here) + " "
sys.path[:] = [part for part in sys.path if os.path.abspath(part or ".") != here]
mine = sys.modules.pop("sitecustomize")
try: import sitecustomize
except ImportError: sys.modules["sitecustomize"] = mine
sys.path[:] = before
"""


def test_other_injectors_and_threads_that_import_at_once(tmp_path):
    """Each other `sitecustomize` runs once, and parallel imports of PyTorch do not deadlock."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(OTHER_INJECTOR, encoding="utf-8")
    path = os.pathsep.join(str(tmp_path / name) for name in ("one", "two"))
    body = """
import sys, threading
threads = [threading.Thread(target=__import__, args=("torch",)) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sys.seen)
"""
    script = tmp_path / "train.py"
    loop = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nfor batch in load():\n"
    step = "    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()\n"
    script.write_text(body + HEAD + loop + step, encoding="utf-8")
    command = ("--", sys.executable, script)
    done, (record,) = run(tmp_path, *command, environ={"PYTHONPATH": path}, timeout=240)
    assert (done.returncode, done.stdout) == (0, "one two \n")
    assert record.step[STEP["steps"]] == 8


def test_a_run_directory_that_cannot_be_used_stops_nothing(tmp_path):
    """A program runs unchanged and makes no run file if the run directory cannot be used."""
    runs = tmp_path / "runs"
    runs.write_text("a file")
    script = tmp_path / "train.py"
    loop = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nfor batch in load():\n"
    step = "    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()\n"
    script.write_text(HEAD + loop + step + "print(7)", encoding="utf-8")
    done, records = run(tmp_path, "--", sys.executable, script, runs=runs)
    assert (done.returncode, done.stdout, records) == (0, "7\n", [])


JUMPS = (
    """
import time
clock, ahead = time.time, 0.0
time.time = lambda: clock() + ahead
"""
    + HEAD
    + """
began = time.monotonic()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number, batch in enumerate(load()):
    ahead = {3: 86400.0, 5: -86400.0}.get(number, ahead)
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
    time.sleep(0.05)
print(time.monotonic() - began)
"""
)


def test_a_clock_that_jumps_changes_no_duration(tmp_path):
    """A wall clock that jumps a day forward and two days back does not change the train time."""
    script = tmp_path / "train.py"
    script.write_text(JUMPS, encoding="utf-8")
    done, (record,) = run(tmp_path, "--", sys.executable, script)
    words = {name: record.step[at] for name, at in STEP.items()}
    assert (done.returncode, words["steps"]) == (0, 8)
    assert 0.25 <= words["train_seconds"] <= float(done.stdout)
    assert State(record.state[STATE["state"]]) in {State.FINISHED, State.ENDED}


# A substitute for JAX, whose compiled steps call no Python code.
JAX = """
def jit(function): return function
"""
OF_JAX = """
import jax
@jax.jit
def step(weights, batch): return weights - 0.1 * batch
weights = 1.0
for number in range(50): weights = step(weights, number)
print(7)
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import json; print(json.dumps(7))", "which did not prove to train"),
        (
            OF_JAX,
            "which did not prove to train; 1 process imported JAX, whose steps cannot be seen",
        ),
    ],
)
def test_a_program_without_pytorch_is_honestly_unknown(tmp_path, body, said):
    """A program without PyTorch is reported as a process that did not prove to train."""
    script = tmp_path / "train.py"
    script.write_text(body, encoding="utf-8")
    (tmp_path / "jax.py").write_text(JAX, encoding="utf-8")
    done, records = run(tmp_path, "--", sys.executable, script)
    assert (done.returncode, done.stdout, records) == (0, "7\n", [])
    assert done.stderr == f"trainvitals: 1 process, {said}\n"


def test_a_program_that_imports_jax_beside_its_training_is_not_named(tmp_path):
    """A program that imports JAX but trains with PyTorch is not named, as its steps are seen."""
    (tmp_path / "jax.py").write_text(JAX, encoding="utf-8")
    script = tmp_path / "train.py"
    loop = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nfor batch in load():\n"
    step = "    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()\n"
    script.write_text("import jax\n" + HEAD + loop + step, encoding="utf-8")
    done, (record,) = run(tmp_path, "--", sys.executable, script)
    assert (record.step[STEP["steps"]], "JAX" in done.stderr) == (8, False)


SPAWNED = (
    HEAD
    + """
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__(); self.inner = torch.nn.Linear(8, 1)
    def training_step(self, batch, _):
        return self.inner(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
if __name__ == "__main__":
    pl.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp_spawn", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(Net(), load())
"""
)


@pytest.mark.skipif(not LONG, reason="two ranks that import Lightning take a minute")
def test_ranks_that_lightning_spawns_report_each(tmp_path):
    """Ranks that Lightning spawns report their own steps, each through one callback."""
    script = tmp_path / "train.py"
    script.write_text(SPAWNED, encoding="utf-8")
    done, records = run(tmp_path, "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    assert sorted((each.identity.rank, each.step[STEP["steps"]]) for each in records) == [
        (0, 4),
        (1, 4),
    ]
