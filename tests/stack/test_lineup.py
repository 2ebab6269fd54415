"""Which programs the stack has, and how each is started."""

from dataclasses import replace

import pytest

from trainvitals.errors import ConfigurationError, StackError
from trainvitals.stack.destinations import recall_destinations
from trainvitals.stack.lineup import Supply, expected_programs, plan_programs
from trainvitals.stack.settings import Settings

NO_GRAFANA = (
    "Grafana is not installed: get it from https://grafana.com/grafana/download, "
    "then run `trainvitals up` again"
)


@pytest.fixture
def settings(tmp_path):
    """Give settings with the usual ports."""
    return Settings(
        tmp_path / "state", exporter_command=("serve",), variables={"HOST_NAME": "ada-1"}
    )


@pytest.fixture
def place(tmp_path):
    """Give a directory for programs that are there but do nothing."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def plan(settings, place, *names):
    """Plan with the named programs alone; give the programs by name, and what was reported."""
    told = []
    for name in names:
        (place / name).write_text("#!/bin/sh\n")
        (place / name).chmod(0o755)

    def find(name):
        if name not in names:
            raise StackError(f"{name} is not installed")
        return place / name

    programs = plan_programs(settings, Supply(find, report=told.append))
    return {program.name: program for program in programs}, told


def test_machine_without_grafana(settings, place):
    """The others run, and a line says how to get Grafana."""
    programs, told = plan(settings, place, "prometheus", "prometheus-alertmanager")
    assert list(programs) == ["exporter", "prometheus", "alertmanager"]
    assert NO_GRAFANA in told
    assert not (settings.state_dir / "secrets").exists()


def test_machine_without_alertmanager(settings, place):
    """The rest runs, and it is said that alerts reach nobody; none is scraped."""
    programs, told = plan(settings, place, "prometheus")
    assert list(programs) == ["exporter", "prometheus"]
    assert told == [
        NO_GRAFANA,
        "no Alertmanager, so alerts reach nobody: prometheus-alertmanager is not installed",
    ]
    assert recall_destinations(settings.state_dir) == ("nobody: there is no Alertmanager here",)
    assert not (settings.state_dir / "config/prometheus/targets/alertmanager.yml").exists()


def test_machine_without_prometheus(settings, place):
    """The exporter runs alone, whatever else there is, and nothing is configured."""
    programs, told = plan(settings, place, "prometheus-alertmanager", "grafana-server")
    assert list(programs) == ["exporter"]
    assert told == ["no Prometheus: prometheus is not installed"]
    assert not settings.state_dir.exists()


def test_commands(settings, place):
    """Each program is told its files, its port, and what it is to keep."""
    programs, _ = plan(settings, place, "prometheus", "prometheus-alertmanager")
    state = settings.state_dir
    assert programs["exporter"].command == ("serve", "--web.listen-address=127.0.0.1:9200")
    assert programs["exporter"].environment == {
        "TRAINVITALS_PROMETHEUS_URL": "http://127.0.0.1:9090"
    }
    assert programs["prometheus"].command == (
        str(place / "prometheus"),
        f"--config.file={state}/config/prometheus/prometheus.yml",
        f"--storage.tsdb.path={state}/prometheus",
        "--storage.tsdb.retention.time=15d",
        "--storage.tsdb.retention.size=8GB",
        "--web.listen-address=127.0.0.1:9090",
        "--web.external-url=http://localhost:9090",
    )
    assert programs["alertmanager"].command == (
        str(place / "prometheus-alertmanager"),
        f"--config.file={state}/config/alertmanager/alertmanager.yml",
        f"--storage.path={state}/alertmanager-data",
        "--data.retention=120h",
        "--web.listen-address=127.0.0.1:9093",
        "--web.external-url=http://localhost:9093",
        "--cluster.listen-address=",
    )


def test_retention_is_a_matter_of_variables(settings, place):
    """PROMETHEUS_RETENTION_TIME and PROMETHEUS_RETENTION_SIZE say what is kept."""
    variables = {"PROMETHEUS_RETENTION_TIME": "2d", "PROMETHEUS_RETENTION_SIZE": "1GB"}
    programs, _ = plan(replace(settings, variables=variables), place, "prometheus")
    assert "--storage.tsdb.retention.time=2d" in programs["prometheus"].command
    assert "--storage.tsdb.retention.size=1GB" in programs["prometheus"].command


@pytest.mark.parametrize(
    ("bind_address", "listens", "asked", "linked"),
    [
        ("127.0.0.1", "127.0.0.1:9090", "127.0.0.1:9090", "http://localhost:9090"),
        ("0.0.0.0", "0.0.0.0:9090", "127.0.0.1:9090", "http://ada-1:9090"),
        ("::", "[::]:9090", "[::1]:9090", "http://ada-1:9090"),
        ("::1", "[::1]:9090", "[::1]:9090", "http://localhost:9090"),
        ("192.0.2.7", "192.0.2.7:9090", "192.0.2.7:9090", "http://192.0.2.7:9090"),
    ],
)
def test_addresses(settings, place, bind_address, listens, asked, linked):
    """What listens, where it is asked, and where a link leads follow from BIND_ADDR."""
    programs, _ = plan(replace(settings, bind_address=bind_address), place, "prometheus")
    prometheus = programs["prometheus"]
    assert f"--web.listen-address={listens}" in prometheus.command
    assert f"--web.external-url={linked}" in prometheus.command
    assert prometheus.address == f"http://{asked}"
    targets = settings.state_dir / "config/prometheus/targets/prometheus.yml"
    assert f'targets: ["{asked}"]' in targets.read_text()


def test_links_lead_where_variables_say(settings, place):
    """Behind a proxy each program is told the address that people use."""
    variables = {
        "PROMETHEUS_EXTERNAL_URL": "https://ada/prometheus",
        "ALERTMANAGER_EXTERNAL_URL": "https://ada/alertmanager",
        "GRAFANA_URL": "https://ada/grafana",
    }
    programs, _ = plan(
        replace(settings, variables=variables),
        place,
        *("prometheus", "prometheus-alertmanager", "grafana-server"),
    )
    assert "--web.external-url=https://ada/prometheus" in programs["prometheus"].command
    assert "--web.external-url=https://ada/alertmanager" in programs["alertmanager"].command
    assert programs["grafana"].environment["GF_SERVER_ROOT_URL"] == "https://ada/grafana"


def test_grafana_of_either_name(settings, place):
    """Newer releases have one program with a subcommand; a home beside it is told."""
    programs, _ = plan(settings, place, "prometheus", "grafana")
    assert programs["grafana"].command[:2] == (str(place / "grafana"), "server")
    (place.parent / "conf").mkdir()
    (place.parent / "conf/defaults.ini").touch()
    programs, _ = plan(settings, place, "prometheus", "grafana-server")
    server = str(place / "grafana-server")
    assert programs["grafana"].command == (server, f"--homepath={place.parent}")


def test_variable_that_is_no_address_is_refused(settings, place):
    """A receiver that cannot be stops the start before anything runs."""
    variables = {"WEBHOOK_URL": "not a url"}
    with pytest.raises(ConfigurationError, match="WEBHOOK_URL"):
        plan(
            replace(settings, variables=variables),
            place,
            *("prometheus", "prometheus-alertmanager"),
        )


def test_expected_programs_listen_where_they_would(settings):
    """While nothing runs, the status shows where it would."""
    shown = expected_programs(replace(settings, alertmanager_port=9393))
    assert [(each.name, each.address) for each in shown] == [
        ("exporter", "http://127.0.0.1:9200"),
        ("prometheus", "http://127.0.0.1:9090"),
        ("alertmanager", "http://127.0.0.1:9393"),
    ]
