"""Tests for choosing the Python of the most recent run for `trainvitals doctor`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.doctor.patient import Patient
from trainvitals.doctor.lastrun import find_last_run
from trainvitals.doctor.machine import Machine
from trainvitals.sources.files import Roots

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"
TRAINS = """\
import sys
sys.path.insert(0, sys.argv[1])
from trainvitals import TrainingMonitor
monitor = TrainingMonitor(
    "llama", framework="torch", framework_version="2.6.0+cu124", run_dir=sys.argv[2]
)
print(monitor.path, flush=True)
sys.stdin.read()
monitor.finish()
"""


@contextmanager
def train(patient: Patient, *, name: str | None = None, **environ: str) -> Iterator[Path]:
    """Run a training process in the virtual environment of the machine during the block."""
    assert patient.packages.is_dir()
    python = patient.folder / "venv/bin/python"
    del patient.environ["VIRTUAL_ENV"]
    runs = patient.folder / "runs"
    patient.proc = Path("/proc")
    patient.world["user"] = os.getuid()
    with subprocess.Popen(
        [name or python, "-c", TRAINS, SOURCE_ROOT, runs],
        executable=python,
        env={"PATH": "/usr/bin:/bin", **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().startswith(str(runs))
        yield python
        process.communicate()


def find(patient: Patient, user: int | None = None):
    """Return the most recent run, as found by the given user."""
    who = os.getuid() if user is None else user
    roots = Roots(patient.proc, patient.sys, patient.root)
    return find_last_run(Machine(roots=roots, environ=patient.environ, user=who))


@pytest.mark.parametrize("way", ["path", "VIRTUAL_ENV", "PATH"])
def test_the_python_of_a_living_run_is_examined(patient: Patient, way):
    """The Python of a running process is found by its path, `VIRTUAL_ENV` or `PATH`."""
    venv = patient.folder / "venv"
    start = {
        "path": {},
        "VIRTUAL_ENV": {"name": "train: epoch 3", "VIRTUAL_ENV": str(venv)},
        "PATH": {"name": "python", "PATH": f"{venv}/bin:/usr/bin"},
    }[way]
    patient.install_torch("2.6.0+cu124", "12.4")
    with train(patient, **start) as python:
        told = {each.check.name: each.finding for each in patient.look("python", "pytorch").results}
    assert told["python"].status == "ok"
    assert told["python"].what.endswith(f", {python}, of the run llama")
    assert told["pytorch"].what == "PyTorch 2.6.0+cu124, CUDA 12.4"


def test_a_run_that_has_ended_is_compared_by_its_framework(patient: Patient):
    """For a run that has ended, the framework version is compared, as its Python is unknown."""
    with train(patient):
        pass
    finding = patient.find("python")
    assert finding.status == "warning"
    assert ", which runs this command; --python names another, but the run llama, last seen " in (
        finding.what
    )
    assert " ago, had torch 2.6.0+cu124, and this one has " in finding.what
    assert finding.advice == "name the Python of the run with --python"
    patient.environ["VIRTUAL_ENV"] = str(patient.folder / "venv")
    patient.install("torch", "2.6.0")
    finding = patient.find("python")
    assert finding.status == "ok"
    assert finding.what.endswith(" ago, may have another: it has ended")
    assert ", of $VIRTUAL_ENV; the run llama, last seen " in finding.what


def test_a_python_that_was_named_is_not_questioned(patient: Patient):
    """A Python that is named by `--python` is not compared with the most recent run."""
    with train(patient) as python:
        pass
    patient.wish(python=python)
    finding = patient.find("python")
    assert (finding.status, finding.what.rpartition(", ")[2]) == ("ok", "named by --python")


def test_the_python_of_another_user_is_not_run(patient: Patient):
    """The Python of another user's run is not executed, as it could be any program."""
    with train(patient):
        run = find(patient, user=os.getuid() + 1)
    assert run.is_alive
    assert run.python is None
    assert run.reason.startswith("it belongs to ")


def test_without_a_run_there_is_none(patient: Patient):
    """Without a run directory, or with one that cannot be read, no run is found."""
    patient.environ["TRAINVITALS_RUN_DIR"] = str(patient.folder / "nowhere")
    assert find(patient) is None
    patient.environ["TRAINVITALS_RUN_DIR"] = str(patient.write("file", ""))
    assert find(patient) is None
