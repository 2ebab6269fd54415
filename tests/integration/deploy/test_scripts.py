"""The files of `scripts/`, each of which calls a command with its own arguments."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.deaths import unpack_death
from tests.unit.record.snapshots import WHOLE
from trainvitals.record.formats import CsvFormat

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"


@pytest.fixture
def call(tmp_path):
    """Return a function that runs a script in an empty home directory and returns its output."""

    def call(name, *arguments, expect=(0,), environ=None):
        program = sys.executable if name.endswith(".py") else "bash"
        answer = subprocess.run(
            [program, SCRIPTS / name, *map(str, arguments)],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "exporter"),
                "HOME": str(tmp_path),
                "TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths"),
                **(environ or {}),
            },
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert answer.returncode in expect, answer.stderr
        assert "Traceback" not in answer.stderr
        return answer.stdout

    return call


def test_the_dashboard(call):
    """`runner-dashboard.sh` draws a screen that has the CPU."""
    assert "cpu" in call("runner-dashboard.sh", "--local", "--once").lower()


def test_the_monitor(call, tmp_path):
    """`monitor-runner.sh` writes a file in `~/runner-monitoring`."""
    call("monitor-runner.sh", "--once", "--containers.engine=none")
    (path,) = (tmp_path / "runner-monitoring").iterdir()
    assert "\nmemory     " in path.read_text()


def test_the_diagnosis(call, tmp_path):
    """`diagnose-container-death.sh` explains a death from a folder of evidence."""
    case = unpack_death("oom-cgroup", tmp_path)
    document = json.loads(
        call("diagnose-container-death.sh", "--evidence", case, "--json", expect={1})
    )
    assert document["reason"] == "oom-cgroup"


def test_the_settings_of_docker(call, tmp_path):
    """`setup-docker-logging.sh` writes Docker's settings."""
    path = tmp_path / "daemon.json"
    path.write_text("{}")
    call("setup-docker-logging.sh", "--file", path, "--engine", "none")
    assert json.loads(path.read_text())["live-restore"] is True


def test_the_health_of_the_infrastructure(call):
    """`infrastructure_health.sh` prints its checks, whatever their results are."""
    document = json.loads(call("infrastructure_health.sh", "--json", expect={0, 1}))
    assert document["checks"]


def test_the_health_shows_memory_and_temperature_of_cards(call, tmp_path):
    """`infrastructure_health.sh` prints the memory and temperature of each Gaudi card."""
    with FakeMachine(tmp_path, gpus=0, hpus=2) as machine:
        machine.hpu(1).temperature = 77
        out = call("infrastructure_health.sh", expect={0, 1}, environ=machine.environment())
    lines = [line.split(":")[0].strip() for line in out.splitlines() if "temperature 77 " in line]
    assert lines == ["hpu1"]
    cards = re.findall(r"^ +(hpu\d): memory [\d.]+ / 128 GiB, temperature", out, re.MULTILINE)
    assert cards == ["hpu0", "hpu1"]


def test_the_plot(call, tmp_path):
    """`plot_resources.py` without a name plots the first epoch into the working directory."""
    logs = tmp_path / "resource_logs"
    logs.mkdir()
    piece = CsvFormat().write(WHOLE)
    (logs / "epoch_1.csv").write_text(piece.head + piece.text)
    call("plot_resources.py")
    assert (tmp_path / "resource_timeline.png").stat().st_size > 1000


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_a_call(path):
    """Each shell script is executable, has four lines, and ends with a call of `trainvitals`."""
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("exec trainvitals ")
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("path", sorted(SCRIPTS.iterdir()), ids=lambda path: path.name)
def test_without_the_program_it_says_what_to_do(path, tmp_path):
    """In a checkout without an installation, a script fails and says to use `pip install`."""
    there = tmp_path / "checkout/scripts"
    there.mkdir(parents=True)
    script = shutil.copy(path, there)
    program = [sys.executable, "-S", "-I"] if path.suffix == ".py" else ["bash"]
    answer = subprocess.run(
        [*program, script],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert "pip install" in line
