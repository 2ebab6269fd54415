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
    """Find nothing, as on a machine without Prometheus."""
    raise StackError(f"no {name} here")


bring_up_exporter = functools.partial(bring_up, find=no_prometheus)


def only(name, path):
    """Return a finder of one program and no other."""

    def find(wanted):
        return path if wanted == name else no_prometheus(wanted)

    return find


def is_free(port):
    """Return whether nothing listens on a port."""
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
    """After `up` everything answers, is scraped and judged, and each address was printed."""
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
    """Return the JSON of a page."""
    return fetch_json(f"http://127.0.0.1:{port}{path}")


def test_alerts_name_the_machine(stack):
    """Every target of this machine has its name as `instance`."""
    port = stack.settings.prometheus_port
    found = fetch(port, "/api/v1/query?query=up")["data"]["result"]
    assert {each["metric"]["instance"] for each in found} == {"ada-1"}
    assert len(found) == 3


def test_the_live_page_knows_what_fires(stack):
    """The exporter asks the stack's own Prometheus, also at the first look."""
    port = stack.settings.exporter_port
    picture = fetch(port, "/api/v1/overview")
    assert picture["alerts"] is not None
    assert picture["alerts_trouble"] == ""


def test_grafana_is_set_up(stack):
    """It gets its folders, the shipped provisioning, where to ask, and a password by its file."""
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
    """The directory is entered by its owner alone, and what may hold a secret is 0600 besides."""
    state_dir = stack.settings.state_dir
    assert state_dir.stat().st_mode & 0o777 == 0o700
    for name in ("config/alertmanager/alertmanager.yml", "supervisord.conf", "programs.json"):
        assert (state_dir / name).stat().st_mode & 0o777 == 0o600
    # Nor where somebody else made the directory, and left it open.
    for name in ("config", "logs", "prometheus", "alertmanager-data", "grafana", "secrets"):
        assert (state_dir / name).stat().st_mode & 0o777 == 0o700


def test_second_up_changes_nothing(stack, quick_up):
    """A second `up` keeps every process and says that all runs already."""
    before, told = pids(stack.settings), []
    quick_up(stack.settings, find=stack.find, report=told.append)
    assert told[0] == "already running"
    assert pids(stack.settings) == before
    assert not any("password" in line for line in told)


def test_second_up_reads_the_configuration_again(stack, quick_up):
    """A rule that came meanwhile is loaded without a restart, and a broken one is refused."""
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
    """Nobody else may read the data or talk to the supervisor."""
    settings = new_settings(tmp_path / "a/b")
    take_down(settings, report=print)
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700


def test_status_needs_no_flags(stack):
    """A running stack is found where it was started, whatever the settings say now."""
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
    """While the exporter hangs, the status says so and is not fine."""
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
    """The logs show what Prometheus said."""
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
    """Before the first `up` there is nothing to follow."""
    with pytest.raises(StackError, match="start the stack"):
        follow_logs(new_settings(tmp_path))


def test_machine_without_prometheus_gets_the_exporter(settings):
    """Where there is no Prometheus to be had, the exporter runs alone and the reason is told."""
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
    """`up` with another port moves the exporter there."""
    bring_up_exporter(settings, report=print)
    moved, told = replace(settings, exporter_port=find_free_ports(1)[0]), []
    bring_up_exporter(moved, report=told.append)
    assert "stopped exporter, as a program was missing or the settings changed" in told
    assert is_free(settings.exporter_port)
    assert describe(settings).fine


def test_killed_supervisor(settings):
    """After kill -9 of the supervisor its programs are seen, and `down` ends them."""
    bring_up_exporter(settings, report=print)
    os.kill(int((settings.state_dir / PIDFILE).read_text()), signal.SIGKILL)
    wait_until(lambda: describe(settings).programs[0].state == "unsupervised")
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
    processes = list(find_processes(ours.state_dir))
    assert terminate_processes(processes, terminate_seconds=0.3) == []
    assert nothing_runs(ours)


def test_taken_port_is_named_and_nothing_is_left(settings):
    """A port that something else has is refused with the process that has it."""
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
    """Its last words are shown and the exporter is taken down again."""
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
    """Prometheus says what is wrong and then stops at length: the line that matters is shown."""
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
    """What a rule does not like in the data is said, and everything works all the same."""
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
    """A program that runs without answering is given up, and nothing is left."""
    mute = replace(settings, exporter_command=("/bin/sh", "-c", "exec sleep 60"))
    with pytest.raises(StackError, match=r"exporter is not ready at .* after 2s"):
        bring_up_exporter(mute, report=print, timeout_seconds=2.0)
    assert nothing_runs(mute)


def test_exporter_that_cannot_be_scraped(settings, tmp_path):
    """When Prometheus cannot read the exporter's page, its reason is in the error."""
    told_by_prometheus = tmp_path / "prometheus"
    told_by_prometheus.write_text(f"#!{sys.executable}\n{STAND_IN_PROMETHEUS.read_text()}")
    told_by_prometheus.chmod(0o755)
    find = only("prometheus", told_by_prometheus)
    with pytest.raises(StackError, match="cannot scrape trainvitals: connection refused; read"):
        bring_up(settings, find=find, report=print, timeout_seconds=2.0)
    assert nothing_runs(settings)


def test_interrupted_up_leaves_nothing(settings):
    """Ctrl-C while waiting takes everything down again."""
    code = (
        "import signal, sys; from pathlib import Path; from trainvitals.errors import StackError;"
        "from trainvitals.stack.native import bring_up; from trainvitals.stack.settings import *\n"
        # A shell has those that it starts in the background ignore the signal.
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
        # It may wait 20 s for the supervisor, 15 for the programs and 5 for those that it kills.
        _, said = waiting.communicate(timeout=60)
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


def test_up_after_a_killed_supervisor_replaces_what_is_left(settings):
    """What an earlier start left half dead is stopped first, with a word, and then all runs."""
    bring_up_exporter(settings, report=print)
    os.kill(int((settings.state_dir / PIDFILE).read_text()), signal.SIGKILL)
    told = []
    bring_up_exporter(settings, report=told.append)
    assert "stopped exporter, as a program was missing or the settings changed" in told
    assert describe(settings).fine


def test_alertmanager_that_does_not_start(settings, programs, tmp_path):
    """Its last words are shown, and Prometheus and the exporter are taken down again."""
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
    """Before anything starts, the line names the port, the program and the variable."""

    def find(wanted):
        return tmp_path if wanted == "grafana" else programs(wanted)

    port = getattr(settings, f"{name}_port")
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(StackError, match=rf"cannot start {name}: port {port} .*{variable}"):
            bring_up(settings, find=find, report=print)
        assert not find_processes(settings.state_dir)


def test_address_that_this_machine_has_not(settings):
    """A BIND_ADDR of another machine is refused in one line."""
    with pytest.raises(
        StackError, match=r"BIND_ADDR=192\.0\.2\.1: this machine has no such address"
    ):
        bring_up_exporter(replace(settings, bind_address="192.0.2.1"), report=print)
    assert nothing_runs(settings)


@pytest.mark.parametrize("address", ["0.0.0.0", "::1"])
def test_other_addresses(settings, address):
    """Bound elsewhere than on 127.0.0.1, the exporter is asked where it listens."""
    ours = replace(settings, bind_address=address)
    bring_up_exporter(ours, report=print)
    assert describe(ours).fine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_disk_without_room(new_settings, tmp_path):
    """A state directory on a disk that is full is refused before anything starts."""
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
