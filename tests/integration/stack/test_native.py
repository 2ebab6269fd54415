"""The native stack, with a real supervisor, a real Prometheus and a real Alertmanager."""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.local_http import fetch_json
from tests.support.waiting import wait_until
from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped
from trainvitals.stack.native import bring_up, follow_logs, take_down
from trainvitals.stack.programs import find_free_ports
from trainvitals.stack.status import describe
from trainvitals.stack.supervision import PIDFILE, find_processes, terminate_processes

SOURCES = Path(__file__).parents[3] / "exporter"
STAND_IN_PROMETHEUS = Path(__file__).parents[2] / "unit/stack/stand_ins/prometheus.py"


def no_prometheus(name):
    """Raise StackError, as on a machine without Prometheus."""
    raise StackError(f"no {name} here")


bring_up_exporter = functools.partial(bring_up, find=no_prometheus)


def only(name, path):
    """Return a function that finds only one program."""

    def find(wanted):
        return path if wanted == name else no_prometheus(wanted)

    return find


def is_free(port):
    """Return whether no process listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def nothing_runs(settings):
    """Return whether no process and no port of the stack is left."""
    ports = (
        settings.exporter_port,
        settings.prometheus_port,
        settings.alertmanager_port,
        settings.grafana_port,
    )
    return not find_processes(settings.state_dir) and all(map(is_free, ports))


def pids(settings):
    """Return the process ids by program."""
    return {program.name: program.pid for program in describe(settings).programs}


def test_whole_stack_works_and_says_where(stack):
    """After `up` all programs run, all targets are scraped, and each address was reported."""
    settings, told = stack.settings, stack.told
    ports = {
        "exporter": settings.exporter_port,
        "prometheus": settings.prometheus_port,
        "alertmanager": settings.alertmanager_port,
        "grafana": settings.grafana_port,
    }
    addresses = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    for name, address in addresses.items():
        assert f"{name} is ready at {address}" in told
    assert told[-1] == f"the stack runs natively; data and logs are in {settings.state_dir}"
    status = describe(settings)
    assert status.fine
    assert status.way == "native"
    assert [(each.name, each.state, each.address) for each in status.programs] == [
        (name, "running", address) for name, address in addresses.items()
    ]
    assert [(each.job, each.health, each.url) for each in status.targets] == [
        ("alertmanager", "up", f"{addresses['alertmanager']}/metrics"),
        ("prometheus", "up", f"{addresses['prometheus']}/metrics"),
        ("trainvitals", "up", f"{addresses['exporter']}/metrics"),
    ]
    assert status.alertmanagers == (f"{addresses['alertmanager']}/api/v2/alerts",)
    rules = find_shipped("prometheus") / "rules"
    assert (status.rules.groups, status.rules.unhealthy) == (len(list(rules.glob("*.yml"))), ())
    assert f"prometheus has {status.rules.rules} rules in" in "\n".join(told)
    assert not find_processes(settings.state_dir.parent)


def fetch(port, path):
    """Return the parsed JSON of a local page."""
    return fetch_json(f"http://127.0.0.1:{port}{path}")


def test_alerts_name_the_machine(stack):
    """Every target of the stack has the machine's name as its `instance` label."""
    port = stack.settings.prometheus_port
    found = fetch(port, "/api/v1/query?query=up")["data"]["result"]
    assert {each["metric"]["instance"] for each in found} == {"ada-1"}
    assert len(found) == 3


def test_the_live_page_knows_what_fires(stack):
    """The exporter's overview has the alerts of the stack's Prometheus."""
    port = stack.settings.exporter_port
    picture = fetch(port, "/api/v1/overview")
    assert picture["alerts"] is not None
    assert picture["alerts_trouble"] == ""


def test_grafana_is_set_up(stack):
    """Grafana is started with its data folder, provisioning, home board and password file."""
    settings, state_dir = stack.settings, stack.settings.state_dir
    told = fetch(settings.grafana_port, "/")
    assert told["GF_PATHS_DATA"] == str(state_dir / "grafana")
    assert (Path(told["GF_PATHS_PROVISIONING"]) / "datasources").is_dir()
    home = Path(told["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert json.loads(home.read_text())["uid"] == "trainvitals-fleet"
    assert told["DASHBOARDS_PATH"] == str(home.parent)
    assert told["GF_SECURITY_ADMIN_PASSWORD"] == (
        f"$__file{{{state_dir}/secrets/grafana_admin_password}}"
    )
    assert told["PROMETHEUS_URL"] == f"http://127.0.0.1:{settings.prometheus_port}"
    assert told["ALERTMANAGER_URL"] == f"http://127.0.0.1:{settings.alertmanager_port}"
    password = (state_dir / "secrets/grafana_admin_password").read_text()
    assert sum(password in line for line in stack.told) == 1


def test_nothing_in_the_state_directory_is_for_others(stack):
    """Only the owner may enter the state directory, and files that may hold secrets are 0600."""
    state_dir = stack.settings.state_dir
    assert state_dir.stat().st_mode & 0o777 == 0o700
    for name in ("config/alertmanager/alertmanager.yml", "supervisord.conf", "programs.json"):
        assert (state_dir / name).stat().st_mode & 0o777 == 0o600
    # The subdirectories are closed too, in case another user created the state directory open.
    for name in ("config", "logs", "prometheus", "alertmanager-data", "grafana", "secrets"):
        assert (state_dir / name).stat().st_mode & 0o777 == 0o700


def test_second_up_changes_nothing(stack, quick_up):
    """A second `up` keeps every process and reports `already running`."""
    before, told = pids(stack.settings), []
    quick_up(stack.settings, find=stack.find, report=told.append)
    assert told[0] == "already running"
    assert pids(stack.settings) == before
    assert not any("password" in line for line in told)


def test_second_up_reads_the_configuration_again(stack, quick_up):
    """A second `up` loads a new rule file without a restart, and refuses a broken one."""
    settings, before = stack.settings, pids(stack.settings)
    rules, groups = settings.state_dir / "config/prometheus/rules", describe(settings).rules.groups
    shipped = rules.resolve()
    rules.unlink()
    shutil.copytree(shipped, rules)
    good = "groups: [{name: mine, rules: [{record: 'a:b', expr: vector(1)}]}]\n"
    (rules / "mine.yml").write_text(good)
    quick_up(settings, find=stack.find, report=print)
    assert describe(settings).rules.groups == groups + 1
    (rules / "mine.yml").write_text(good.replace("vector(1)", "'('"))
    with pytest.raises(StackError, match="prometheus rejects its configuration and keeps"):
        quick_up(settings, find=stack.find, report=print)
    assert describe(settings).rules.groups == groups + 1
    shutil.rmtree(rules)
    quick_up(settings, find=stack.find, report=print)
    assert describe(settings).rules.groups == groups
    assert pids(settings) == before


def test_state_directory_is_private(new_settings, tmp_path):
    """The state directory is created with mode 0700."""
    settings = new_settings(tmp_path / "a/b")
    take_down(settings, report=print)
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700


def test_status_needs_no_flags(stack):
    """The status of a running stack does not depend on the ports in the current settings."""
    assert describe(replace(stack.settings, exporter_port=1, prometheus_port=2)).fine


def test_dead_program_is_started_again(stack):
    """The supervisor replaces an exporter and an Alertmanager that were killed."""
    settings = stack.settings
    before = pids(settings)
    for name in ("exporter", "alertmanager"):
        os.kill(before[name], signal.SIGKILL)
    wait_until(lambda: pids(settings).keys() == before.keys() and describe(settings).fine)
    wait_until(
        lambda: not {before["exporter"], before["alertmanager"]} & {*pids(settings).values()}
    )
    wait_until(lambda: describe(settings).fine)
    assert pids(settings)["prometheus"] == before["prometheus"]


def test_target_that_does_not_answer_is_reported(stack):
    """While the exporter hangs, the status is not fine and names the exporter."""
    settings = stack.settings
    exporter = psutil.Process(pids(settings)["exporter"])
    exporter.suspend()
    try:
        status = describe(settings)
        assert not status.fine
        assert [each.answers for each in status.programs] == [False, True, True, True]
    finally:
        exporter.resume()


def test_logs_are_followed(stack):
    """`follow_logs` prints the log lines of Prometheus."""
    settings = stack.settings
    code = (
        "import sys; from pathlib import Path; from trainvitals.stack.native import follow_logs;"
        "from trainvitals.stack.settings import Settings; follow_logs(Settings(Path(sys.argv[1])))"
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
    """`follow_logs` raises a StackError before the first `up`."""
    with pytest.raises(StackError, match="start the stack"):
        follow_logs(new_settings(tmp_path))


def test_machine_without_prometheus_gets_the_exporter(settings):
    """Without Prometheus, `up` starts only the exporter and reports the reason."""
    told = []
    bring_up_exporter(settings, report=told.append)
    assert told[0] == "no Prometheus: no prometheus here"
    assert "without Prometheus, only the exporter runs" in told[-1]
    status = describe(settings)
    assert status.fine
    assert status.way == "exporter alone"
    told.clear()
    take_down(settings, report=told.append)
    take_down(settings, report=told.append)
    assert told == ["stopped exporter", "nothing is running"]
    assert nothing_runs(settings)
    assert [(each.name, each.state, each.pid) for each in describe(settings).programs] == [
        ("exporter", "stopped", None),
        ("prometheus", "stopped", None),
        ("alertmanager", "stopped", None),
    ]


def test_changed_settings_replace_the_stack(settings):
    """`up` with another exporter port restarts the exporter on this port."""
    bring_up_exporter(settings, report=print)
    moved, told = replace(settings, exporter_port=find_free_ports(1)[0]), []
    bring_up_exporter(moved, report=told.append)
    assert "stopped exporter, as a program was missing or the settings changed" in told
    assert is_free(settings.exporter_port)
    assert describe(settings).fine


def test_killed_supervisor(settings):
    """After SIGKILL of the supervisor, the status has its programs and `down` stops them."""
    bring_up_exporter(settings, report=print)
    os.kill(int((settings.state_dir / PIDFILE).read_text()), signal.SIGKILL)
    wait_until(lambda: describe(settings).programs[0].state == "unsupervised")
    assert not describe(settings).fine
    told = []
    take_down(settings, report=told.append)
    assert told == ["stopped exporter"]
    assert nothing_runs(settings)


def test_program_that_ignores_sigterm_is_killed(settings, tmp_path):
    """If its supervisor has died, a program that ignores SIGTERM is killed."""
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
    processes = list(find_processes(ours.state_dir))
    assert terminate_processes(processes, terminate_seconds=0.3) == []
    assert nothing_runs(ours)


def test_taken_port_is_named_and_nothing_is_left(settings):
    """The error for a port in use names the process and the variable, and nothing is started."""
    with socket.create_server(("127.0.0.1", settings.exporter_port)):
        with pytest.raises(StackError) as refused:
            bring_up_exporter(settings, report=print)
        assert f"cannot start exporter: port {settings.exporter_port} is in use by" in str(
            refused.value
        )
        assert f"(pid {os.getpid()})" in str(refused.value)
        assert "EXPORTER_PORT" in str(refused.value)
        assert not find_processes(settings.state_dir)


def test_prometheus_that_does_not_start(settings, tmp_path):
    """If Prometheus does not start, its last output is shown and the exporter is stopped."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no space left on device'\nexit 1\n")
    broken.chmod(0o755)
    told = []
    with pytest.raises(StackError, match=r"prometheus keeps exiting: read .*prometheus\.log"):
        bring_up(settings, find=only("prometheus", broken), report=told.append)
    assert "prometheus | no space left on device" in told
    assert told[-1] == "nothing is left running"
    assert nothing_runs(settings)


def test_broken_rule_at_the_start_is_shown(settings, programs):
    """If a rule file is broken, the line of Prometheus' log with the parse error is shown."""
    rules = settings.state_dir / "config/prometheus/rules"
    rules.parent.mkdir(parents=True)
    shutil.copytree(find_shipped("prometheus") / "rules", rules)
    (rules / "mine.yml").write_text("groups: [{name: a, rules: [{record: b, expr: '('}]}]\n")
    told = []
    with pytest.raises(StackError, match="prometheus keeps exiting"):
        bring_up(settings, find=only("prometheus", programs("prometheus")), report=told.append)
    assert any("rules/mine.yml: " in line and "parse error" in line for line in told)
    assert nothing_runs(settings)


def test_rule_that_cannot_be_evaluated_costs_nothing_else(settings, programs, quick_files):
    """A rule that cannot be evaluated is reported, and the stack runs all the same."""
    rules = settings.state_dir / "config/prometheus/rules"
    rules.mkdir(parents=True)
    (rules / "mine.yml").write_text(
        "groups: [{name: a, rules: ["
        """{record: b, expr: 'label_replace(vector(1), "d", "e", "f", "(")'},"""
        "{record: c, expr: up}]}]\n"
    )
    told = []
    find = only("prometheus", programs("prometheus"))
    bring_up(settings, find=find, shipped=quick_files, report=told.append)
    (line,) = [line for line in told if line.startswith("prometheus cannot evaluate b: ")]
    assert line.endswith("; correct the rule")
    assert not is_free(settings.prometheus_port)


def test_exporter_that_never_answers(settings):
    """`up` fails after its timeout if the exporter does not answer, and leaves no process."""
    mute = replace(settings, exporter_command=("/bin/sh", "-c", "exec sleep 60"))
    with pytest.raises(StackError, match=r"exporter is not ready at .* after 2s"):
        bring_up_exporter(mute, report=print, timeout_seconds=2.0)
    assert nothing_runs(mute)


def test_exporter_that_cannot_be_scraped(settings, tmp_path):
    """If Prometheus cannot scrape the exporter, the error has Prometheus' reason."""
    told_by_prometheus = tmp_path / "prometheus"
    told_by_prometheus.write_text(f"#!{sys.executable}\n{STAND_IN_PROMETHEUS.read_text()}")
    told_by_prometheus.chmod(0o755)
    find = only("prometheus", told_by_prometheus)
    with pytest.raises(StackError, match="cannot scrape trainvitals: connection refused; read"):
        bring_up(settings, find=find, report=print, timeout_seconds=2.0)
    assert nothing_runs(settings)


def test_interrupted_up_leaves_nothing(settings):
    """Ctrl-C while `up` waits stops everything that it started."""
    code = (
        "import signal, sys; from pathlib import Path; from trainvitals.errors import StackError;"
        "from trainvitals.stack.native import bring_up; from trainvitals.stack.settings import *\n"
        # A shell makes programs that it starts in the background ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def find(name): raise StackError(name)\n"
        "bring_up(Settings(Path(sys.argv[1]), int(sys.argv[2]), 1, ('/bin/sh', '-c', 'exec sleep 60')),"
        "find=find, report=print)"
    )
    command = (sys.executable, "-c", code, str(settings.state_dir), str(settings.exporter_port))
    environ = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as waiting:
        wait_until(lambda: "exporter" in find_processes(settings.state_dir).values())
        waiting.send_signal(signal.SIGINT)
        # The end may take 20 s for the supervisor, 15 s for the programs and 5 s for killed ones.
        _, said = waiting.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert nothing_runs(settings)


def test_deep_and_strange_state_directory(new_settings, tmp_path):
    """A state directory works with a very long path that has a space and a percent sign."""
    settings = new_settings(tmp_path / ("a deep 100% " * 10) / "state")
    try:
        bring_up_exporter(settings, report=print)
        assert describe(settings).fine
    finally:
        take_down(settings, report=print)
    assert nothing_runs(settings)


def test_state_directory_that_cannot_be_made(new_settings, tmp_path):
    """A state directory that is a file raises an error that suggests --state-dir."""
    (tmp_path / "state").touch()
    with pytest.raises(StackError, match="choose another with --state-dir"):
        take_down(new_settings(tmp_path / "state"), report=print)


def test_up_after_a_killed_supervisor_replaces_what_is_left(settings):
    """`up` stops and replaces the programs of a killed supervisor, and reports that."""
    bring_up_exporter(settings, report=print)
    os.kill(int((settings.state_dir / PIDFILE).read_text()), signal.SIGKILL)
    told = []
    bring_up_exporter(settings, report=told.append)
    assert "stopped exporter, as a program was missing or the settings changed" in told
    assert describe(settings).fine


def test_alertmanager_that_does_not_start(settings, programs, tmp_path):
    """If Alertmanager does not start, its last output is shown and the stack is stopped."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'cannot open the notification log'\nexit 1\n")
    broken.chmod(0o755)
    told = []

    def find(name):
        return broken if name == "prometheus-alertmanager" else programs(name)

    with pytest.raises(StackError, match=r"alertmanager keeps exiting: read .*alertmanager\.log"):
        bring_up(settings, find=find, report=told.append)
    assert "alertmanager | cannot open the notification log" in told
    assert told[-1] == "nothing is left running"
    assert nothing_runs(settings)


@pytest.mark.parametrize(
    ("name", "variable"),
    [("alertmanager", "ALERTMANAGER_PORT"), ("grafana", "GRAFANA_PORT")],
)
def test_taken_port_of_any_program_is_refused(settings, programs, tmp_path, name, variable):
    """`up` refuses a port in use before it starts a program, and names port and variable."""

    def find(wanted):
        return tmp_path if wanted == "grafana" else programs(wanted)

    port = getattr(settings, f"{name}_port")
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(StackError, match=rf"cannot start {name}: port {port} .*{variable}"):
            bring_up(settings, find=find, report=print)
        assert not find_processes(settings.state_dir)


def test_address_that_this_machine_has_not(settings):
    """A BIND_ADDR that is not an address of this machine is refused in one line."""
    with pytest.raises(
        StackError, match=r"BIND_ADDR=192\.0\.2\.1: this machine has no such address"
    ):
        bring_up_exporter(replace(settings, bind_address="192.0.2.1"), report=print)
    assert nothing_runs(settings)


@pytest.mark.parametrize("address", ["0.0.0.0", "::1"])
def test_other_addresses(settings, address):
    """The status of the exporter is fine if it is bound to an address other than 127.0.0.1."""
    ours = replace(settings, bind_address=address)
    bring_up_exporter(ours, report=print)
    assert describe(ours).fine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_disk_without_room(new_settings, tmp_path):
    """A state directory on a disk with too little space is refused before anything starts."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place)
    subprocess.run(mount, check=True)
    try:
        with pytest.raises(StackError, match=r"MiB are free in .* at least 191 MiB are needed"):
            bring_up_exporter(new_settings(place / "state"), report=print)
        assert not find_processes(place / "state")
    finally:
        subprocess.run(("umount", "-l", place), check=True)
