"""What the documents say about training: their programs run, and their names exist."""

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
# What a user of the class is not meant to give.
SEAMS = {"self", "environ", "monotonic", "clock", "publish_seconds"}


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def name_run(program: str) -> str:
    """Return the name that a program gives its run."""
    found = re.search(r"(?:Monitor|Callback)\(\s*(?:run=)?\"([^\"]+)\"", program)
    assert found, program
    return found[1]


PROGRAMS = {name_run(block): block for block in blocks(PAGE, "python")}
# Epochs times batches of each, counted by hand.
STEPS = {
    "linear": 3 * 20,
    "linear-marked": 3 * 20,
    "llama": 1,
    "linear-lightning": 2 * 20,
    "tiny-gpt": 2 * 8,
    "linear-keras": 2 * 16,
}


def run_program(program: str, directory: Path) -> Path:
    """Run a program in a directory; give its run directory."""
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
    """A program that is added to the page is given its number of steps here."""
    assert PROGRAMS.keys() == STEPS.keys()


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory):
    """Return the future run directory of each program; most of their time is importing."""
    places = {run: tmp_path_factory.mktemp(run) for run in STEPS}
    with ThreadPoolExecutor(2) as pool:
        yield {run: pool.submit(run_program, PROGRAMS[run], places[run]) for run in STEPS}


@pytest.mark.parametrize("run", STEPS)
def test_a_program_of_the_page_runs(run, run_dirs):
    """It trains to its end, and its run file has all steps under the run's name."""
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
    """Started again after two of its three epochs it goes on at step 40, and tells all it marks."""
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
    """With a loader and a step of one's own it shows 4 steps of 8 samples."""
    (loop,) = blocks(README, "python")
    own = "loader = [([0] * 8, [0] * 8)] * 4\ndef train_step(images, labels):\n    return 0.25\n"
    (file,) = run_program(own + loop, tmp_path).iterdir()
    record = decode(file.read_bytes())
    assert record.step[STEP["samples"]] == 32
    assert record.step[STEP["loss"]] == 0.25
    assert record.state[STATE["total_steps"]] == 4


def test_the_patterns_of_the_page_are_right(tmp_path):
    """The file is read, which checks its example."""
    (text,) = [block for block in blocks(PAGE, "yaml") if block.startswith("patterns:")]
    path = tmp_path / "patterns.yml"
    path.write_text(text, encoding="utf-8")
    (pattern,) = read_patterns(path)
    assert pattern.name == "nanogpt"


def test_the_metrics_of_the_page_exist():
    """Each that is named in code has a row in the list of metrics."""
    rows = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))
    text = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(?:rate\()?((?:training|trainvitals)_[a-z_]+)(?=[`\[ ])", text))
    assert len(named) > 40
    assert named - known == set()


@pytest.mark.parametrize("name", [name for name in vars(TrainingMonitor) if name[0] != "_"])
def test_what_the_monitor_offers_is_documented(name):
    """Each method stands on the page in code."""
    if callable(getattr(TrainingMonitor, name)):
        assert name in WORDS | set(re.findall(r"monitor\.(\w+)", PAGE))


@pytest.mark.parametrize("owner", [TrainingMonitor, ResourceMonitorCallback])
def test_what_may_be_given_is_documented(owner):
    """Each parameter stands on the page in code."""
    parameters = set(inspect.signature(owner.__init__).parameters) - SEAMS
    given = WORDS | set(re.findall(r"\b(\w+)=", PAGE))
    assert parameters - given == set()


def test_every_variable_of_a_launcher_is_documented():
    """Each name that is looked for in the environment stands on the page."""
    names = set(re.findall(r"\"([A-Z]+(?:_[A-Z]+)*_?[A-Z]+)\"", LAUNCH.read_text(encoding="utf-8")))
    assert names >= {"RANK", "SLURM_PROCID", "TRAINVITALS_RUN", "MASTER_PORT"}
    local_sizes = {name for name in names if "LOCAL" in name and name.endswith("SIZE")}
    unnamed = {*local_sizes, "GROUP_WORLD_SIZE", "KUBERNETES_SERVICE_HOST", "SC_CLK_TCK"}
    assert names - unnamed - CODE == set()


@pytest.mark.parametrize("words", [PHASE_NAMES, COARSE_PHASES, REASONS, ALERTS])
def test_every_value_of_a_label_is_documented(words):
    """Each phase, reason and alert stands on the page in code."""
    assert set(words) - CODE == set()
