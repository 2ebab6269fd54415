"""Notifications that a training run sends about its alerts."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.webhooks import WebhookReceiver
from trainvitals import TrainingMonitor
from trainvitals.alerting.notifier import Webhook
from trainvitals.training.resourcemonitor import ResourceMonitor

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"


@pytest.fixture
def receiver():
    """Yield a webhook receiver."""
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def make(tmp_path, receiver):
    """Yield a function that makes monitors that notify the receiver, and finish them at the end."""
    monitors = []

    def make(**options):
        options.setdefault("notify", (Webhook(receiver.url()),))
        environ = options.pop("environ", {})
        monitor = TrainingMonitor("bert", run_dir=tmp_path, environ=environ, **options)
        monitors.append(monitor)
        return monitor

    yield make
    for monitor in monitors:
        monitor.finish()


def titles(receiver):
    """Return the sorted states and titles of the received alerts."""
    return sorted(
        (each.json["status"], alert["labels"]["alertname"])
        for each in receiver.messages
        for alert in each.alerts
    )


def run_python(code, tmp_path, **environ):
    """Run a training script and return its exit code, its duration and its output."""
    began = time.monotonic()
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"PYTHONPATH": str(SOURCE_ROOT), "TRAINVITALS_RUN_DIR": str(tmp_path)}
        | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return answer.returncode, time.monotonic() - began, answer.stdout + answer.stderr


def test_an_alert_is_told_when_it_is_raised_and_when_it_is_over(make, receiver):
    """An alert is sent once when it is raised and once when it is cleared, with run and host."""
    monitor = make()
    for _ in range(3):
        monitor.raise_alert("memory_pressure", "High memory usage: 93.0%")
    message = receiver.wait_for(lambda each: each.status == "firing")
    assert message.json["commonAnnotations"] == {
        "summary": "bert: memory nearly full",
        "description": "High memory usage: 93.0%",
    }
    assert message.json["commonLabels"]["host"] == os.uname().nodename
    for _ in range(3):
        monitor.clear_alert("memory_pressure")
    receiver.wait_for(lambda each: each.status == "resolved")
    monitor.raise_alert("gpu_temperature", "")
    monitor.fail(ValueError("a secret"))
    last = receiver.wait_for(lambda each: "run failed" in each.body.decode())
    assert "ValueError" in last.body.decode()
    assert "a secret" not in last.body.decode()
    assert len(receiver.messages) == 3


def test_a_loss_that_is_no_number_is_told(make, receiver):
    """A NaN loss is sent once, and later NaN or infinite losses are not sent again."""
    monitor = make()
    for loss in (1.0, float("nan"), float("nan")):
        monitor.update_batch(1, loss=loss)
    monitor.start_epoch()
    receiver.wait_for(lambda each: "loss is NaN" in each.body.decode())
    monitor.update_batch(1, loss=float("inf"))
    monitor.start_epoch()
    monitor.raise_alert("io_bottleneck")
    receiver.wait_for(lambda each: "waiting for data" in each.body.decode())
    assert len(receiver.messages) == 2


def test_a_loss_that_jumps_is_told(make, receiver):
    """A jump of the loss from 1 to 50 sends a notification of a loss spike."""
    monitor = make()
    for step in range(200):
        monitor.update_batch(1, loss=50.0 if step > 110 else 1.0)
    receiver.wait_for(lambda each: "loss spike" in each.body.decode())


def test_nobody_is_told_unless_somebody_asks(make, receiver):
    """A destination in the environment sends nothing unless notifications are switched on."""
    url = {"WEBHOOK_URL": receiver.url()}
    for options in (
        {"notify": None, "environ": url},
        {"notify": None, "environ": url | {"TRAINVITALS_NOTIFY": "0"}},
        {"notify": False, "environ": url | {"TRAINVITALS_NOTIFY": "1"}},
        {"notify": ()},
    ):
        assert make(**options)._notices is None
    make(notify=None, environ=url | {"TRAINVITALS_NOTIFY": "1"}).raise_alert("io_bottleneck")
    receiver.wait_for(lambda each: "waiting for data" in each.body.decode())
    make(notify=True, environ=url).raise_alert("gpu_temperature")
    receiver.wait_for(lambda each: "GPU hot" in each.body.decode())
    assert len(receiver.messages) == 2


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TRAINVITALS_NOTIFY": "1"}, "set one of SLACK_WEBHOOK_URL"),
        ({"TRAINVITALS_NOTIFY": "maybe"}, "TRAINVITALS_NOTIFY is neither true nor false"),
        (
            {"TRAINVITALS_NOTIFY": "1", "SLACK_WEBHOOK_URL": "SECRET"},
            "SLACK_WEBHOOK_URL is not a URL",
        ),
        ({"TRAINVITALS_NOTIFY": "1", "SMTP_TO": "a@b.c"}, "SMTP_SMARTHOST is not"),
    ],
)
def test_what_cannot_be_is_said_once_and_training_goes_on(make, caplog, environ, words):
    """An invalid destination causes one warning that does not contain its value."""
    monitor = make(notify=None, environ=environ)
    monitor.update_batch(1)
    assert monitor.errors.count == 0
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "SECRET" not in record.getMessage().replace("SECRET_", "")
    assert record.getMessage().startswith("no messages are sent about run bert: ")


def test_one_rank_tells_of_the_run_and_one_of_each_machine(make, receiver):
    """Rank 0 sends the alerts of the run, and one rank of each machine those of the machine."""
    ranks = {
        rank: make(
            rank=rank, environ={"RANK": str(rank), "LOCAL_RANK": str(rank % 8), "WORLD_SIZE": "16"}
        )
        for rank in (0, 1, 8, 9)
    }
    assert [rank for rank, monitor in ranks.items() if monitor._notices] == [0, 8]
    for monitor in ranks.values():
        monitor.raise_alert("memory_pressure")
        monitor.raise_alert("adaptive_step_time")
        monitor.update_batch(1, loss=float("nan"))
        monitor.start_epoch()
    wanted = [
        ("firing", "bert: loss is NaN or infinite"),
        ("firing", "bert: memory nearly full"),
        ("firing", "bert: memory nearly full"),
        ("firing", "bert: steps slower than usual"),
    ]
    deadline = time.monotonic() + 60
    while len(receiver.messages) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    for monitor in ranks.values():
        monitor.finish()
    assert titles(receiver) == wanted


def test_the_callback_tells_what_it_prints(make, receiver):
    """The notification of a resource callback has the same text as the printed alert."""
    printed = []
    monitor = make()
    callback = ResourceMonitor(
        monitor=monitor,
        memory_threshold=0.0,
        gpu_monitoring=False,
        io_monitoring=False,
        export_timeseries=False,
        write=printed.append,
    )
    callback._sample_batch(0, 0, prints=True)
    message = receiver.wait_for(lambda each: each.status == "firing")
    text = message.json["commonAnnotations"]["description"]
    assert text.startswith("High memory usage: ")
    assert text in printed[0]


LOOP = """
import multiprocessing, os, sys, time
from trainvitals import TrainingMonitor
monitor = TrainingMonitor("bert")
{body}
"""


@pytest.mark.parametrize(
    "body",
    [
        "child = os.fork(); monitor.raise_alert('io_bottleneck'); child and os.wait()",
        """
fork = multiprocessing.get_context("fork")
p = fork.Process(target=monitor.raise_alert, args=("io_bottleneck",))
p.start(); p.join(); monitor.raise_alert("io_bottleneck")
""",
    ],
)
def test_children_that_are_forked_tell_nobody(tmp_path, receiver, body):
    """The monitor in a forked child sends nothing, and the run's own monitor sends one alert."""
    code, _, said = run_python(
        LOOP.format(body=body), tmp_path, TRAINVITALS_NOTIFY="1", WEBHOOK_URL=receiver.url()
    )
    assert code == 0, said
    assert titles(receiver) == [("firing", "bert: waiting for data")]


def test_a_spawned_worker_has_no_thread(tmp_path, receiver):
    """A monitor in a spawned worker starts no thread and sends nothing."""
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, threading\n"
        "from trainvitals import TrainingMonitor\n"
        "monitor = TrainingMonitor('bert')\n"
        "def work(other):\n"
        "    other.raise_alert('io_bottleneck'); monitor.raise_alert('io_bottleneck')\n"
        "    assert threading.active_count() == 1\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.get_context('spawn').Process(target=work, args=(monitor,), daemon=True)\n"
        "    p.start(); p.join(); assert p.exitcode == 0\n",
        encoding="utf-8",
    )
    code, _, said = run_python(
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(script)!r}]))",
        tmp_path,
        TRAINVITALS_NOTIFY="1",
        WEBHOOK_URL=receiver.url(),
    )
    assert code == 0, said
    assert receiver.messages == []


def test_an_exception_that_nobody_caught_is_told(tmp_path, receiver):
    """An uncaught exception sends "run failed" without the exception's message."""
    code, _, said = run_python(
        LOOP.format(body="raise MemoryError('SECRET')"),
        tmp_path,
        TRAINVITALS_NOTIFY="1",
        WEBHOOK_URL=receiver.url(),
    )
    assert code == 1
    assert "MemoryError: SECRET" in said
    assert titles(receiver) == [("firing", "bert: run failed")]
    assert "SECRET" not in json.dumps([each.json for each in receiver.messages])


def test_a_run_ends_in_time_whatever_the_network_does(tmp_path):
    """With an unresponsive name server, steps are not delayed and the run ends in time."""
    body = """
import socket, threading
socket.getaddrinfo = lambda *a, **k: threading.Event().wait(300)
began = time.monotonic()
for step in range(2000):
    monitor.update_batch(1, loss=float("nan"))
    monitor.raise_alert("io_bottleneck"); monitor.clear_alert("io_bottleneck")
print("loop", time.monotonic() - began)
"""
    code, seconds, said = run_python(
        LOOP.format(body=body),
        tmp_path,
        TRAINVITALS_NOTIFY="1",
        SLACK_WEBHOOK_URL="https://hooks.slack.invalid/SECRET",
    )
    assert code == 0, said
    assert float(said.split()[1]) < 20.0
    assert seconds < 60.0
    assert "SECRET" not in said


def test_a_monitor_that_tells_nobody_loads_no_network():
    """A monitor without notifications imports no HTTP or mail client."""
    code = (
        "import sys; from trainvitals import TrainingMonitor; TrainingMonitor('x').finish();"
        "print(sorted({'urllib.request', 'smtplib', 'tenacity', 'circuitbreaker', 'ssl',"
        " 'trainvitals.retry', 'trainvitals.alerting.notifier'}"
        " & set(sys.modules)))"
    )
    assert run_python(code, Path("/tmp"))[2] == "[]\n"
