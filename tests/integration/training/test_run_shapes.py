"""Twelve kinds of public training programs, unchanged, under `trainvitals run`.

Each program measures itself, and the reported values differ by at most two percent. A third of the
programs finish, a third fail in the last step, and a third are killed in the last step. With
TRAINVITALS_TEST_LONG=1, each program ends in all three ways.
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
# The command of each program: a script, or options of Python that run a module such as torchrun.
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
# The ends alternate, so that each end is tested with four programs.
CASES = [
    (shape, end)
    for number, shape in enumerate(SHAPES)
    for end in (ENDS if LONG else ENDS[number % 3 :][:1])
]
# Frameworks whose loss is a mean of the epoch, or is known only when it is logged.
NO_LOSS = {"trainer", "keras"}
FRAMEWORKS = {"lightning", "trainer", "keras"}
NO_SAMPLES = {"lbfgs"}  # the first dimension of a recurrent layer's input may be the time
LATE = {"nanogpt", "lbfgs"}  # a loop without a data loader is recognised after a second
VALIDATING = {"nanogpt", "timm"}
# Programs in which a parent of the training process reports a failure in its own way.
PARENTS = {"torchrun", "notebook", "spawn"}


def make_command(shape: str, directory: Path) -> list[str]:
    """Return the command of a program."""
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
    """Write a notebook whose cell is the program `timm_like.py`, and return its path."""
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
    """Return a currently free port."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(("shape", "end"), CASES, ids=lambda value: value)
def test_a_shape_is_reported_as_it_measures_itself(tmp_path, shape, end):
    """The reported steps, samples, rate, phases and end equal the program's own measurements."""
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
    """Compare the run file of a process with the process's own measurements."""
    words = {name: record.step[at] for name, at in STEP.items()}
    # In a framework, an exception in the program's callback ends a step before it is reported.
    missing = int(shape in FRAMEWORKS and end != "finish")
    assert words["global_step"] == own["steps"] - missing
    if shape not in LATE:
        assert words["steps"] == own["steps"] - missing
        samples = ABSENT if shape in NO_SAMPLES else own["samples"]
        assert words["samples"] == pytest.approx(samples, rel=0.02)
    if shape not in NO_SAMPLES:
        # The duration of the first step is known only in a framework.
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
    """Check the exit code and the states in the run files."""
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
