"""A PyTorch loop that takes steps until its standard input ends, for tests of traces.

Arguments: a mode, and a directory for files of the mode.
    plain           trains
    numpy           trains without PyTorch
    own             begins a profiler of its own in the third step of a trace, and writes its trace
    owned           has a profiler of its own from the start
    stall           takes 20 steps and then none
    full            cannot write files of more than 20000 bytes
    validate        validates after each third step of a trace
    ending          ends after the second step of a trace
"""

import resource
import select
import signal
import sys
import time
from pathlib import Path

from trainvitals import TrainingMonitor

mode, place = sys.argv[1], Path(sys.argv[2])
monitor = TrainingMonitor("traced")


def wait_for_word(seconds):
    """Return whether standard input becomes readable or ends within `seconds`."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready)


if mode == "numpy":
    while not wait_for_word(0.005):
        monitor.update_batch(1)
    sys.exit(0)

import torch  # noqa: E402 - not imported in the mode without PyTorch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if mode == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
if mode == "owned":
    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    own.start()


def train():
    """Do a training step."""
    loss = model(torch.ones(4, 16)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


steps = 0
while not wait_for_word(0.002):
    if mode == "stall" and steps == 20:
        (place / "stalled").touch()
        sys.stdin.read()
        break
    train()
    monitor.update_batch(4)
    steps += 1
    traced = monitor._tracing._steps if monitor._tracing.is_active else 0
    if mode == "own" and traced == 2:
        with torch.profiler.profile() as profiler:
            train()
        profiler.export_chrome_trace(str(place / "own.json"))
        mode = "plain"
    if mode == "validate" and traced == 3:
        with monitor.phase("validation"):
            train()
    if mode == "ending" and traced == 2:
        break
if mode == "owned":
    own.stop()
monitor.finish()
time.sleep(0)
(place / "finished").write_text(f"{steps} {monitor.errors.count}", encoding="utf-8")
