"""`trainvitals serve` as a process: its shutdown, its child processes and its imports."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess
from tests.support.waiting import wait_until

SOURCE_ROOT = Path(__file__).parents[2] / "exporter"
LISTENS = re.compile(r"info trainvitals \S+ listens on 127\.0\.0\.1:\d+$")


@pytest.fixture
def machine(tmp_path):
    """Start a fake machine with four GPUs."""
    with FakeMachine(tmp_path, gpus=4) as machine:
        yield machine


@pytest.fixture
def start(tmp_path, machine):
    """Return a function that starts exporters on the machine; end them afterwards."""
    started = []

    def start_exporter(*arguments):
        started.append(ExporterProcess(tmp_path, machine, arguments=arguments))
        return started[-1]

    yield start_exporter
    for exporter in started:
        exporter.end()


def wait_for_end(exporter):
    """Wait at most 20 s, less than an end that waits for a hung call or an idle client takes."""
    wait_until(lambda: not exporter.is_running, 20, describe=lambda: exporter.log)


def assert_gone(processes):
    """Wait for the processes to end."""
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.flaky(reruns=3, only_rerun="AssertionError")  # a stalled exporter serves fewer values
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("isolate", [False, True])
def test_a_scrape_in_flight_is_answered_before_the_end(machine, start, number, isolate):
    """A signal during a scrape lets the exporter answer before it ends with its child processes."""
    exporter = start(*["--accelerators.isolate"][:isolate])
    exporter.scrape_until(lambda page: page.value("accelerator_devices", kind="gpu") == 4)
    children = exporter.children()
    assert len(children) == int(isolate)
    time.sleep(0.21)
    machine.delay(5_000)

    def count_calls() -> int:
        # Threads that wait for events also call the driver, with or without a scrape.
        return machine.calls_by_function()["nvmlDeviceGetTemperature"]

    calls = count_calls()
    with ThreadPoolExecutor(1) as pool:
        scrape = pool.submit(exporter.scrape)
        while count_calls() == calls:
            time.sleep(0.001)
        exporter.signal(number)
        page = scrape.result(timeout=60)
    wait_for_end(exporter)
    assert page.status == 200
    assert page.value("accelerator_devices", kind="gpu") == 4
    assert page.value("trainvitals_collector_success", collector="accelerator") == 1
    assert exporter.end() == 0
    assert_gone(children)
    assert "Traceback" not in exporter.log
    lines = exporter.log.splitlines()
    assert LISTENS.search(lines[0])
    assert lines[-1].endswith(" info trainvitals ends")


@pytest.mark.parametrize("isolate", [False, True])
def test_it_ends_at_once_while_a_driver_call_hangs(machine, start, isolate):
    """The exporter and its child process end promptly while a driver call hangs."""
    exporter = start(*["--accelerators.isolate"][:isolate])
    exporter.scrape()
    children = exporter.children()
    machine.hang("nvmlDeviceGetTemperature")
    time.sleep(0.21)
    assert exporter.scrape(timeout=50.0).seconds < 20
    exporter.signal(signal.SIGTERM)
    wait_for_end(exporter)
    assert exporter.end() == 0
    assert_gone(children)
    assert "Traceback" not in exporter.log


@pytest.mark.parametrize("hang", [None, "nvmlDeviceGetTemperature", "nvmlInit"])
def test_killed_it_leaves_no_child(machine, start, hang):
    """The child process exits after SIGKILL of the exporter, even if its driver call hangs."""
    if hang == "nvmlInit":
        machine.hang(hang)
    exporter = start("--accelerators.isolate")
    if hang == "nvmlDeviceGetTemperature":
        exporter.scrape()
        machine.hang(hang)
        time.sleep(0.21)
    exporter.scrape(timeout=1.0)
    children = exporter.children()
    assert len(children) == 1
    exporter.signal(signal.SIGKILL)
    wait_for_end(exporter)
    assert_gone(children)


def test_sighup_reads_the_files_again(tmp_path, start):
    """After SIGHUP a changed file applies, an invalid file is reported, and the exporter lives."""
    log, patterns = tmp_path / "train.log", tmp_path / "patterns.yml"
    text = "patterns: [{name: own, regex: '%s (?P<loss>[0-9.]+)'}]\n"
    patterns.write_text(text % "first")
    web = tmp_path / "web.yml"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    exporter = start(
        f"--web.config.file={web}", f"--trainlog.glob={log}", f"--trainlog.patterns={patterns}"
    )
    log.write_text("first 0.5\n")
    exporter.scrape_until(lambda page: page.value("training_loss") == 0.5, "training")
    patterns.write_text(text % "second")
    exporter.signal(signal.SIGHUP)
    wait_until(lambda: "reading the files again" in exporter.log, describe=lambda: exporter.log)
    with log.open("a") as file:
        file.write("second 0.25\n")
    exporter.scrape_until(lambda page: page.value("training_loss") == 0.25, "training")
    patterns.write_text("patterns: {")
    exporter.signal(signal.SIGHUP)
    page = exporter.scrape_until(
        lambda page: page.value("trainvitals_collector_success", collector="training") == 0
    )
    (reason,) = page.find("trainvitals_collector_failure_info", collector="training")
    assert "patterns.yml" in reason.labels["reason"]
    assert exporter.log.count("web.yml was read again") == 2
    assert exporter.end() == 0
    assert "Traceback" not in exporter.log


def test_a_client_that_comes_too_late_is_refused(start):
    """The exporter refuses new connections after SIGTERM."""
    exporter = start()
    exporter.scrape()
    exporter.signal(signal.SIGTERM)
    wait_for_end(exporter)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", exporter.port), timeout=30)


def test_an_idle_connection_does_not_delay_the_end(start):
    """The exporter closes an idle connection and ends with exit code 0."""
    exporter = start()
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=30) as client:
        client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        exporter.signal(signal.SIGTERM)
        wait_for_end(exporter)
        assert client.recv(1 << 16) == b""
    assert exporter.end() == 0


def test_it_loads_only_what_it_needs(tmp_path):
    """Without a web configuration, `serve` does not import TLS, YAML, bcrypt or psutil."""
    code = (
        "import json, sys; from trainvitals.cli import main;"
        "main(['serve', '--web.listen-address=nowhere']);"
        "print(json.dumps(sorted(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE_ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in json.loads(answer.stdout)}
    unwanted = {"yaml", "ssl", "bcrypt", "requests", "psutil", "prometheus_client", "supervisor"}
    assert "h11" in loaded
    assert (
        loaded & (unwanted | {"pynvml", "pyhlml", "asyncio", "http", "email", "decimal", "html"})
        == set()
    )


def test_a_collector_that_is_turned_off_is_not_there(start):
    """`--no-collector.NAME` removes the metrics and the status of a collector."""
    exporter = start("--no-collector.pressure", "--no-collector.accelerator")
    page = exporter.scrape()
    collectors = page.values("trainvitals_collector_success", by="collector")
    assert {"cpu", "memory", "disk", "network", "filesystem", "kernel", "process"} <= set(
        collectors
    )
    assert not {"pressure", "accelerator"} & set(collectors)
    assert page.find("host_pressure_stalled_seconds_total") == []
    assert exporter.get("/metrics?collect[]=pressure").status == 400


def test_log_lines_are_json_for_who_wants_it(start):
    """With `--log.format=json` each log line, including the last one, is a JSON object."""
    exporter = start("--log.format=json")
    assert exporter.end() == 0, exporter.log
    entries = [json.loads(line) for line in exporter.log.splitlines()]
    assert entries[0]["message"].endswith(f" listens on 127.0.0.1:{exporter.port}")
    assert entries[-1]["message"] == "trainvitals ends"
    assert {entry["logger"] for entry in entries} >= {"trainvitals.commands.serve"}
