"""The native stack, with a real supervisor and a real Prometheus."""

import functools
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from trainvitals.errors import StackError
from trainvitals.stack import bring_up, describe, follow_logs, take_down
from trainvitals.stack.leftovers import end_processes, marked_processes
from trainvitals.stack.supervision import PIDFILE

SOURCES = Path(__file__).parents[2] / "exporter"
STAND_IN_PROMETHEUS = Path(__file__).parent / "stand_ins/prometheus.py"


def no_prometheus(name):
    """Find nothing, as on a machine without Prometheus."""
    raise StackError(f"no {name} here")


bring_up_exporter = functools.partial(bring_up, find=no_prometheus)


def is_free(port):
    """Tell whether nothing listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def nothing_runs(settings):
    """Tell whether no process and no port of the stack is left."""
    ports = (settings.exporter_port, settings.prometheus_port)
    return not marked_processes(settings.state_dir) and all(map(is_free, ports))


def pids(settings):
    """Give the process ids by program."""
    return {program.name: program.pid for program in describe(settings).programs}


def wait_for(condition, patience_seconds=15.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def stack(new_settings, prometheus, tmp_path_factory):
    """Bring a whole stack up; give its settings and what was reported."""
    settings, told = new_settings(tmp_path_factory.mktemp("whole")), []
    bring_up(settings, find=lambda _: prometheus, report=told.append)
    yield settings, told
    take_down(settings, report=told.append)


@pytest.fixture
def settings(new_settings, tmp_path):
    """Give settings whose stack is taken down after the test."""
    settings = new_settings(tmp_path / "state")
    yield settings
    take_down(settings, report=print)


def test_whole_stack_works_and_says_where(stack):
    """After `up` everything answers, the exporter is scraped, and each address was printed."""
    settings, told = stack
    exporter = f"http://127.0.0.1:{settings.exporter_port}"
    prometheus = f"http://127.0.0.1:{settings.prometheus_port}"
    assert told == [
        f"exporter answers at {exporter}",
        f"prometheus answers at {prometheus}",
        f"prometheus scrapes {exporter}/metrics",
        f"the stack runs natively; data and logs are in {settings.state_dir}",
    ]
    status = describe(settings)
    assert status.fine
    assert status.way == "native"
    assert [(each.health, each.url) for each in status.targets] == [("up", f"{exporter}/metrics")]
    assert not marked_processes(settings.state_dir.parent)


def test_second_up_changes_nothing(stack, prometheus):
    """A second `up` keeps every process and says that all runs already."""
    settings, _ = stack
    before, told = pids(settings), []
    bring_up(settings, find=lambda _: prometheus, report=told.append)
    assert told[0] == "already running"
    assert pids(settings) == before


def test_state_directory_is_private(new_settings, tmp_path):
    """Nobody else may read the data or talk to the supervisor."""
    settings = new_settings(tmp_path / "a/b")
    take_down(settings, report=print)
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700


def test_status_needs_no_flags(stack):
    """A running stack is found where it was started, whatever the settings say now."""
    settings, _ = stack
    assert describe(replace(settings, exporter_port=1, prometheus_port=2)).fine


def test_dead_program_is_started_again(stack):
    """The supervisor replaces an exporter that was killed."""
    settings, _ = stack
    before = pids(settings)
    os.kill(before["exporter"], signal.SIGKILL)
    wait_for(lambda: describe(settings).fine and pids(settings) != before)
    assert pids(settings)["prometheus"] == before["prometheus"]


def test_target_that_does_not_answer_is_told(stack):
    """While the exporter hangs, the status says so and is not fine."""
    settings, _ = stack
    exporter = psutil.Process(pids(settings)["exporter"])
    exporter.suspend()
    try:
        status = describe(settings)
        assert not status.fine
        assert [each.answers for each in status.programs] == [False, True]
    finally:
        exporter.resume()


def test_logs_are_followed(stack):
    """The logs show what Prometheus said."""
    settings, _ = stack
    code = (
        "import sys; from pathlib import Path; from trainvitals.stack import *;"
        "follow_logs(Settings(Path(sys.argv[1])))"
    )
    command = (sys.executable, "-c", code, str(settings.state_dir))
    environ = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environ, start_new_session=True
    ) as reader:
        shown = ""
        while "Server is ready to receive web requests" not in shown:
            line = reader.stdout.readline()
            assert line, shown
            shown += line
        os.killpg(reader.pid, signal.SIGTERM)


def test_no_logs_yet(new_settings, tmp_path):
    """Before the first `up` there is nothing to follow."""
    with pytest.raises(StackError, match="start the stack"):
        follow_logs(new_settings(tmp_path))


def test_machine_without_prometheus_gets_the_exporter(settings):
    """Where there is no Prometheus to be had, the exporter runs alone and the reason is told."""
    told = []
    bring_up_exporter(settings, report=told.append)
    assert told[0] == "no Prometheus: no prometheus here"
    assert "the exporter with its live page alone" in told[-1]
    status = describe(settings)
    assert status.fine
    assert status.way == "exporter alone"
    told.clear()
    take_down(settings, report=told.append)
    take_down(settings, report=told.append)
    assert told == ["stopped exporter", "nothing is running"]
    assert nothing_runs(settings)
    assert [(each.state, each.pid) for each in describe(settings).programs] == [
        ("stopped", None),
        ("stopped", None),
    ]


def test_changed_settings_replace_the_stack(settings, free_ports):
    """`up` with another port moves the exporter there."""
    bring_up_exporter(settings, report=print)
    moved, told = replace(settings, exporter_port=free_ports()[0]), []
    bring_up_exporter(moved, report=told.append)
    assert "stopped exporter: the stack was not whole or its settings changed" in told
    assert is_free(settings.exporter_port)
    assert describe(settings).fine


def test_killed_supervisor(settings):
    """After kill -9 of the supervisor its programs are seen, and `down` ends them."""
    bring_up_exporter(settings, report=print)
    os.kill(int((settings.state_dir / PIDFILE).read_text()), signal.SIGKILL)
    wait_for(lambda: describe(settings).programs[0].state == "unsupervised")
    assert not describe(settings).fine
    told = []
    take_down(settings, report=told.append)
    assert told == ["stopped exporter"]
    assert nothing_runs(settings)


def test_program_that_ignores_sigterm_is_killed(settings, tmp_path):
    """A program without its supervisor that does not care for SIGTERM is killed."""
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        f"import runpy, signal, sys\nsys.argv[0] = {settings.exporter_command[1]!r}\n"
        "real, signal.signal = signal.signal, lambda *_: None\n"
        "real(signal.SIGTERM, signal.SIG_IGN)\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    ours = replace(settings, exporter_command=(sys.executable, str(stubborn)))
    bring_up_exporter(ours, report=print)
    os.kill(int((ours.state_dir / PIDFILE).read_text()), signal.SIGKILL)
    processes = list(marked_processes(ours.state_dir))
    assert end_processes(processes, terminate_seconds=0.3) == []
    assert nothing_runs(ours)


def test_taken_port_is_named_and_nothing_is_left(settings):
    """A port that something else has is refused with the process that has it."""
    with socket.create_server(("127.0.0.1", settings.exporter_port)):
        with pytest.raises(StackError) as refused:
            bring_up_exporter(settings, report=print)
        assert f"port {settings.exporter_port} for the exporter is taken by" in str(refused.value)
        assert f"(pid {os.getpid()})" in str(refused.value)
        assert "EXPORTER_PORT" in str(refused.value)
        assert not marked_processes(settings.state_dir)


def test_prometheus_that_does_not_start(settings, tmp_path):
    """Its last words are shown and the exporter is taken down again."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no space left on device'\nexit 1\n")
    broken.chmod(0o755)
    told = []
    with pytest.raises(StackError, match=r"prometheus does not stay up: read .*prometheus\.log"):
        bring_up(settings, find=lambda _: broken, report=told.append)
    assert "prometheus | no space left on device" in told
    assert told[-1] == "nothing is left running"
    assert nothing_runs(settings)


def test_exporter_that_never_answers(settings):
    """A program that runs without answering is given up, and nothing is left."""
    mute = replace(settings, exporter_command=("/bin/sh", "-c", "exec sleep 60"))
    with pytest.raises(StackError, match=r"exporter does not answer at .* after 2 s"):
        bring_up_exporter(mute, report=print, patience_seconds=2.0)
    assert nothing_runs(mute)


def test_exporter_that_cannot_be_scraped(settings, tmp_path):
    """When Prometheus cannot read the exporter's page, its reason is in the error."""
    told_by_prometheus = tmp_path / "prometheus"
    told_by_prometheus.write_text(f"#!{sys.executable}\n{STAND_IN_PROMETHEUS.read_text()}")
    told_by_prometheus.chmod(0o755)
    with pytest.raises(StackError, match="cannot scrape the exporter: connection refused; read"):
        bring_up(settings, find=lambda _: told_by_prometheus, report=print, patience_seconds=2.0)
    assert nothing_runs(settings)


def test_interrupted_up_leaves_nothing(settings):
    """Ctrl-C while waiting takes everything down again."""
    code = (
        "import sys; from pathlib import Path; from trainvitals.stack import *;"
        "from trainvitals.errors import StackError\n"
        "def find(name): raise StackError(name)\n"
        "bring_up(Settings(Path(sys.argv[1]), int(sys.argv[2]), 1, ('/bin/sh', '-c', 'exec sleep 60')),"
        "find=find, report=print)"
    )
    command = (sys.executable, "-c", code, str(settings.state_dir), str(settings.exporter_port))
    environ = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as waiting:
        wait_for(lambda: "exporter" in marked_processes(settings.state_dir).values())
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=30)
    assert "KeyboardInterrupt" in said
    assert nothing_runs(settings)


def test_deep_and_strange_state_directory(new_settings, tmp_path):
    """A path that is longer than a Unix socket's, with a space and a percent sign, works."""
    settings = new_settings(tmp_path / ("a deep 100% " * 10) / "state")
    try:
        bring_up_exporter(settings, report=print)
        assert describe(settings).fine
    finally:
        take_down(settings, report=print)
    assert nothing_runs(settings)


def test_state_directory_that_cannot_be_made(new_settings, tmp_path):
    """A file in its place is named in the error."""
    (tmp_path / "state").touch()
    with pytest.raises(StackError, match="choose another with --state-dir"):
        take_down(new_settings(tmp_path / "state"), report=print)
