"""Drills with a real Prometheus and a real Alertmanager, as a person starts them."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from trainvitals.drill import FAULTS

SOURCES = Path(__file__).parents[2] / "exporter"
ONE_OF_EACH_GROUP = (
    "HPUHighTemperature",
    "HighMemoryUsage",
    "TrainingRunLost",
    "HostOOMKill",
    "ContainerDied",
    "ExporterDown",
)
TOLD_TO_A_PERSON = "AcceleratorXidCritical"
AT_ONCE = 6
PATIENCE_SECONDS = 300


def run_drill(alert, directory, *flags):
    """Run the command and give what it returned."""
    return subprocess.run(
        [sys.executable, "-m", "trainvitals", "drill", alert, *flags],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "XDG_STATE_HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def drill_all(alerts, directory):
    """Run some drills at once and give what each told, by its alert."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = list(pool.map(lambda alert: run_drill(alert, directory, "--json"), alerts))
    assert [end.stderr for end in ends] == [""] * len(ends)
    return {alert: json.loads(end.stdout) for alert, end in zip(alerts, ends, strict=True)}


@pytest.fixture(scope="module")
def drilled(tmp_path_factory, prometheus, alertmanager):
    """Give what drills told that ran beside each other, and the one that a person sees."""
    directory = tmp_path_factory.mktemp("drilled")
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(run_drill, TOLD_TO_A_PERSON, directory)
        told = drill_all(ONE_OF_EACH_GROUP, directory)
    return told, seen.result()


def test_faults_of_every_group_become_messages_and_end(drilled):
    """A message arrives, and one that it is over, for the receiver that the severity asks for."""
    told, _ = drilled
    assert {alert: each["passed"] for alert, each in told.items()} == dict.fromkeys(told, True)
    assert {alert: each["receivers"] for alert, each in told.items()} == {
        "HPUHighTemperature": ["page"],
        "HighMemoryUsage": ["chat"],
        "TrainingRunLost": ["page"],
        "HostOOMKill": ["page"],
        "ContainerDied": ["chat"],
        "ExporterDown": ["page"],
    }
    assert (
        told["HPUHighTemperature"]["pending_seconds"] < told["HPUHighTemperature"]["firing_seconds"]
    )
    assert "signal 9" in told["TrainingRunLost"]["message"]
    assert "after step 4242" in told["TrainingRunLost"]["message"]


def test_person_is_told_each_step(drilled):
    """Each step has a line with its second, and the last line is the verdict; nothing is left."""
    _, end = drilled
    lines = end.stdout.splitlines()
    assert end.returncode == 0, end.stderr
    assert lines[0].endswith("all durations divided by 60")
    assert lines[2].endswith("a GPU reports Xid 79")
    assert [line.partition(" s  ")[2].partition(":")[0] for line in lines[3:-1]] == [
        "the alert fires",
        "delivered to page",
        "the fault is taken away",
        "its end is delivered to page",
    ]
    assert lines[-1].startswith("passed: delivered ")
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if any("trainvitals-drill-" in word for word in process.info["cmdline"] or ())
    ]


@pytest.mark.long
@pytest.mark.skipif(
    os.environ.get("TRAINVITALS_TEST_LONG") != "1",
    reason="six minutes for all; one of each group is drilled above",
)
def test_every_fault_becomes_a_message_and_ends(tmp_path, prometheus, alertmanager):
    """Every alert that can be drilled is delivered, and its end too."""
    told = drill_all([fault.alert for fault in FAULTS], tmp_path)
    assert {alert for alert, each in told.items() if not each["passed"]} == set()
