"""Every command in docs/seeds.md, run as it is written there, on a fake machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import wait_until
from tests.unit.record.snapshots import WHOLE
from tests.unit.sources.runs import records
from tests.unit.sources.runs.trainer import Trainer
from tests.unit.test_seeds import (
    CALLBACK,
    CALLS,
    check_call,
    find_attribute,
    find_script,
    list_names,
)
from trainvitals.record.formats import CsvFormat

ROOT = Path(__file__).parents[2]
# Replacements for placeholders in the commands, and arguments that confine a command to the test.
OWN = {"NAME": "run", "gaudi3-trainer": "run", "RUN": "run", "FILE": "gpus.csv"}
FOLDERS = {
    "--tensorboard.logdir": "events",
    "--trainlog.glob": "artifacts/experiments/*/logs/*.log",
}
KEPT = {
    "serve": "--web.listen-address=127.0.0.1:0 --no-collector.container",
    "docker-logging": "--file daemon.json --engine none",
    "diagnose": "--containers.engine none",
    "doctor": "--containers.engine none",
    "record": "--containers.engine none",
    "top": "--once",  # without a terminal
}

# The possible exit codes of each command, and a text in its output. A command whose result depends
# on the machine, such as on an installed PyTorch, may end in either way.
FINE, FAULT, EITHER = (0,), (1,), (0, 1)
ENDS = {
    "scripts/diagnose-container-death.sh": (FAULT, "Run run died"),
    "scripts/infrastructure_health.sh": (EITHER, "accelerator-states"),
    "scripts/infrastructure_health.sh --reach google.com:443": (EITHER, "google.com:443"),
    "scripts/monitor-runner.sh": (FINE, "runner-monitoring/runner-"),
    "scripts/plot_resources.py": (FINE, "wrote resource_timeline.png"),
    "scripts/runner-dashboard.sh": (FINE, "NVIDIA H100"),
    "scripts/setup-docker-logging.sh": (FINE, "daemon.json"),
    "trainvitals diagnose": (FAULT, "Run run died"),
    "trainvitals diagnose --markdown": (FAULT, "## Run run died"),
    "trainvitals diagnose --save DIR": (FAULT, "Run run died"),
    "trainvitals diagnose --since 24h": (FAULT, "ended in the last 1d"),
    "trainvitals diagnose NAME": (FAULT, "Run run died"),
    "trainvitals diagnose NAME --lines 50": (FAULT, "Run run died"),
    "trainvitals diagnose gaudi3-trainer": (FAULT, "Run run died"),
    "trainvitals docker-logging": (FINE, "daemon.json"),
    "trainvitals docker-logging --apply": (FINE, "daemon.json"),
    "trainvitals docker-logging --revert": (FINE, "restored "),
    "trainvitals doctor": (EITHER, "not applicable; "),
    "trainvitals doctor --checkpoints DIR": (EITHER, "not applicable; "),
    "trainvitals doctor --checks 'driver,PyTorch and CUDA'": (EITHER, "nvidia-driver"),
    "trainvitals doctor --checks disk-space": (EITHER, "disk-space"),
    "trainvitals doctor --checks huggingface-token": (EITHER, "huggingface-token"),
    "trainvitals doctor --checks ports --port 29500": (EITHER, "29500"),
    "trainvitals doctor --checks python,pytorch,pytorch-driver,cuda-toolkit": (EITHER, "Python 3."),
    "trainvitals doctor --checks pytorch,pytorch-driver": (EITHER, "pytorch-driver"),
    "trainvitals doctor --need HF_TOKEN": (EITHER, "HF_TOKEN"),
    "trainvitals doctor --port 8000": (EITHER, "8000"),
    "trainvitals doctor --python .venv/bin/python": (EITHER, ".venv/bin/python"),
    "trainvitals doctor --quick": (EITHER, "accelerator-states"),
    "trainvitals doctor --reach huggingface.co:443": (EITHER, "huggingface.co:443"),
    "trainvitals doctor --requirements requirements.txt": (EITHER, "requirements"),
    "trainvitals plot FILE": (FINE, "wrote resource_timeline.png"),
    "trainvitals postmortem": (FAULT, "Run run died"),
    "trainvitals record": (FINE, "runner-monitoring/runner-"),
    "trainvitals record --interval 1 --output gpus.csv": (FINE, "recording to gpus.csv"),
    "trainvitals record --once --output -": (FINE, "snapshot 1"),
    "trainvitals record --once --output - >> FILE": (FINE, "snapshot 1"),
    "*/5 * * * * trainvitals record --once --output /var/log/vitals.jsonl": (FINE, "vitals.jsonl"),
    "trainvitals top": (FINE, "NVIDIA H100"),
    "trainvitals top --interval 1": (FINE, "NVIDIA H100"),
    "trainvitals top --json": (FINE, '"accelerators":'),
}
# A text in the metrics of each exporter, or, for the last exporter, in its log.
SERVED = {
    "trainvitals serve": "accelerator_devices",
    "trainvitals serve --accelerators.expected hpu=8": (
        'accelerator_devices_expected{kind="hpu"} 8.0'
    ),
    "trainvitals serve --accelerators.memory-limit 7.5GB": "accelerator_memory_limit_bytes 7.5e+09",
    "trainvitals serve --accelerators.temperature-limit 80": (
        "accelerator_temperature_limit_celsius 80.0"
    ),
    "trainvitals serve --baselines.file baselines.yml": (
        'training_expected_epoch_seconds{run="run"} 180.0'
    ),
    "trainvitals serve --tensorboard.logdir …": 'training_loss{rank="0",run="first"} ',
    "trainvitals serve --trainlog.glob 'artifacts/experiments/*/logs/*.log'": (
        'validation_loss{rank="0",run="a/logs/training"} 0.9075'
    ),
    "trainvitals serve --trainlog.glob …": 'validation_loss{rank="0",run="a/logs/training"} 0.9075',
    "trainvitals serve --log.format json": '"message": "trainvitals',
}
# The tests of the commands that need a stack, a run with PyTorch, past data or a file of root.
ELSEWHERE = {
    "trainvitals notify": "alerting",
    "trainvitals notify --test": "alerting",
    "trainvitals profile RUN": "test_profile.py",
    "trainvitals profile RUN --record-shapes --with-stack": "test_profile.py",
    "trainvitals report daily": "report",
    "trainvitals report daily --format html": "report",
    "trainvitals report daily --target iou=0.75": "report",
    "trainvitals report weekly": "report",
}
AT_ONCE = 4
PATIENCE_SECONDS = 100.0


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a home with all files that the commands name, and the environment of a fake machine."""
    home = tmp_path_factory.mktemp("seeds")
    (home / "requirements.txt").write_text("psutil>=5.9.0\nnvidia-ml-py\n")
    (home / "baselines.yml").write_text("baselines: [{run: 'run*', epochs_per_hour: 20}]\n")
    (home / "daemon.json").write_text("{}")
    logs = home / "artifacts/experiments/a/logs"
    logs.mkdir(parents=True)
    (logs / "training.log").write_text("Epoch 1: val_loss: 0.9075 | val_iou: 0.0902\n")
    records.write(
        home / "events/first/events.out.tfevents.1700000000.host.1.0",
        *((time.time() + at, at, "train/loss", 2.0 - at / 9) for at in range(9)),
    )
    for folder in ("DIR", "resource_logs", ".venv/bin"):
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
            "COLUMNS": "200",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "exporter"),
            "TRAINVITALS_JOURNAL_DIR": str(home / "deaths"),
            "TRAINVITALS_RUN_DIR": str(home / "runs"),
            "HF_HUB_OFFLINE": "1",
            "HF_TOKEN": "hf_none",
        }
        yield home, environ


def write_line(name: str) -> list[str]:
    """Return the words of a command of the page, with its placeholders replaced."""
    line = (find_script(name) or name) if name.startswith("scripts/") else name
    words = [OWN.get(word, word) for word in shlex.split(line.split(" >> ")[0])]
    for at, word in enumerate(words):
        if word == "…":
            words[at] = FOLDERS[words[at - 1]]
    words = [word.replace("/var/log/", "./") for word in words]
    kept = shlex.split(KEPT.get(words[1], "")) if len(words) > 1 else []
    if "record" in words and "--once" not in words:
        kept += ["--count", "1"]
    return [*words, *kept]


def start(name: str, home: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    """Start a command of the page; of a crontab line, only the command is started."""
    words = write_line(name.removeprefix("*/5 * * * * "))
    program = [sys.executable, str(ROOT / name)] if words[0].endswith(".py") else words
    return subprocess.Popen(
        [*ENDS_WITH_PARENT, *program],
        cwd=home,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_as_typed(name: str, home: Path, environ: dict[str, str]) -> str:
    """Run a command; return a description of its wrong exit code or output, or an empty string."""
    codes, word = ENDS[name]
    with start(name, home, environ) as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    is_well = process.returncode in codes and word in said and "Traceback" not in said
    return (
        "" if is_well else f"{process.returncode}, without {word!r}: {said[:200]} … {said[-300:]}"
    )


@contextmanager
def serve(name: str, home: Path, environ: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Run an exporter; yield its address and its log lines up to the start of listening."""
    with start(name, home, environ) as process:
        lines: list[str] = []
        try:
            while not lines or " listens on " not in lines[-1]:
                lines.append(process.stdout.readline())
                assert lines[-1], lines
            address = re.search(r" listens on ([\d.:]+)", lines[-1])
            yield f"http://{address[1]}", lines
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


def fetch(address: str) -> str:
    """Return the body of a page, even if its status is an error."""
    try:
        with urlopen(address, timeout=30) as response:
            return response.read().decode()
    except HTTPError as error:
        return error.read().decode()


def test_every_command_of_the_page_is_tried():
    """Every command of docs/seeds.md is run here or in the tests that `ELSEWHERE` names."""
    assert {*ENDS, *SERVED, *ELSEWHERE} == set(list_names("command"))
    for path in ELSEWHERE.values():
        assert (ROOT / "tests/integration" / path).exists()


@pytest.mark.timeout(600)
def test_every_command_of_the_page_does_something(place):
    """Every command ends with its expected exit code and prints its expected text.

    Another test checks the arguments without a run; this test checks the behaviour.
    """
    home, environ = place
    in_turn = [name for name in ENDS if "docker-logging" in name]  # one reverts the other
    ends = {name: run_as_typed(name, home, environ) for name in in_turn}
    others = [name for name in ENDS if name not in ends]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = pool.map(lambda name: run_as_typed(name, home, environ), others)
        ends |= dict(zip(others, told, strict=True))
    assert {name: end for name, end in ends.items() if end} == {}


@pytest.mark.parametrize("name", SERVED)
def test_an_exporter_of_the_page_serves_what_its_flag_is_for(name, place):
    """An exporter with the flags of the page soon serves the metrics of these flags."""
    home, environ = place
    with serve(name, home, environ) as (address, lines):
        word = SERVED[name]
        wait_until(
            lambda: word in fetch(f"{address}/metrics") or word in lines[-1], PATIENCE_SECONDS
        )


def test_the_health_of_the_page_has_the_checks_of_the_document(place):
    """`/health` and `/ready` have the documented checks if one of 8 expected cards exists."""
    home, environ = place
    with serve("trainvitals serve --accelerators.expected hpu=8", home, environ) as (address, _):
        health, ready = (json.loads(fetch(address + path)) for path in ("/health", "/ready"))
    assert health["status"] == "unhealthy"
    named = {"hpu_available", "hpu_count", "memory_usage", "disk_space"}
    assert named <= health["checks"].keys()
    assert {"model_loaded", "data_available", "hpu_initialized"} <= ready["checks"].keys()


def test_the_callback_is_called_as_in_the_document():
    """The documented calls of the Lightning callback match its signatures."""
    pytest.importorskip("lightning.pytorch")
    for name, written in CALLS.items():
        if name.startswith(CALLBACK) and written is not None:
            check_call(find_attribute(name), written)
