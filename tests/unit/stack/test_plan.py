"""Tests for the plan of the stack's programs and their commands."""

from dataclasses import replace

import pytest
import yaml

from trainvitals.errors import ConfigurationError, StackError
from trainvitals.stack.configuration import load_destinations
from trainvitals.stack.grafana import plan_grafana
from trainvitals.stack.plan import Supply, expected_programs, plan_programs
from trainvitals.stack.settings import Settings

NO_GRAFANA = (
    "no Grafana, so no boards: grafana is not installed; the live page is at http://localhost:9200"
)


@pytest.fixture
def settings(tmp_path):
    """Return settings with the default ports."""
    return Settings(
        tmp_path / "state", exporter_command=("serve",), variables={"HOST_NAME": "ada-1"}
    )


@pytest.fixture
def place(tmp_path):
    """Return a directory for programs that do nothing."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def plan(settings, place, *names, version="2.42.0"):
    """Plan with the named programs, and return the programs by name and the reported lines."""
    told = []
    for name in names:
        (place / name).write_text(f"#!/bin/sh\necho 'version {version}'\n")
        (place / name).chmod(0o755)

    def find(name):
        wanted = ("grafana", "grafana-server") if name == "grafana" else (name,)
        for each in wanted:
            if each in names:
                return place / each
        raise StackError(f"{name} is not installed")

    programs = plan_programs(settings, Supply(find, report=told.append))
    return {program.name: program for program in programs}, told


def test_machine_without_grafana(settings, place):
    """Without Grafana, the other programs run, and one line names the reason and the live page."""
    programs, told = plan(settings, place, "prometheus", "prometheus-alertmanager")
    assert list(programs) == ["exporter", "prometheus", "alertmanager"]
    assert NO_GRAFANA in told
    assert not (settings.state_dir / "secrets").exists()


def test_machine_without_alertmanager(settings, place):
    """Without Alertmanager, the other programs run, and alerts are reported to reach no one."""
    programs, told = plan(settings, place, "prometheus")
    assert list(programs) == ["exporter", "prometheus"]
    assert told == [
        NO_GRAFANA,
        "no Alertmanager, so alerts reach no one: prometheus-alertmanager is not installed",
    ]
    assert load_destinations(settings.state_dir) == ("no one, as there is no Alertmanager",)
    assert not (settings.state_dir / "config/prometheus/targets/alertmanager.yml").exists()


@pytest.mark.parametrize("programs", [(), ("prometheus",)])
def test_another_prometheus_is_named_where_no_command_line_shows_its_password(
    settings, place, programs
):
    """The exporter gets the address of another Prometheus as a variable, as it has a password."""
    given = {
        "TRAINVITALS_PROMETHEUS_URL": "https://ann:secret@prometheus.example.org",
        "TRAINVITALS_PROMETHEUS_LOGIN_FILE": "/etc/trainvitals/login",
    }
    settings = replace(settings, variables={**settings.variables, **given})
    exporter = plan(settings, place, *programs)[0]["exporter"]
    assert exporter.command == ("serve", "--web.listen-address=127.0.0.1:9200")
    assert exporter.environment == given


def test_limits_of_accelerators_reach_the_exporter(settings, place):
    """Limits in `.env`, which the exporter does not read itself, are passed to the exporter."""
    given = {"ACCELERATOR_MEMORY_LIMIT": "7.5GB", "ACCELERATOR_TEMPERATURE_LIMIT": "80"}
    settings = replace(settings, variables={**settings.variables, **given})
    assert plan(settings, place, "prometheus")[0]["exporter"].environment == given


def test_machine_without_prometheus(settings, place):
    """Without Prometheus, only the exporter runs, and no configuration is written."""
    programs, told = plan(settings, place, "prometheus-alertmanager", "grafana-server")
    assert list(programs) == ["exporter"]
    assert told == ["no Prometheus: prometheus is not installed"]
    assert not settings.state_dir.exists()


def test_commands(settings, place):
    """Each command has the program's files, address and retention."""
    programs, _ = plan(settings, place, "prometheus", "prometheus-alertmanager")
    state = settings.state_dir
    assert programs["exporter"].command == (
        "serve",
        "--web.listen-address=127.0.0.1:9200",
        "--web.prometheus=http://127.0.0.1:9090",
        f"--thresholds.file={state}/config/prometheus/rules/thresholds.yml",
    )
    assert programs["exporter"].environment == {}
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
    """`PROMETHEUS_RETENTION_TIME` and `PROMETHEUS_RETENTION_SIZE` determine the retention."""
    variables = {"PROMETHEUS_RETENTION_TIME": "2d", "PROMETHEUS_RETENTION_SIZE": "1GB"}
    programs, _ = plan(replace(settings, variables=variables), place, "prometheus")
    assert "--storage.tsdb.retention.time=2d" in programs["prometheus"].command
    assert "--storage.tsdb.retention.size=1GB" in programs["prometheus"].command


def test_newer_prometheus_is_configured_with_the_retention(settings, place):
    """The retention is in the file for Prometheus 3.11 or newer, where a reload can change it."""
    variables = {"PROMETHEUS_RETENTION_TIME": "2d"}
    settings = replace(settings, variables=variables)
    programs, _ = plan(settings, place, "prometheus", version="3.11.0")
    assert [word for word in programs["prometheus"].command if "retention" in word] == []
    config = settings.state_dir / "config/prometheus/prometheus.yml"
    read = yaml.safe_load(config.read_text())
    assert read["storage"] == {"tsdb": {"retention": {"time": "2d", "size": "8GB"}}}
    assert read["scrape_configs"]


@pytest.mark.parametrize("version", ["2.42.0", "3.10.2", "unknown"])
def test_older_prometheus_is_told_the_retention_by_flags(settings, place, version):
    """Before Prometheus 3.11, the retention is set by flags, as the file does not support it."""
    programs, _ = plan(settings, place, "prometheus", version=version)
    assert "--storage.tsdb.retention.time=15d" in programs["prometheus"].command
    assert (settings.state_dir / "config/prometheus/prometheus.yml").is_symlink()


def test_own_configuration_is_kept_with_the_flags(settings, place):
    """A user's own `prometheus.yml` is kept, and the retention is set by flags."""
    config = settings.state_dir / "config/prometheus/prometheus.yml"
    config.parent.mkdir(parents=True)
    config.write_text("scrape_configs: []\n")
    programs, _ = plan(settings, place, "prometheus", version="3.16.0")
    assert config.read_text() == "scrape_configs: []\n"
    assert "--storage.tsdb.retention.time=15d" in programs["prometheus"].command


def test_another_prometheus_gets_another_configuration(settings, place):
    """After an upgrade or downgrade of Prometheus, the configuration fits its version."""
    config = settings.state_dir / "config/prometheus/prometheus.yml"
    for version, is_link in (("2.53.0", True), ("3.16.0", False), ("2.53.0", True)):
        plan(settings, place, "prometheus", version=version)
        assert config.is_symlink() == is_link


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
    """`BIND_ADDR` determines the listen addresses, the query addresses and the links."""
    programs, _ = plan(replace(settings, bind_address=bind_address), place, "prometheus")
    prometheus = programs["prometheus"]
    assert f"--web.listen-address={listens}" in prometheus.command
    assert f"--web.external-url={linked}" in prometheus.command
    assert prometheus.address == f"http://{asked}"
    targets = settings.state_dir / "config/prometheus/targets/prometheus.yml"
    assert f'targets: ["{asked}"]' in targets.read_text()


def test_links_lead_where_variables_say(settings, place):
    """Behind a proxy, each program gets the external address from its variable."""
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
    """Either name of Grafana's program is used, with the home directory beside it if it exists."""
    programs, _ = plan(settings, place, "prometheus", "grafana")
    assert programs["grafana"].command[:2] == (str(place / "grafana"), "server")
    (place.parent / "conf").mkdir()
    (place.parent / "conf/defaults.ini").touch()
    programs, _ = plan(settings, place, "prometheus", "grafana-server")
    server = str(place / "grafana-server")
    assert programs["grafana"].command == (server, f"--homepath={place.parent}")


@pytest.mark.parametrize(
    ("has_own", "expected"), [(False, "plugins-bundled"), (True, None)], ids=["apart", "own"]
)
def test_data_sources_of_an_installed_grafana(settings, tmp_path, has_own, expected):
    """The plugins beside the home directory of Grafana's package are used if the home has none."""
    apart, home = tmp_path / "plugins-bundled", tmp_path / "home"
    for directory in (apart, home / "conf", home / "bin"):
        directory.mkdir(parents=True)
    (home / "conf/defaults.ini").touch()
    if has_own:
        (home / "data/plugins-bundled").mkdir(parents=True)
    program = plan_grafana(
        settings,
        home / "bin/grafana",
        boards=tmp_path,
        provisioning=tmp_path,
        password=tmp_path,
        root_url="http://localhost:3000",
        bundled_plugins=apart,
    )
    told = program.environment.get("GF_PATHS_BUNDLED_PLUGINS")
    assert told == (str(tmp_path / expected) if expected else None)


def test_variable_that_is_no_address_is_refused(settings, place):
    """An invalid receiver is refused before any program starts."""
    variables = {"WEBHOOK_URL": "not a url"}
    with pytest.raises(ConfigurationError, match="WEBHOOK_URL"):
        plan(
            replace(settings, variables=variables),
            place,
            *("prometheus", "prometheus-alertmanager"),
        )


def test_expected_programs_listen_where_they_would(settings):
    """The expected programs have the addresses at which they would listen."""
    shown = expected_programs(replace(settings, alertmanager_port=9393))
    assert [(each.name, each.address) for each in shown] == [
        ("exporter", "http://127.0.0.1:9200"),
        ("prometheus", "http://127.0.0.1:9090"),
        ("alertmanager", "http://127.0.0.1:9393"),
    ]
