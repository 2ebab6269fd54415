"""Unusual training loops under `trainvitals run`.

CUDA graphs and DeepSpeed are replaced by substitutes with the same functions.
"""

from __future__ import annotations

import os

import pytest

from tests.support.observed import run_all
from trainvitals.runfile import ABSENT
from trainvitals.runfile import STEP as STEP_NAMES

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
pytestmark = pytest.mark.timeout(3600 if LONG else 300)
REPEATS = 500 if LONG else 3
MOST_CALLS = 60

SGD = "optimizer = torch.optim.SGD(model.parameters(), 0.01)\n"
STEP = "optimizer.zero_grad(); lose(batch).backward(); optimizer.step()\n"
# The body of each program and the expected values in its run file.
PROGRAMS: dict[str, tuple[str, dict[str, float]]] = {
    "13: a step that a scaler skips": (
        """
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu")
for number, batch in enumerate(load()):
    loss = lose(batch) * (float("inf") if number == 3 else 1)
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
""",
        {"steps": 7, "samples": 64, "nonfinite_gradients": 1, "nonfinite_losses": 0},
    ),
    "13: a step that a fused optimizer skips by itself": (
        """
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cpu")
for number, batch in enumerate(load()):
    loss = lose(batch) * (float("inf") if number == 3 else 1)
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
""",
        {"steps": 7, "samples": 64, "nonfinite_gradients": 1},
    ),
    "14: accumulation in a plain loop": (
        SGD
        + """
for number, batch in enumerate(load(count=128), 1):
    (lose(batch) / 8).backward()
    if number % 8 == 0: optimizer.step(); optimizer.zero_grad()
""",
        {"steps": 2, "samples": 128},
    ),
    "15: five steps of the critic for one of the generator": (
        """
other = torch.nn.Linear(8, 8)
critic, generator = (torch.optim.Adam(each.parameters()) for each in (model, other))
for number, batch in enumerate(load(count=160), 1):
    critic.zero_grad(); lose(batch).backward(); critic.step()
    if number % 5 == 0:
        generator.zero_grad(); model(other(batch[0])).mean().backward(); generator.step()
""",
        {"steps": 20, "samples": 160},
    ),
    "15: two passes for one step, between which gradients are discarded": (
        """
class Sharp(torch.optim.SGD):
    def first_step(self):
        self.zero_grad()
optimizer = Sharp(model.parameters(), 0.0)
data = torch.ones(8, 8)
for batch in load():
    model(data).square().mean().backward(); optimizer.first_step()
    model(data).square().mean().backward(); optimizer.step(); optimizer.zero_grad()
print(model(data).square().mean().item())
""",
        {"steps": 8, "samples": 64},
    ),
    "15: an optimizer around an inner one": (
        """
class Ahead(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {}); self.inner = inner
    def step(self, closure=None):
        return self.inner.step(closure)
optimizer = Ahead(torch.optim.SGD(model.parameters(), 0.1))
for batch in load():
    """
        + STEP,
        {"steps": 8, "samples": 64},
    ),
    "15: steps inside a backward pass, on another thread": (
        """
from threading import Thread
def take(own):
    thread = Thread(target=own.step); thread.start(); thread.join()
for parameter in model.parameters():
    own = torch.optim.SGD([parameter], 0.1)
    parameter.register_post_accumulate_grad_hook(lambda p, own=own: take(own))
for batch in load(): lose(batch).backward()
""",
        {"steps": 8, "samples": 64},
    ),
    "a second stage with an optimizer of its own": (
        """
for stage in range(3):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in load():
        """
        + STEP,
        {"steps": 24, "samples": 192},
    ),
    "a step that raises an exception": (
        """
class Fails(torch.optim.SGD):
    def step(self, closure=None):
        if fails: raise MemoryError
        return super().step(closure)
optimizer = Fails(model.parameters(), 0.1)
for number, batch in enumerate(load()):
    fails = number == 3
    try:
        """
        + STEP
        + "    except MemoryError: pass\n",
        {"steps": 7, "samples": 64},
    ),
    "16: an engine that steps each group of parameters by itself": (
        """
import types
class Engine:
    skipped_steps = micro = 0
    def __init__(self): self.optimizers = [torch.optim.SGD([p], 0.0) for p in model.parameters()]
    def gradient_accumulation_steps(self): return 4
    def is_gradient_accumulation_boundary(self): return (self.micro + 1) % 4 == 0
    def backward(self, loss): (loss / 4 * 1024).backward()
    def step(self):
        if self.is_gradient_accumulation_boundary():
            if self.micro == 15: self.skipped_steps += 1
            else:
                for each in self.optimizers: each.step()
            for each in self.optimizers: each.zero_grad()
        self.micro += 1
module = types.ModuleType("deepspeed.runtime.engine"); module.DeepSpeedEngine = Engine
from trainvitals.runner.watchers import watch_deepspeed
watch_deepspeed(module)
engine, data = Engine(), torch.ones(8, 8)
for batch in load(count=192):
    loss = model(data).square().mean(); engine.backward(loss); engine.step()
print(loss.item())
""",
        {"steps": 5, "samples": 192, "nonfinite_gradients": 1},
    ),
    "16: a chain of optimizers after passes that cannot be seen": (
        """
class Chain:
    def __init__(self): self.parts = [torch.optim.SGD([p], 0.1) for p in model.parameters()]
    def step(self): [part.step() for part in self.parts]
chain = Chain()
for batch in load():
    loss = lose(batch)
    torch.autograd.Variable._execution_engine.run_backward(
        (loss,), (torch.ones(()),), False, False, (), allow_unreachable=True, accumulate_grad=True)
    chain.step()
""",
        {"steps": 8},
    ),
    "12: a step that a CUDA graph replays": (
        SGD
        + """
class Graph:
    def capture_begin(self, fails=False):
        if fails: raise RuntimeError("no capture begins")
    def capture_end(self): pass
    def replay(self): pass
from trainvitals.training.autolog.observer import Autolog
Autolog.active.watch_graph(Graph)
batch, graph = next(iter(load())), Graph()
try: graph.capture_begin(fails=True)
except RuntimeError: pass
"""
        + STEP
        + """
torch.cuda.is_initialized = torch.cuda.is_current_stream_capturing = lambda: True
graph.capture_begin()
"""
        + STEP
        + """
graph.capture_end()
torch.cuda.is_initialized = lambda: False
for batch in load(): graph.replay()
""",
        {"steps": 9, "samples": 72},
    ),
    "evaluation by eval() alone": (
        SGD
        + """
model = torch.nn.Sequential(model, torch.nn.Dropout(0.5))
for epoch in range(2):
    model.train()
    for batch in load():
        """
        + STEP
        + """
    model.eval()
    for batch in load(batch=16): lose(batch)
""",
        {"steps": 16, "samples": 128, "total_validation": 1e-9},
    ),
    "evaluation whose batches are fetched with gradients": (
        SGD
        + """
for epoch in range(2):
    for batch in load():
        """
        + STEP
        + """
    for batch in load():
        with torch.no_grad(): lose(batch)
""",
        {"steps": 16, "samples": 128, "total_validation": 1e-9},
    ),
    "a teacher that is never trained": (
        SGD
        + """
import copy
teacher = copy.deepcopy(torch.nn.Sequential(model))
for epoch in range(2):
    for batch in load():
        teacher.eval()
        with torch.no_grad(): teacher(batch[0])
        """
        + STEP,
        {"steps": 16, "samples": 128},
    ),
    "several files of one checkpoint": (
        SGD
        + """
import io
from safetensors.torch import save_file
import torch.distributed.checkpoint as dcp
for batch in load(count=24):
    """
        + STEP
        + """
    torch.save(model.state_dict(), io.BytesIO())
    torch.save(model.state_dict(), sys.argv[1])
    with open(sys.argv[1] + ".optimizer", "wb") as file: torch.save(optimizer.state_dict(), file)
batch = next(iter(load()))
"""
        + STEP
        + """
save_file(dict(model.state_dict()), sys.argv[1] + ".safetensors")
batch = next(iter(load()))
"""
        + STEP
        + """
dcp.save(model.state_dict(), checkpoint_id=sys.argv[1] + ".d", no_dist=True)
""",
        {"steps": 5, "checkpoints": 5},
    ),
    "a loader that fails and is asked again": (
        SGD
        + """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, at):
        if at == 20: raise OSError("unreadable")
        return torch.randn(8)
batches = iter(DataLoader(Data(), batch_size=8))
while True:
    try: batch = [next(batches)]
    except OSError: continue
    except StopIteration: break
    """
        + STEP,
        {"steps": 7, "samples": 56, "data_errors": 1},
    ),
    "batches without a loader": (
        """
import time
table, head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)
end = time.monotonic() + 1.3
while time.monotonic() < end:
    x = torch.randint(0, 50, (4, 16))
    loss = torch.nn.functional.cross_entropy(head(table(x)).view(-1, 50), x.view(-1))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    count = globals().get("count", 0) + 1
print(count)
""",
        {},
    ),
    "a patch of the program's own stays": (
        SGD
        + """
backward = torch.Tensor.backward
def own(self, *args, **kwargs): return backward(self, *args, **kwargs)
torch.Tensor.backward = own
for batch in load():
    """
        + STEP
        + """
import trainvitals
trainvitals.TrainingMonitor().update_batch(1)
assert torch.Tensor.backward is own and torch.save.__module__ == "torch.serialization"
assert torch.save is torch.serialization.save and not hasattr(torch.save, "__wrapped__")
lose(batch).backward()
""",
        {},
    ),
    "24: the functions that are called in a step": (
        SGD
        + """
calls = 0
def count(frame, event, _):
    global calls
    calls += event == "call" and "/trainvitals/" in frame.f_code.co_filename
for number, batch in enumerate(load(count=800)):
    if number == 50: sys.setprofile(count)
    """
        + STEP
        + """
sys.setprofile(None)
print(calls / 50)
""",
        {"steps": 100, "samples": 800},
    ),
    "9: workers of every start method": (
        SGD
        + """
for method in ("fork", "forkserver", "spawn"):
    loader = load(num_workers=1, persistent_workers=True, multiprocessing_context=method)
    for epoch in range(2):
        for batch in loader:
            """
        + STEP,
        {"steps": 48, "samples": 384},
    ),
    "10: garbage of the parent is collected in forked workers": (
        SGD
        + f"""
import gc
class Data(torch.utils.data.Dataset):
    def __len__(self): return 16
    def __getitem__(self, at):
        if at % 8 == 0: gc.collect()  # once a batch: it takes a tenth of a second
        return torch.randn(8)
for repeat in range({REPEATS}):
    for batch in DataLoader(Data(), batch_size=8, num_workers=2):
        batch = [batch]
        """
        + STEP,
        {"steps": 2 * REPEATS, "samples": 16 * REPEATS},
    ),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Run all programs and return their results."""
    directory = tmp_path_factory.mktemp("programs")
    return run_all(directory, {name: body for name, (body, _) in PROGRAMS.items()})[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_reported_as_it_is(programs, name):
    """The run file of each program has the expected values; 1e-9 means any positive value."""
    ended = programs[name]
    assert ended.code == 0, ended.output
    for word, value in PROGRAMS[name][1].items():
        found = ended.step(word) if word in STEP_NAMES else ended.state(word)
        found = 0 if found == ABSENT else found
        assert found >= value if value == 1e-9 else found == value, (word, found)


def test_a_step_costs_few_calls(programs):
    """A step makes at most `MOST_CALLS` function calls; the benchmarks measure its duration."""
    ended = programs["24: the functions that are called in a step"]
    assert 0 < float(ended.output) <= MOST_CALLS


def test_the_loss_is_what_the_framework_was_given(programs):
    """The loss is not scaled, and a step that evaluates the loss twice reports it once."""
    for name in (
        "15: two passes for one step, between which gradients are discarded",
        "16: an engine that steps each group of parameters by itself",
    ):
        ended = programs[name]
        assert ended.step("loss") == pytest.approx(float(ended.output), rel=1e-5), name


def test_samples_of_a_loop_without_loader_are_read_from_the_graph(programs):
    """Samples and tokens are read from the graph, and steps count from the start of the loop."""
    ended = programs["batches without a loader"]
    steps = ended.step("steps")
    assert ended.step("global_step") == int(ended.output)
    assert (ended.step("samples"), ended.step("tokens")) == (4 * steps, 64 * steps)


def test_a_teacher_takes_no_time_of_validation(programs):
    """A teacher model in evaluation mode does not count as validation."""
    ended = programs["a teacher that is never trained"]
    assert ended.step("total_validation") < ended.step("total_forward")
