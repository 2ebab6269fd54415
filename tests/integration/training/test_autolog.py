"""Training programs without instrumentation under `trainvitals run`, with PyTorch on the CPU."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.observed import HEAD, run, run_all
from trainvitals.runfile import STATE, STEP, State

# Importing PyTorch takes seconds if the machine is busy.
pytestmark = pytest.mark.timeout(240)

LOOPS = {
    "a plain loop": (
        """
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    for batch in load():
        optimizer.zero_grad(); loss = lose(batch); loss.backward(); optimizer.step()
    with torch.no_grad():
        for batch in load(): lose(batch)
    torch.save(model.state_dict(), sys.argv[1])
""",
        24,
        192,
    ),
    "workers that load": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in load(num_workers=2):
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
""",
        8,
        64,
    ),
    "accumulation and a scaler": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
for number, batch in enumerate(load(), 1):
    scaler.scale(lose(batch) / 4).backward()
    if number % 4 == 0:
        scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
""",
        2,
        64,
    ),
    "two networks that compete": (
        """
other = torch.nn.Linear(8, 8)
optimizers = [torch.optim.Adam(each.parameters()) for each in (model, other)]
for batch in load():
    for network, optimizer in zip((model, other), optimizers):
        optimizer.zero_grad(); network(batch[0]).square().mean().backward(); optimizer.step()
""",
        8,
        64,
    ),
    "two optimizers of one backward pass": (
        """
optimizers = [torch.optim.SGD([each], 0.1) for each in model.parameters()]
for batch in load():
    lose(batch).backward()
    for optimizer in optimizers: optimizer.step(); optimizer.zero_grad()
""",
        8,
        64,
    ),
    "a closure of LBFGS": (
        """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
for batch in load():
    def close():
        optimizer.zero_grad(); loss = lose(batch); loss.backward(); return loss
    optimizer.step(close)
""",
        8,
        64,
    ),
    "an optimizer for each parameter, inside the backward pass": (
        """
for parameter in model.parameters():
    own = torch.optim.SGD([parameter], 0.1)
    parameter.register_post_accumulate_grad_hook(lambda p, own=own: own.step() or own.zero_grad())
for batch in load(): lose(batch).backward()
""",
        8,
        64,
    ),
    "an optimizer around another": (
        """
class Twice(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
optimizer = Twice(model.parameters(), 0.1)
for batch in load():
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
""",
        8,
        64,
    ),
    "a monitor of its own": (
        """
import trainvitals
monitor = trainvitals.TrainingMonitor()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in load():
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step(); monitor.update_batch(4)
""",
        8,
        32,
    ),
}


def write(tmp_path, body):
    """Write a program and return the command that runs it."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + body, encoding="utf-8")
    return ("--", sys.executable, path, tmp_path / "model.pt")


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """Run all programs and return their results."""
    directory = tmp_path_factory.mktemp("loops")
    return run_all(directory, {name: body for name, (body, _, _) in LOOPS.items()})


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_reports_its_steps_and_samples(loops, name):
    """Each step and sample is counted once, for all kinds of optimizers and backward passes."""
    ended, (_, steps, samples) = loops[0][name], LOOPS[name]
    assert (ended.code, ended.output) == (0, "")
    assert (ended.step("steps"), ended.step("samples")) == (steps, samples)
    assert ended.state("state") in {State.FINISHED, State.ENDED}


def test_the_last_line_names_the_runs(loops):
    """`trainvitals run` writes only one line to standard error, with the number of runs."""
    (line,) = loops[1].splitlines()
    assert f"{len(LOOPS)} of which reported run" in line


def test_the_loss_is_that_of_the_program(tmp_path):
    """The loss is not multiplied by the scaler, and is summed over the parts of a step."""
    body = """
optimizer = torch.optim.SGD(model.parameters(), 0.0)
scaler = torch.amp.GradScaler("cpu")
data = torch.ones(8, 8)
for batch in load(16):
    for part in range(4):
        loss = model(data).square().mean()
        scaler.scale(loss / 4).backward()
    scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
print(loss.item())
"""
    done, (record,) = run(tmp_path, *write(tmp_path, body))
    assert record.step[STEP["loss"]] == pytest.approx(float(done.stdout), rel=1e-5)


def test_phases_and_checkpoints_are_told_apart(tmp_path):
    """Each phase has a duration; `torch.save` to a path counts as a checkpoint."""
    _, (record,) = run(tmp_path, *write(tmp_path, LOOPS["a plain loop"][0]))
    for phase in ("data_wait", "forward", "backward", "optimizer", "validation", "checkpoint"):
        assert record.step[STEP[f"total_{phase}"]] > 0, phase
    assert record.state[STATE["last_checkpoint_time"]] > 0


@pytest.mark.parametrize(
    "body",
    [
        "print(model(torch.ones(8)).sum().item() < 9)",
        "optimizer = torch.optim.SGD(model.parameters(), 0.1); optimizer.step()",
    ],
)
def test_a_program_that_does_not_train_leaves_nothing(tmp_path, body):
    """A program without a batch or a backward pass makes no run file."""
    done, records = run(tmp_path, *write(tmp_path, body))
    assert (done.returncode, records) == (0, [])
    assert "which did not prove to train" in done.stderr


def test_an_exception_and_its_exit_code_are_reported(tmp_path):
    """An exception and its exit code are unchanged, and the run file has the exception's name."""
    body = LOOPS["a plain loop"][0] + "raise KeyError('layer')\n"
    done, (record,) = run(tmp_path, *write(tmp_path, body))
    assert done.returncode == 1
    assert "KeyError: 'layer'" in done.stderr
    assert record.state[STATE["state"]] == State.FAILED
    assert "KeyError" in record.last_words


def test_ranks_report_each_for_themselves(tmp_path):
    """Each rank under torchrun makes its own run file, and the launcher makes none."""
    body = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in load():
    optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
dist.destroy_process_group()
"""
    script = write(tmp_path, body)[2]
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done, records = run(tmp_path, "--name", "ddp", "--", *launcher, script)
    assert done.returncode == 0, done.stderr
    assert sorted(record.identity.rank for record in records) == [0, 1]
    assert {record.step[STEP["steps"]] for record in records} == {8.0}
    assert "2 of which reported run ddp" in done.stderr


def test_a_program_that_is_compiled_whole_is_compiled_as_without(tmp_path):
    """The observation adds no graph and no graph break to a compiled program."""
    body = """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
step = torch.compile(lambda x: model(x).square().mean(), fullgraph=True, backend="eager")
for batch in load():
    optimizer.zero_grad(); step(batch[0]).backward(); optimizer.step()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], dict(torch._dynamo.utils.counters["graph_break"]))
"""
    done, (record,) = run(tmp_path, *write(tmp_path, body))
    assert done.stdout == "1 {}\n"
    assert record.step[STEP["steps"]] == 8


def test_an_observed_step_makes_few_calls(tmp_path):
    """A step makes at most 40 calls of functions of the package."""
    body = """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train():
    for batch in load(512):
        optimizer.zero_grad(); lose(batch).backward(); optimizer.step()
calls = 0
def count(frame, event, _):
    global calls
    calls += event == "call" and "/trainvitals/" in frame.f_code.co_filename
train()
sys.setprofile(count)
train()
sys.setprofile(None)
print(calls / 64)
"""
    done, (record,) = run(tmp_path, *write(tmp_path, body))
    assert record.step[STEP["steps"]] == 128
    assert 0 < float(done.stdout) <= 40


def test_what_a_signal_ends_is_reported_as_such(tmp_path):
    """SIGKILL leaves the last step in the run file, and the exit status is that of the signal."""
    body = LOOPS["a plain loop"][0] + "import os; os.kill(os.getpid(), 9)\n"
    done, (record,) = run(tmp_path, *write(tmp_path, body))
    assert done.returncode == -signal.SIGKILL
    assert record.step[STEP["steps"]] == 24
    assert record.state[STATE["state"]] == State.RUNNING


FRAMEWORKS = {
    "huggingface": """
from transformers import Trainer, TrainingArguments
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.inner = torch.nn.Linear(8, 1)
    def forward(self, x, labels=None):
        y = self.inner(x).squeeze(-1); return {"loss": (y - labels).square().mean(), "logits": y}
data = [{"x": torch.randn(8), "labels": torch.randn(())} for _ in range(64)]
arguments = TrainingArguments(sys.argv[1] + ".d", per_device_train_batch_size=8, num_train_epochs=2,
    report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
Trainer(Net(), arguments, train_dataset=data).train()
""",
    "lightning": """
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__(); self.inner = torch.nn.Linear(8, 1)
    def training_step(self, batch, _):
        return self.inner(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Net(), load())
""",
    "keras": """
import os; os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
net = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
net.compile("sgd", "mse")
net.fit(numpy.ones((64, 8)), numpy.ones((64, 1)), batch_size=8, epochs=2, verbose=0)
""",
}


# The output without the observation; Hugging Face's Trainer always prints its summary.
FRAMEWORK_OUTPUT = {"lightning": "", "keras": ""}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_reports_through_its_callback(tmp_path, framework):
    """The steps and samples of a framework are counted by its callback, and only once."""
    done, records = run(tmp_path, "--name", framework, *write(tmp_path, FRAMEWORKS[framework]))
    assert done.returncode == 0, done.stderr
    (record,) = records
    assert record.step[STEP["steps"]] == 16
    assert record.step[STEP["samples"]] == 128
    assert done.stdout == FRAMEWORK_OUTPUT.get(framework, done.stdout)
    assert not list(tmp_path.glob("resource_logs*"))


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_what_cannot_be_reached_is_said(tmp_path, flag):
    """A Python that ignores the observation because of its flags runs unchanged and is named."""
    path = tmp_path / "sleep.py"
    path.write_text("import time; time.sleep(2); print(7)")
    done, records = run(tmp_path, "--", sys.executable, flag, path)
    assert (done.returncode, done.stdout, records) == (0, "7\n", [])
    assert f"not reached: {Path(sys.executable).name}" in done.stderr.replace(
        "python3.11", Path(sys.executable).name
    )
    assert done.stderr.rstrip().endswith(flag)
