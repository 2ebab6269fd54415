"""Every command that docs/seeds.md names, typed as it stands there, on a fake machine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import wait_until
from tests.unit.record.snapshots import WHOLE
from tests.unit.sources.runs.trainer import Trainer
from tests.unit.test_seeds import NAMES, find_script
from trainvitals.record.formats import CsvFormat

ROOT = Path(__file__).parents[2]
COMMANDS = sorted({name for name, _ in NAMES if re.match(r"trainvitals |scripts/", name)})

# What stands for a name of the reader's own, and what keeps a command within the test.
OWN = {"NAME": "run", "gaudi3-trainer": "run", "RUN": "run", "FILE": "gpus.csv", "…": "logs"}
KEPT = {
    "serve": "--web.listen-address=127.0.0.1:0 --no-collector.container",
    "docker-logging": "--file daemon.json --engine none",
    "diagnose": "--containers.engine none",
    "doctor": "--containers.engine none",
    "record": "--containers.engine none",
    "top": "--once",  # without a terminal
}
# They need a stack, a run with PyTorch and a past day, which tests/integration/alerting,
# test_profile and tests/integration/report have.
ELSEWHERE = {"notify", "profile", "report"}
AT_ONCE = 4
PATIENCE_SECONDS = 100.0


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[tuple[Path, dict[str, str]]]:
    """Return a home where all is that the commands name, and an environment with a machine."""
    home = tmp_path_factory.mktemp("seeds")
    (home / "requirements.txt").write_text("psutil>=5.9.0\nnvidia-ml-py\n")
    (home / "baselines.yml").write_text("baselines: [{run: 'bert*', epochs_per_hour: 20}]\n")
    (home / "daemon.json").write_text("{}")
    logs = home / "artifacts/experiments/a/logs"
    logs.mkdir(parents=True)
    (logs / "training.log").write_text("Epoch 1: val_loss: 0.9075 | val_iou: 0.0902\n")
    for folder in ("DIR", "logs", "resource_logs", ".venv/bin"):
        (home / folder).mkdir(parents=True)
    (home / ".venv/bin/python").symlink_to(sys.executable)
    piece = CsvFormat().write(WHOLE)
    for name in ("gpus.csv", "resource_logs/epoch_1.csv"):
        (home / name).write_text(piece.head + piece.text)
    with Trainer(home / "runs") as run:
        run.kill()
    with FakeMachine(home, gpus=1, hpus=1) as machine:
        environ = {
            **os.environ,
            **machine.environment(),
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "exporter"),
            "TRAINVITALS_JOURNAL_DIR": str(home / "deaths"),
            "TRAINVITALS_RUN_DIR": str(home / "runs"),
            "HF_HUB_OFFLINE": "1",
            "HF_TOKEN": "hf_none",
        }
        yield home, environ


def write_line(name: str) -> list[str]:
    """Return a command of the page as a reader would type it."""
    line = find_script(name) or name if name.startswith("scripts/") else name
    words = [OWN.get(word, word) for word in shlex.split(line.split(" >> ")[0])]
    kept = shlex.split(KEPT.get(words[1], "")) if len(words) > 1 else []
    if "record" in words and "--once" not in words:
        kept += ["--count", "1"]
    return [*words, *kept]


def run_as_typed(name: str, home: Path, environ: dict[str, str]) -> str:
    """Run a command, an exporter until it listens; say what is wrong with its end."""
    words = write_line(name)
    program = [sys.executable, str(ROOT / name)] if words[0].endswith(".py") else words
    with subprocess.Popen(
        [*ENDS_WITH_PARENT, *program],
        cwd=home,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        if "serve" in words:
            assert process.stdout is not None
            wait_until(lambda: " listens on " in process.stdout.readline(), PATIENCE_SECONDS)
            process.terminate()
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    is_well = process.returncode in {0, 1} and "Traceback" not in said
    return "" if is_well else f"{process.returncode}: {said[-300:]}"


@pytest.mark.timeout(600)
def test_every_command_of_the_page_does_something(place):
    """It ends with 0, or with 1 where it found a problem, and an exporter when it is asked to.

    That its words can be parsed is known without running it; this is for what it then does.
    """
    home, environ = place
    names = [name for name in COMMANDS if not ELSEWHERE & set(name.split())]
    assert len(names) > 40
    in_turn = [name for name in names if "docker-logging" in name]  # one reverts the other
    ends = {name: run_as_typed(name, home, environ) for name in in_turn}
    others = [name for name in names if name not in ends]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = pool.map(lambda name: run_as_typed(name, home, environ), others)
        ends |= dict(zip(others, told, strict=True))
    assert {name: end for name, end in ends.items() if end} == {}
