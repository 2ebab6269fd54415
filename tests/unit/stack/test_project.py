"""Tests for the Compose project, in a checkout and from an installed package."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.unit.stack.docker_stand_in import install_docker
from trainvitals import __version__
from trainvitals.errors import StackError
from trainvitals.stack import compose
from trainvitals.stack import project as module
from trainvitals.stack.engine import Engine
from trainvitals.stack.project import find_project, load_project, save_project
from trainvitals.stack.settings import Settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path):
    """Return settings with other than the default ports."""
    return Settings(tmp_path / "state", 19200, 19090, alertmanager_port=19093, grafana_port=13000)


def test_a_checkout_is_the_project(settings):
    """In a checkout, the files are used in place, and accelerators' files follow the base file."""
    project = find_project(settings, ("docker-compose.nvidia.yml",), environ={"HOME": "/h"})
    assert project.directory == ROOT
    assert project.files == ("docker-compose.yml", "docker-compose.nvidia.yml")
    assert project.name == "trainvitals"
    assert project.words("ps") == (
        *("compose", "--ansi", "never", "--env-file", "/dev/null", "-p", "trainvitals"),
        *("--project-directory", str(ROOT)),
        *("-f", str(ROOT / "docker-compose.yml")),
        *("-f", str(ROOT / "docker-compose.nvidia.yml"), "ps"),
    )
    assert not (settings.state_dir / "compose").exists()


def test_the_files_get_ports_folders_and_addresses(settings):
    """Compose gets the variables of the environment, of `.env` and of the stack."""
    given = {"GRAFANA_URL": "https://graphs.example", "COMPOSE_PROJECT_NAME": "lab"}
    project = find_project(replace(settings, variables=given), environ={"HOME": "/h"})
    config = settings.state_dir / "config/compose"
    assert project.name == "lab"
    assert project.environment == {
        "HOME": "/h",
        **given,
        "BIND_ADDR": "127.0.0.1",
        "TRAINVITALS_WEB_ALLOWED_HOST": "localhost",
        "EXPORTER_PORT": "19200",
        "PROMETHEUS_PORT": "19090",
        "ALERTMANAGER_PORT": "19093",
        "GRAFANA_PORT": "13000",
        "PROMETHEUS_CONFIG_DIR": str(config / "prometheus"),
        "TARGETS_DIR": str(config / "targets"),
        "ALERTMANAGER_CONFIG_DIR": str(config / "alertmanager"),
        "SECRETS_DIR": str(settings.state_dir / "secrets"),
        "BUILDKIT_PROGRESS": "plain",
        "PROMETHEUS_EXTERNAL_URL": "http://localhost:19090",
        "ALERTMANAGER_EXTERNAL_URL": "http://localhost:19093",
    }


@pytest.mark.parametrize(
    ("bind", "given", "written"),
    [
        ("127.0.0.1", "", "localhost"),
        ("::1", "", "localhost"),
        ("::1", "gpu-07", "gpu-07"),
        ("0.0.0.0", "", None),
        ("0.0.0.0", "gpu-07", "gpu-07"),
    ],
)
def test_an_exporter_on_a_loopback_port_has_no_other_names(settings, bind, given, written):
    """If the port is published only on a loopback address, other host names are refused."""
    variable = "TRAINVITALS_WEB_ALLOWED_HOST"
    variables = {variable: given} if given else {}
    changed = replace(settings, bind_address=bind, variables=variables)
    assert find_project(changed, environ={}).environment.get(variable) == written
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    passed = services["exporter"]["environment"][variable]
    assert passed == "exporter,${TRAINVITALS_WEB_ALLOWED_HOST:-${BIND_ADDR:+*}}"


@pytest.mark.parametrize(
    ("bind", "written"),
    [("0.0.0.0", "0.0.0.0"), ("*", "0.0.0.0"), ("::1", "[::1]"), ("10.0.0.7", "10.0.0.7")],
)
def test_an_address_is_written_as_compose_reads_it(settings, bind, written):
    """An IPv6 address is written in brackets."""
    project = find_project(replace(settings, bind_address=bind), environ={})
    assert project.environment["BIND_ADDR"] == written


def test_the_socket_is_for_the_collector_of_containers_alone(settings, tmp_path):
    """The file of the Docker socket proxy is used only if the container collector is enabled."""
    assert "docker-compose.containers.yml" not in find_project(settings, environ={}).files
    socket = tmp_path / "docker.sock"
    socket.touch()
    wanting = replace(settings, variables={"CONTAINER_COLLECTOR": "1"})
    project = find_project(wanting, engine=Engine(socket, frozenset()), environ={})
    assert project.files == ("docker-compose.yml", "docker-compose.containers.yml")
    assert project.environment["DOCKER_GID"] == str(os.getgid())
    assert project.environment["DOCKER_SOCKET"] == str(socket)


def test_a_project_is_remembered_without_variables(settings):
    """The saved project contains its name and directory, and no secrets."""
    settings.state_dir.mkdir()
    wanting = replace(settings, variables={"SMTP_PASSWORD": "hush", "COMPOSE_PROJECT_NAME": "lab"})
    assert load_project(wanting, {}) is None
    save_project(settings.state_dir, find_project(wanting, environ={}))
    recalled = load_project(settings, {})
    assert recalled is not None
    assert (recalled.name, recalled.directory) == ("lab", ROOT)
    assert "hush" not in (settings.state_dir / "compose.json").read_text()
    assert "hush" not in repr(find_project(wanting, environ={}))


def test_a_checkout_that_is_gone_leaves_the_name(settings, tmp_path):
    """If the checkout no longer exists, containers are found by the name of the project."""
    gone = replace(find_project(settings, environ={}), directory=tmp_path / "gone")
    assert gone.words("down")[-2:] == ("trainvitals", "down")
    assert gone.docker.directory is None


def test_a_closed_checkout_is_refused(tmp_path):
    """Rules that the containers' users cannot read are refused."""
    for name in ("prometheus", "grafana/dashboards", "grafana/provisioning", "deploy/docker-proxy"):
        (tmp_path / name).mkdir(parents=True)
    rules = tmp_path / "prometheus/rules.yml"
    rules.touch(mode=0o600)
    with pytest.raises(
        StackError, match=rf"^the containers' users may not read {rules}: run `chmod"
    ):
        module._require_readable_files(tmp_path)
    rules.chmod(0o644)
    module._require_readable_files(tmp_path)


def test_an_installed_package_puts_a_project_together(tmp_path):
    """The files of the package are copied to a folder, in which edited thresholds are kept."""
    package = tmp_path / "site/trainvitals"
    shutil.copytree(ROOT / "exporter/trainvitals", package)
    for name in module._COPIED_FILES:
        source, target = ROOT / name, package / "stack/files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    code = (
        "import sys; from pathlib import Path;"
        "from trainvitals.stack.project import find_project;"
        "from trainvitals.stack.settings import Settings;"
        "print(find_project(Settings(Path(sys.argv[1]))).directory)"
    )
    state = tmp_path / "state"

    def find():
        return subprocess.run(
            (sys.executable, "-c", code, state),
            env={"PYTHONPATH": str(package.parent)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    folder = Path(find())
    assert folder == state / "compose"
    for name in (
        *("pyproject.toml", "requirements.lock", "requirements-build.lock"),
        *("exporter/Dockerfile", "prometheus/prometheus.yml"),
    ):
        assert (folder / name).read_bytes() == (ROOT / name).read_bytes()
    assert (folder / "exporter/trainvitals/stack/project.py").is_file()
    assert not (folder / "exporter/trainvitals/stack/files").exists()
    assert (folder / "docs/runbooks").is_dir()
    assert state.stat().st_mode & 0o777 == 0o700
    assert (folder / "prometheus").stat().st_mode & 0o777 == 0o755
    mounted = (folder / "prometheus/rules").stat().st_ino
    (folder / "prometheus/rules/old.yml").touch()
    thresholds = folder / "prometheus/rules/thresholds.yml"
    edited = thresholds.read_text().replace("vector(7)", "vector(5)")
    thresholds.write_text(edited)
    find()
    assert thresholds.read_text() == edited
    assert (folder / "prometheus/rules").stat().st_ino == mounted
    assert not (folder / "prometheus/rules/old.yml").exists()


@pytest.mark.parametrize(
    ("version", "flags", "is_in_file"),
    [
        ("3.13.2", "--log.level=info", True),
        ("2.53.0", "--storage.tsdb.retention.time=2d --storage.tsdb.retention.size=8GB", False),
    ],
)
def test_the_retention_is_in_the_configuration_where_the_image_knows_it(
    settings, tmp_path, version, flags, is_in_file
):
    """The retention is in the file if the image's Prometheus supports it, or else in flags."""
    environ = install_docker(tmp_path, {"^run .*--version": f"prometheus, version {version}\n"})
    changed = replace(settings, variables={"PROMETHEUS_RETENTION_TIME": "2d"})
    project = find_project(changed, environ=environ)
    configured = compose._configure_prometheus(project, changed, "prom/prometheus")
    assert configured.environment["PROMETHEUS_RETENTION_FLAGS"] == flags
    folder = Path(configured.environment["PROMETHEUS_CONFIG_DIR"])
    assert ("storage" in yaml.safe_load((folder / "prometheus.yml").read_text())) == is_in_file
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]
    before, _, default = service["command"].partition("${PROMETHEUS_RETENTION_FLAGS:-")
    assert "retention" not in before
    assert default.endswith("${PROMETHEUS_RETENTION_SIZE:-8GB}}")
    assert "${PROMETHEUS_CONFIG_DIR:-./prometheus}:/etc/prometheus:ro" in service["volumes"]


def test_the_images_tag_is_the_version():
    """The tag of the exporter's image is the version of the project."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["exporter"]["image"] == f"${{EXPORTER_IMAGE:-trainvitals:{__version__}}}"
