"""Twelve shapes of public training programs, unchanged, below `trainvitals run`.

Each program measures itself, and what is reported of it differs by at most two percent. A third of
the shapes finish, a third fail in the last step, and a third are killed there. With
TRAINVITALS_TEST_LONG=1, each shape does all three.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from statistics import mean

import pytest

from tests.support.observed import run
from trainvitals.runfile import ABSENT, STATE, STEP, State

pytestmark = pytest.mark.timeout(300)

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
SCRIPTS = Path(__file__).parent / "scripts"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
# For each shape, its command; `torchrun` and the like are modules of this Python.
SHAPES: dict[str, tuple[str, ...]] = {
    "nanogpt": ("nanogpt.py",),
    "timm": ("timm_like.py",),
    "gan": ("gan.py",),
    "torchrun": (*TORCHRUN, "ddp.py"),
    "lightning": ("lightning_fit.py",),
    "trainer": ("trainer.py",),
    "keras": ("keras_fit.py",),
    "amp": ("amp_accumulation.py",),
    "lbfgs": ("lbfgs.py",),
    "notebook": ("-m", "nbconvert", "--execute", "--to", "notebook"),
    "spawn": ("spawn.py",),
    "shell": ("two.sh",),
}
ENDS = ("finish", "fail", "kill")
# In turn, so that each end is met by four shapes.
CASES = [
    (shape, end)
    for number, shape in enumerate(SHAPES)
    for end in (ENDS if LONG else ENDS[number % 3 :][:1])
]
# The loss is not that of one step: a mean since the epoch began, or known only when it is logged.
NO_LOSS = {"trainer", "keras"}
FRAMEWORKS = {"lightning", "trainer", "keras"}
NO_SAMPLES = {"lbfgs"}  # a recurrent layer, whose input may begin with the time
LATE = {"nanogpt", "lbfgs"}  # without a loader, a loop proves to train a second later
VALIDATING = {"nanogpt", "timm"}
# A process above the one that trains reports a failure in its own way.
PARENTS = {"torchrun", "notebook", "spawn"}


def make_command(shape: str, directory: Path) -> list[str]:
    """Return the command of a shape."""
    if shape == "shell":
        return ["sh", str(SCRIPTS / "two.sh")]
    *options, last = SHAPES[shape]
    if shape == "notebook":
        last = write_notebook(directory)
        options = list(SHAPES[shape])
    else:
        last = str(SCRIPTS / last)
    return [sys.executable, *options, last]


def write_notebook(directory: Path) -> str:
    """Write a notebook with the program of another shape in its cell, and return its path."""
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": "train",
        "metadata": {},
        "outputs": [],
        "source": (SCRIPTS / "timm_like.py").read_text("utf-8"),
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = directory / "train.ipynb"
    notebook = {"nbformat": 4, "nbformat_minor": 5, "cells": [cell]}
    path.write_text(json.dumps({**notebook, "metadata": {"kernelspec": kernel}}), "utf-8")
    return str(path)


def find_port() -> int:
    """Return a port that no program uses at the moment."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(("shape", "end"), CASES, ids=lambda value: value)
def test_a_shape_is_reported_as_it_measures_itself(tmp_path, shape, end):
    """Steps, samples per second, loss, phases and the end."""
    path = os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    environ = {
        "SHAPE_OUT": str(tmp_path),
        "SHAPE_END": end,
        "SHAPE_PYTHON": sys.executable,
        "SHAPE_PORT": str(find_port()),
        "PYTHONPATH": path,
        "CUDA_VISIBLE_DEVICES": "",
    }
    done, records = run(tmp_path, "--", *make_command(shape, tmp_path), environ=environ)
    measured = {
        int(each.stem): json.loads(each.read_text("utf-8")) for each in tmp_path.glob("[0-9]*.json")
    }
    by_pid = {record.identity.pid: record for record in records}
    assert measured.keys() == by_pid.keys(), done.stderr
    assert len(measured) == (2 if shape in {"torchrun", "spawn", "shell"} else 1)
    for pid, own in measured.items():
        compare(shape, end, own, by_pid[pid])
    check_end(shape, end, done.returncode, records)


def compare(shape, end, own, record):
    """Compare what was reported of a process with its own measurements."""
    words = {name: record.step[at] for name, at in STEP.items()}
    # An exception in a callback of the program ends a step of a framework before it is reported.
    missing = int(shape in FRAMEWORKS and end != "finish")
    assert words["global_step"] == own["steps"] - missing
    if shape not in LATE:
        assert words["steps"] == own["steps"] - missing
        samples = ABSENT if shape in NO_SAMPLES else own["samples"]
        assert words["samples"] == pytest.approx(samples, rel=0.02)
    if shape not in NO_SAMPLES:
        # The duration of the first step is known in a framework only.
        timed = int(sum(value for name, value in words.items() if name.startswith("step_bucket")))
        assert timed >= words["steps"] - 1
        rate = own["samples"] / own["steps"] / mean(own["seconds"][-timed - missing :][:timed])
        reported = words["samples"] / words["steps"] / (words["train_seconds"] / timed)
        assert reported == pytest.approx(rate, rel=0.02)
    if shape not in NO_LOSS:
        assert words["loss"] != ABSENT
    for phase, seconds in own["outside"].items():
        if seconds and (phase == "checkpoint" or shape in VALIDATING):
            reported = words[f"total_{phase}"]
            assert reported == pytest.approx(seconds, rel=0.02, abs=0.02), phase


def check_end(shape, end, code, records):
    """Check the exit code, and the state that the process left."""
    states = {State(record.state[STATE["state"]]) for record in records}
    if end == "finish":
        assert code == 0
        assert states <= {State.FINISHED, State.ENDED}
    elif end == "fail":
        assert code == 1
        assert shape in PARENTS or State.FAILED in states
    else:
        assert code in {1, -signal.SIGKILL} if shape in PARENTS else code == -signal.SIGKILL
        assert State.RUNNING in states
