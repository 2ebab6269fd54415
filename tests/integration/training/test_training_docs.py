"""The programs in the training documents run, and the documented names exist."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.support.run_files import decode
from trainvitals.lightning import ResourceMonitorCallback
from trainvitals.runfile import ALERTS, COARSE_PHASES, PHASE_NAMES, STATE, STEP, State
from trainvitals.sources.runs.endings import REASONS
from trainvitals.sources.runs.patterns import read_patterns
from trainvitals.training.monitor import TrainingMonitor

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/training.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", PAGE))
WORDS = set(re.findall(r"\w+", " ".join(CODE)))
LAUNCH = ROOT / "exporter/trainvitals/training/launch.py"
# Parameters for tests, which users of the class are not meant to pass.
SEAMS = {"self", "environ", "monotonic", "clock", "publish_seconds"}


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def name_run(program: str) -> str:
    """Return the name that a program gives its run."""
    found = re.search(r"(?:Monitor|Callback)\(\s*(?:run=)?\"([^\"]+)\"", program)
    assert found, program
    return found[1]


PROGRAMS = {name_run(block): block for block in blocks(PAGE, "python")}
# The number of steps of each program, epochs times batches, counted by hand.
STEPS = {
    "linear": 3 * 20,
    "linear-marked": 3 * 20,
    "llama": 1,
    "linear-lightning": 2 * 20,
    "tiny-gpt": 2 * 8,
    "linear-keras": 2 * 16,
}


def run_program(program: str, directory: Path) -> Path:
    """Run a program in a directory, and return its run directory."""
    environ = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "exporter"),
        "TRAINVITALS_RUN_DIR": str(directory / "runs"),
    }
    script = directory / "train.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory / "runs"


def test_each_program_is_known():
    """Every program of docs/training.md has its number of steps in `STEPS`."""
    assert PROGRAMS.keys() == STEPS.keys()


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory):
    """Start all programs, and yield the future of each program's run directory."""
    places = {run: tmp_path_factory.mktemp(run) for run in STEPS}
    with ThreadPoolExecutor(2) as pool:
        yield {run: pool.submit(run_program, PROGRAMS[run], places[run]) for run in STEPS}


@pytest.mark.parametrize("run", STEPS)
def test_a_program_of_the_page_runs(run, run_dirs):
    """A program of docs/training.md trains to its end, and its run file has all its steps."""
    (file,) = run_dirs[run].result().iterdir()
    record = decode(file.read_bytes())
    assert record.identity is not None
    assert record.identity.run == run
    assert record.state[STATE["state"]] in (State.FINISHED, State.ENDED)
    assert record.step[STEP["global_step"]] == STEPS[run]
    assert record.step[STEP["samples"]] > 0
    assert record.step[STEP["errors"]] == 0
    assert run == "llama" or 0 < record.step[STEP["loss"]] < 100


def test_the_marked_program_resumes(tmp_path):
    """The marked program resumes at step 40 after two of three epochs, and reports its phases."""
    torch.save(
        {"model": torch.nn.Linear(16, 1).state_dict(), "epochs": 2}, tmp_path / "checkpoint.pt"
    )
    (file,) = run_program(PROGRAMS["linear-marked"], tmp_path).iterdir()
    record = decode(file.read_bytes())
    for phase in ("data_wait", "forward", "backward", "optimizer", "validation", "checkpoint"):
        assert record.step[STEP[f"total_{phase}"]] > 0
    assert record.state[STATE["total_epochs"]] == 3
    assert record.state[STATE["epoch_steps"]] == 20
    assert record.state[STATE["evaluations"]] == 1
    assert record.state[STATE["checkpoints"]] == 1
    assert record.metrics == (("worst", "validation"),)
    assert record.state[STATE["first_global_step"]] == 40
    assert record.step[STEP["steps"]] == 20
    assert record.step[STEP["global_step"]] == 60


def test_the_loop_of_the_readme_runs(tmp_path):
    """The loop of the README, with a loader and a step added, reports 4 steps of 8 samples."""
    (loop,) = blocks(README, "python")
    own = "loader = [([0] * 8, [0] * 8)] * 4\ndef train_step(images, labels):\n    return 0.25\n"
    (file,) = run_program(own + loop, tmp_path).iterdir()
    record = decode(file.read_bytes())
    assert record.step[STEP["samples"]] == 32
    assert record.step[STEP["loss"]] == 0.25
    assert record.state[STATE["total_steps"]] == 4


def test_the_patterns_of_the_page_are_right(tmp_path):
    """The patterns file of docs/training.md is valid, including its example line."""
    (text,) = [block for block in blocks(PAGE, "yaml") if block.startswith("patterns:")]
    path = tmp_path / "patterns.yml"
    path.write_text(text, encoding="utf-8")
    (pattern,) = read_patterns(path)
    assert pattern.name == "nanogpt"


def test_the_metrics_of_the_page_exist():
    """Each metric that docs/training.md names has a row in docs/metrics.md."""
    rows = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))
    text = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(?:rate\()?((?:training|trainvitals)_[a-z_]+)(?=[`\[ ])", text))
    assert len(named) > 40
    assert named - known == set()


@pytest.mark.parametrize("name", [name for name in vars(TrainingMonitor) if name[0] != "_"])
def test_what_the_monitor_offers_is_documented(name):
    """Each public method of `TrainingMonitor` is in the code of docs/training.md."""
    if callable(getattr(TrainingMonitor, name)):
        assert name in WORDS | set(re.findall(r"monitor\.(\w+)", PAGE))


@pytest.mark.parametrize("owner", [TrainingMonitor, ResourceMonitorCallback])
def test_what_may_be_given_is_documented(owner):
    """Each constructor parameter is in the code of docs/training.md."""
    parameters = set(inspect.signature(owner.__init__).parameters) - SEAMS
    given = WORDS | set(re.findall(r"\b(\w+)=", PAGE))
    assert parameters - given == set()


def test_every_variable_of_a_launcher_is_documented():
    """Each environment variable that the package reads from launchers is in docs/training.md."""
    names = set(re.findall(r"\"([A-Z]+(?:_[A-Z]+)*_?[A-Z]+)\"", LAUNCH.read_text(encoding="utf-8")))
    assert names >= {"RANK", "SLURM_PROCID", "TRAINVITALS_RUN", "MASTER_PORT"}
    local_sizes = {name for name in names if "LOCAL" in name and name.endswith("SIZE")}
    unnamed = {*local_sizes, "GROUP_WORLD_SIZE", "KUBERNETES_SERVICE_HOST", "SC_CLK_TCK"}
    assert names - unnamed - CODE == set()


@pytest.mark.parametrize("words", [PHASE_NAMES, COARSE_PHASES, REASONS, ALERTS])
def test_every_value_of_a_label_is_documented(words):
    """Each phase, exit reason and alert is in the code of docs/training.md."""
    assert set(words) - CODE == set()
