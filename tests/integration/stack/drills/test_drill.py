"""The command `trainvitals drill` with a real Prometheus and a real Alertmanager."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until
from tests.unit.alerting.test_delay import CRITICAL, SLOWER
from trainvitals.sources.prometheus import Prometheus
from trainvitals.stack.drills import FAULTS

SOURCES = Path(__file__).parents[4] / "exporter"
ONE_OF_EACH_GROUP = (
    "HPUHighTemperature",
    "HighMemoryUsage",
    "TrainingRunLost",
    "HostOOMKill",
    "ContainerDied",
    "ExporterJobDown",
)
SHOWN_TO_A_PERSON = "TrainingRunLost"  # as docs/alerting.md shows it
AT_ONCE = 6
PATIENCE_SECONDS = 300
_SPAN = re.compile(r" *\d+(?:\.\d+)?m?s\b")
MOST_SECONDS = 90


def start_drill(alert, directory, *flags, webhook="http://127.0.0.1:9/", notify_info=False):
    """Start a drill with one channel, which receives alerts of severity info if `notify_info`."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "trainvitals", "drill", alert, *flags],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCES),
            "XDG_STATE_HOME": str(directory),
            "TMPDIR": str(directory),
            "WEBHOOK_URL": webhook,
            "NOTIFY_INFO": str(int(notify_info)),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_drill(alert, directory, *flags, patience=PATIENCE_SECONDS, **options):
    """Run a drill to its end and return the completed process."""
    with start_drill(alert, directory, *flags, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=patience)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def drill_all(alerts, directory, *flags, at_once=AT_ONCE, patience=PATIENCE_SECONDS, **options):
    """Run several drills in parallel and return their JSON results by alert."""

    def run(alert):
        return run_drill(alert, directory, "--json", *flags, patience=patience, **options)

    with ThreadPoolExecutor(at_once) as pool:
        ends = list(pool.map(run, alerts))
    assert [end.stderr for end in ends] == [""] * len(ends)
    return {alert: json.loads(end.stdout) for alert, end in zip(alerts, ends, strict=True)}


@pytest.fixture(scope="module")
def drilled(tmp_path_factory, prometheus, alertmanager):
    """Return the results of parallel drills, the output of one drill, and their directory."""
    directory = tmp_path_factory.mktemp("drilled")
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(run_drill, SHOWN_TO_A_PERSON, directory)
        told = drill_all(ONE_OF_EACH_GROUP, directory)
    return told, seen.result(), directory


def test_faults_of_every_group_become_messages_and_end(drilled):
    """The drill of an alert of each group passes, with the receiver of the alert's severity."""
    told, _, _ = drilled
    assert {alert: each["passed"] for alert, each in told.items()} == dict.fromkeys(told, True)
    assert {alert: each["receivers"] for alert, each in told.items()} == {
        "HPUHighTemperature": ["page"],
        "HighMemoryUsage": ["chat"],
        "TrainingRunLost": ["page"],
        "HostOOMKill": ["page"],
        "ContainerDied": ["chat"],
        "ExporterJobDown": ["page"],
    }
    assert (
        told["HPUHighTemperature"]["pending_seconds"] < told["HPUHighTemperature"]["firing_seconds"]
    )
    assert "signal 9" in told["TrainingRunLost"]["message"]
    assert "after step 4242" in told["TrainingRunLost"]["message"]
    assert told["ExporterJobDown"]["message"].startswith("None of the 3 targets of job trainvitals")


def test_a_person_sees_each_step(drilled):
    """A drill prints a line for each step and the verdict last, and leaves no process."""
    _, end, directory = drilled
    lines = end.stdout.splitlines()
    assert end.returncode == 0, end.stderr
    assert lines[0].endswith("all durations divided by 60")
    begun = max(at for at, line in enumerate(lines) if line.endswith("a run is killed by SIGKILL"))
    assert [
        line.strip().partition("  ")[2].partition(":")[0] for line in lines[begun + 1 : -1]
    ] == [
        "the alert fires",
        "delivered to page",
        "the fault is removed",
        "resolved message delivered to page",
    ]
    assert lines[-1].startswith("passed: delivered ")
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in process.info["cmdline"] or ())
    ]


def test_the_document_shows_what_a_person_sees(drilled):
    """The example in docs/alerting.md equals a drill's output, except for times and ellipses."""
    page = (SOURCES.parent / "docs/alerting.md").read_text(encoding="utf-8")
    shown = page.split(f"make monitor-drill ALERT={SHOWN_TO_A_PERSON} ")[1].split("\n```")[0]
    lines = [_SPAN.sub(" N", line) for line in drilled[1].stdout.splitlines()]
    for line, told in zip(shown.splitlines()[1:], lines, strict=True):
        pattern = re.escape(_SPAN.sub(" N", line)).replace("…", ".+")
        assert re.fullmatch(pattern, told), line


@pytest.mark.parametrize(
    ("alert", "words"),
    [
        ("HPUHighTemperature", "was delivered to page, which has no channel"),
        ("TrainingOverdue", "set NOTIFY_INFO=1"),
    ],
)
def test_a_message_that_reaches_no_one_fails(alert, words, tmp_path, prometheus, alertmanager):
    """A drill whose message has no channel fails, and its last lines say what to configure."""
    end = run_drill(alert, tmp_path, webhook="")
    assert end.returncode == 1, end.stderr
    assert words in end.stdout.splitlines()[-2] + end.stdout.splitlines()[-1]


def find_prometheus(pid):
    """Return a client of the Prometheus that a drill has started."""
    commands = [child.cmdline() for child in psutil.Process(pid).children()]
    (command,) = [each for each in commands if each[0].endswith("/prometheus")]
    (address,) = [word for word in command if word.startswith("--web.listen-address=")]
    return Prometheus(f"http://{address.partition('=')[2]}")


def is_firing(prometheus, alert):
    """Return whether an alert fires."""
    return any(
        each.state == "firing" and each.labels["alertname"] == alert
        for each in prometheus.list_alerts()
    )


def test_a_busy_machine_is_drilled_more_slowly(tmp_path, prometheus, alertmanager):
    """A drill restarts with longer durations if its simulated machine gets no CPU time."""
    with start_drill("ExporterDown", tmp_path) as process:
        try:
            said = ""
            while "is scraped" not in said:
                said += process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            prometheus_of_drill = find_prometheus(process.pid)
            wait_until(lambda: is_firing(prometheus_of_drill, "ExporterDown"))
            process.send_signal(signal.SIGCONT)
            rest, trouble = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, said + rest + trouble
    assert "the drill begins again, durations divided by 7.5" in rest
    assert rest.splitlines()[-1].startswith("passed: ")


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.skipif(
    os.environ.get("TRAINVITALS_TEST_LONG") != "1",
    reason="half an hour at real durations; tests/unit/alerting/test_delay.py works them out",
)
def test_every_critical_fault_is_a_message_within_90_seconds(
    tmp_path, prometheus, alertmanager, capsys
):
    """Each critical alert is delivered within 90 seconds of its fault, at real durations.

    The test prints the rows of the table in docs/alerting.md.
    """
    drilled = {fault.alert for fault in FAULTS} & CRITICAL.keys() - SLOWER.keys()
    told = drill_all(sorted(drilled), tmp_path, "--real", at_once=len(drilled), patience=3600)
    seconds = {alert: each["delivered_seconds"] for alert, each in told.items()}
    with capsys.disabled():
        print("", *(f"| {alert} | {took:.0f} |" for alert, took in seconds.items()), sep="\n")
    assert {alert for alert, each in told.items() if not each["passed"]} == set()
    assert {alert: took for alert, took in seconds.items() if took > MOST_SECONDS} == {}


@pytest.mark.long
@pytest.mark.skipif(
    os.environ.get("TRAINVITALS_TEST_LONG") != "1",
    reason="six minutes for all; one of each group is drilled above",
)
def test_every_fault_becomes_a_message_and_ends(tmp_path, prometheus, alertmanager):
    """The drill of every alert that can be drilled passes."""
    told = drill_all([fault.alert for fault in FAULTS], tmp_path, notify_info=True)
    assert {alert for alert, each in told.items() if not each["passed"]} == set()
