"""The stack in Docker Compose on a real engine, with the project's own Compose files.

Prometheus and Alertmanager are real. Grafana, which Debian does not have, is a stand-in that only
responds to its health check.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
SERVICES = ("exporter", "prometheus", "alertmanager", "grafana")
BASE, *OVERRIDES = sorted(path.name for path in ROOT.glob("docker-compose*.yml"))[::-1]
MIB = 1 << 20


@pytest.fixture(scope="module")
def refused(stack):
    """Return the result of a first `up`, with a configuration that Alertmanager rejects."""
    bad = stack.state_dir.parent / "bad.yml"
    bad.write_text("route: {receiver: nobody}\nreceivers: []\n")
    return stack.run("up", ALERTMANAGER_CONFIG=str(bad))


@pytest.fixture(scope="module")
def started(stack, refused):
    """Start the stack and return the output of `up`."""
    began = time.monotonic()
    said = stack.run("up")
    print(f"up after {time.monotonic() - began:.0f} s:\n{said.stdout}")
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def test_a_start_that_fails_quotes_the_container_and_leaves_nothing(stack, refused):
    """A failed `up` shows the container's last log lines and an error, and stops everything."""
    assert refused.returncode == 2
    assert re.search(
        r"^alertmanager \| .*undefined receiver \W*nobody", refused.stdout, re.MULTILINE
    )
    assert refused.stdout.splitlines()[-1] == "nothing is left running"
    assert refused.stderr.count("\n") == 1
    assert "alertmanager" in refused.stderr


def test_it_comes_up_and_says_where_everything_is(stack, started):
    """`up` prints the address of each ready program, and that the stack runs in Docker Compose."""
    for name in SERVICES:
        port = stack.environment[f"{name.upper()}_PORT"]
        assert f"{name} is ready at http://127.0.0.1:{port}\n" in started
    assert "the stack runs in Docker Compose" in started
    assert "critical: webhook" in started.lower()


def test_its_status_is_fine(stack, started):
    """`status` reports running programs, healthy rules, and targets under the host's name."""
    said = stack.run("status", "--json")
    status = json.loads(said.stdout)
    assert said.returncode == 0, said.stdout
    assert status["way"] == "compose"
    assert {each["name"]: each["state"] for each in status["programs"]} == dict.fromkeys(
        SERVICES, "running"
    )
    assert {each["job"]: each["health"] for each in status["targets"]} == {
        "trainvitals": "up",
        "prometheus": "up",
        "alertmanager": "up",
    }
    assert status["rules"]["rules"] > 50
    assert status["rules"]["unhealthy"] == []
    assert len(status["alertmanagers"]) == 1
    assert stack.query("count by (instance) (up)") == {"machine-1": 3.0}


def test_the_exporter_reads_the_host(stack, started):
    """The exporter reports interfaces, memory and mounts of the machine, not of its container."""
    own = {
        line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]
    }
    assert "docker0" in own  # an interface that no container has
    found = stack.get(
        "prometheus", "/api/v1/query", query='host_network_bytes_total{direction="receive"}'
    )
    devices = {each["metric"]["device"] for each in found["data"]["result"]}
    assert "docker0" in devices
    assert devices <= own
    total = int(re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1]) * 1024
    assert stack.query("memory_total_bytes") == {"machine-1": total}
    mounts = stack.get("prometheus", "/api/v1/query", query="host_filesystem_size_bytes")
    points = {each["metric"]["mountpoint"] for each in mounts["data"]["result"]}
    assert "/" in points
    assert not any(point.startswith("/host") for point in points)


def test_a_run_on_the_host_is_seen(stack, started):
    """The exporter's container reports a run whose process on the host writes to `/dev/shm`."""
    name = f"compose-test-{os.getpid()}"
    code = (
        "import sys, time; from trainvitals import TrainingMonitor;"
        f"monitor = TrainingMonitor({name!r}, run_dir='/dev/shm/trainvitals');"
        "monitor.start_epoch(); monitor.update_batch(8); print('training', flush=True);"
        "sys.stdin.read(); monitor.finish()"
    )
    with subprocess.Popen(
        (sys.executable, "-c", code),
        env=stack.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "training\n"
        expression = f'training_process_up{{run="{name}"}}'
        assert wait_until(lambda: stack.query(expression), 60) == {"machine-1": 1.0}
        process.stdin.close()
    for path in Path("/dev/shm/trainvitals").glob(f"*{name}*"):
        path.unlink()


def test_a_test_message_is_delivered(stack, started):
    """`trainvitals notify --test` exits with 0, and its message reaches the webhook."""
    said = stack.run("notify", "--test")
    assert said.returncode == 0, said.stdout + said.stderr
    message = stack.receiver.wait_for(lambda each: each.path == "/alerts", 60)
    assert message.status == "firing"


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_may_do_nothing_it_need_not(stack, started, service):
    """Containers run without root and capabilities, with limits and only loopback ports."""
    container = stack.inspect(service)
    host = container["HostConfig"]
    assert container["Config"]["User"] == ("472:0" if service == "grafana" else "65534:65534")
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    # Docker adds the label to containers that share the host's PID namespace.
    labels = ["label=disable"] if service == "exporter" else []
    assert host["SecurityOpt"] == ["no-new-privileges:true", *labels]
    assert host["Privileged"] is False
    # Grafana may lose its plug-ins if its root is read-only.
    assert host["ReadonlyRootfs"] is (service != "grafana")
    assert host["Init"] is True
    assert host["PidsLimit"] == 512
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["LogConfig"] == {
        "Type": "json-file",
        "Config": {"max-size": "10m", "max-file": "3"},
    }
    memory = {"exporter": 256, "prometheus": 2048, "alertmanager": 256, "grafana": 512}
    assert host["Memory"] == memory[service] * MIB
    published = [each for bindings in host["PortBindings"].values() for each in bindings]
    assert [each["HostIp"] for each in published] == ["127.0.0.1"]
    writable = {each["Destination"] for each in container["Mounts"] if each["RW"]}
    assert (
        writable
        == {
            "exporter": {"/dev/shm", "/var/lib/trainvitals/deaths"},
            "prometheus": {"/prometheus"},
            "alertmanager": {"/alertmanager"},
            "grafana": {"/var/lib/grafana"},
        }[service]
    )
    assert not any("docker.sock" in each["Source"] for each in container["Mounts"])


def test_secrets_are_for_those_who_need_them(stack, started):
    """Passwords and receiver URLs are in files of the containers' users, and in no settings."""
    password = stack.state_dir / "secrets/grafana_admin_password"
    config = stack.state_dir / "config/compose/alertmanager/alertmanager.yml"
    assert stack.state_dir.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        assert (password.stat().st_uid, password.stat().st_mode & 0o777) == (472, 0o600)
        assert (config.stat().st_uid, config.stat().st_mode & 0o777) == (65534, 0o600)
    assert "/alerts" in config.read_text()
    told = json.dumps([stack.inspect(service) for service in SERVICES])
    assert stack.environment["GRAFANA_ADMIN_PASSWORD"] not in told
    assert stack.environment["WEBHOOK_URL"] not in told
    grafana = stack.docker(
        "exec", f"{stack.project}-grafana-1", "cat", "/run/secrets/grafana_admin_password"
    )
    assert grafana == stack.environment["GRAFANA_ADMIN_PASSWORD"]


def test_the_image_is_small_and_has_its_own_health_check(stack, started):
    """The exporter's image adds at most 37 MB to the Python image, and has a health check."""
    image = json.loads(stack.docker("image", "inspect", "trainvitals-test/exporter"))[0]
    base = json.loads(stack.docker("image", "inspect", stack.environment["PYTHON_IMAGE"]))[0]
    added = image["Size"] - base["Size"]
    print(f"image: {image['Size'] / 1e6:.0f} MB, of which ours {added / 1e6:.1f} MB")
    assert 5e6 < added < 37e6
    assert image["Config"]["Healthcheck"]["Test"][:2] == ["CMD", "python"]
    assert image["Config"]["User"] == "65534:65534"


def test_a_second_start_leaves_what_runs(stack, started):
    """A second `up` keeps the running containers."""
    before = [stack.inspect(service)["Id"] for service in SERVICES]
    said = stack.run("up")
    assert said.returncode == 0, said.stdout + said.stderr
    assert [stack.inspect(service)["Id"] for service in SERVICES] == before


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_override_fits_the_file(stack, override):
    """Compose merges each override with the base file, and keeps the override's settings."""
    told = stack.docker(
        "compose", "--env-file=/dev/null", "-f", ROOT / BASE, "-f", ROOT / override, "config"
    )
    exporter = yaml.safe_load(told)["services"]["exporter"]
    match override:
        case "docker-compose.nvidia.yml":
            (device,) = exporter["deploy"]["resources"]["reservations"]["devices"]
            assert device["driver"] == "nvidia"
        case "docker-compose.gaudi.yml":
            assert exporter["runtime"] == "habana"
        case "docker-compose.containers.yml":
            assert exporter["environment"]["DOCKER_HOST"] == "tcp://docker-proxy:2375"


def test_only_the_proxy_has_the_docker_socket(stack, started):
    """Only the proxy mounts the Docker socket; it has no privilege, port or external network."""
    services = (*SERVICES, "docker-proxy")
    containers = {service: stack.inspect(service) for service in services}
    having = {
        service
        for service, container in containers.items()
        if "docker.sock" in json.dumps([container["Mounts"], container["HostConfig"]["Binds"]])
    }
    assert having == {"docker-proxy"}
    proxy = containers["docker-proxy"]
    host = proxy["HostConfig"]
    group = Path(_find_socket(proxy)).stat().st_gid
    assert proxy["Config"]["User"] == f"65534:{group}"
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert not host["PortBindings"]
    assert not any(each["RW"] for each in proxy["Mounts"])
    (network,) = proxy["NetworkSettings"]["Networks"]
    assert json.loads(stack.docker("network", "inspect", network))[0]["Internal"] is True


def _find_socket(container):
    return next(
        each["Source"]
        for each in container["Mounts"]
        if each["Destination"] == "/var/run/docker.sock"
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1.41/containers/json", 200),
        ("GET", "/info", 200),
        ("GET", "/images/json", 403),
        ("POST", "/containers/create", 403),
    ],
)
def test_the_exporter_may_read_from_docker_and_no_more(stack, started, method, path, status):
    """In the exporter's container, the proxy forwards reads of containers and refuses the rest."""
    code = (
        "import http.client;"
        "proxy = http.client.HTTPConnection('docker-proxy', 2375, timeout=5);"
        f"proxy.request({method!r}, {path!r}); print(proxy.getresponse().status)"
    )
    name = f"{stack.project}-exporter-1"
    assert stack.docker("exec", name, "python", "-c", code) == str(status)


def test_the_exporter_has_a_place_for_what_it_knows_of_deaths(stack, started):
    """The exporter can write to its journal directory, which only its user may enter."""
    code = (
        "import os; place = os.environ['TRAINVITALS_JOURNAL_DIR'];"
        "open(place + '/probe', 'x').close(); os.unlink(place + '/probe');"
        "told = os.stat(place); print(told.st_uid, oct(told.st_mode & 0o777))"
    )
    name = f"{stack.project}-exporter-1"
    assert stack.docker("exec", name, "python", "-c", code) == "65534 0o700"


def test_a_proxy_whose_socket_is_gone_starts_again(stack, started):
    """The health check ends a proxy without an engine, as a restarted one mounts the new socket."""
    proxy = stack.inspect("docker-proxy")
    (_, command) = proxy["Config"]["Healthcheck"]["Test"]
    assert "127.0.0.1:2375/_ping" in command
    ended = command.replace("/_ping", "/nothing")
    name = f"{stack.project}-docker-proxy-1"
    with pytest.raises(subprocess.CalledProcessError):  # the check itself fails
        stack.docker("exec", name, "sh", "-c", ended)

    def is_back():
        state = stack.inspect("docker-proxy")
        return (
            state["RestartCount"] == proxy["RestartCount"] + 1
            and state["State"]["Health"]["Status"] == "healthy"
        )

    wait_until(is_back, 120)


def test_an_alert_reaches_a_receiver_on_the_host(stack, started):
    """The Watchdog alert goes from Prometheus through Alertmanager to a receiver on the host."""
    # An alert that Prometheus sends before it has found Alertmanager is lost, and is sent again a
    # minute later. This minute passes during the tests that do not restart Prometheus.
    message = stack.receiver.wait_for(lambda each: each.path == "/deadman", 90)
    assert message.names == ["Watchdog"]
    assert message.status == "firing"


def test_a_killed_container_comes_back(stack, started):
    """Each container whose process was killed is restarted once and becomes healthy."""
    for service in SERVICES:
        # Not by `docker kill`, after which the engine does not restart a container.
        os.kill(stack.inspect(service)["State"]["Pid"], signal.SIGKILL)

    def is_back(service):
        container = stack.inspect(service)
        return (
            container["RestartCount"] == 1 and container["State"]["Health"]["Status"] == "healthy"
        )

    wait_until(lambda: all(map(is_back, SERVICES)), 120)
    wait_until(lambda: stack.query('up{job="trainvitals"} == 1'), 120)


def test_the_data_outlives_a_stop(stack, started):
    """`down` removes all containers, and after another `up` Prometheus has the old samples."""
    then = time.time() - 5
    before = stack.query('up{job="trainvitals"}', time=then)
    assert before == {"machine-1": 1.0}
    said = stack.run("down")
    assert said.stdout == "stopped alertmanager, docker-proxy, exporter, grafana, prometheus\n"
    assert stack.docker("ps", "--all", "--quiet", "--filter", f"name={stack.project}") == ""
    assert json.loads(stack.run("status", "--json").stdout)["fine"] is False
    assert stack.run("down").stdout == "nothing is running\n"
    said = stack.run("up")
    assert said.returncode == 0, said.stdout + said.stderr
    assert stack.query('up{job="trainvitals"}', time=then) == before
