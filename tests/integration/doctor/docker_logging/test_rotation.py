"""Docker's log settings on a real engine, which uses the file that `--apply` wrote."""

import gzip
import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from trainvitals.doctor.docker_logging import LogSettings, apply, inspect
from trainvitals.doctor.docker_logging.dockerd import read_engine
from trainvitals.doctor.docker_logging.flags import Flag
from trainvitals.doctor.docker_logging.problems import Daemon, find_problems
from trainvitals.sources.containers.engine import EngineClient

# A command that writes five megabytes to the log, including the time of each line.
LINES = f"i=0; while [ $i -lt 30000 ]; do echo $i-{'x' * 100}; i=$((i+1)); done"


@pytest.fixture
def image(engine, python_image):
    """Return the name of an image with a shell, if possible a small one."""
    return engine.get("GRAFANA_IMAGE", python_image)


@pytest.fixture
def second(second_engine, image):
    """Yield a second engine with Docker's default settings and the image."""
    with second_engine({}) as second:
        second.load(image)
        yield second


def test_logs_rotate_and_containers_outlive_a_restart(second, image):
    """With the settings, logs are rotated and compressed, and containers outlive the daemon."""
    client = EngineClient(second.address, environ={})
    words = ("--init", "--entrypoint=sleep", image, "1000")
    second.docker("run", "-d", "--name", "l-before", *words)
    (before,) = read_engine(client).endless
    assert (before.name, before.is_running, before.log_bytes) == ("l-before", True, 0)
    wanted = LogSettings("1m", 3)
    findings = inspect(second.config, wanted, engine=second.address)
    backup = apply(findings, time=time.time())
    assert backup is not None
    assert json.loads(backup.path.read_text()) == {}

    # The steps that the findings name, in their order.
    waiting = inspect(second.config, wanted, engine=second.address)
    assert waiting.needs_reload
    second.signal_daemon(1)
    wait_until(lambda: read_engine(client).has_live_restore)
    assert inspect(second.config, wanted, engine=second.address).is_correct
    pid = second.inspect("l-before")["State"]["Pid"]
    second.restart_daemon()
    state = second.inspect("l-before")["State"]
    assert (state["Running"], state["Pid"]) == (True, pid)

    second.docker("run", "--name=l-after", "--entrypoint=sh", image, "-c", LINES, seconds=120)
    found = second.inspect("l-after")
    assert found["HostConfig"]["LogConfig"] == {
        "Type": "json-file",
        "Config": {"max-size": "1m", "max-file": "3", "compress": "true"},
    }
    log = Path(found["LogPath"])
    wait_until(lambda: not log.with_name(f"{log.name}.1.tmp").exists())
    files = sorted(path.name[len(log.name) :] for path in log.parent.glob(f"{log.name}*"))
    assert files == ["", ".1.gz", ".2.gz"]
    assert all(path.stat().st_size <= 1_001_000 for path in log.parent.glob(f"{log.name}*"))
    with gzip.open(f"{log}.1.gz") as rotated:
        assert b'"stream":"stdout"' in rotated.readline()
    assert second.docker("logs", "--tail", "1", "l-after").startswith("29999-")
    # A container keeps the settings with which it was created.
    assert [each.name for each in read_engine(client).endless] == ["l-before"]


@pytest.mark.parametrize(
    "options",
    [
        {"live-restore": "true"},
        {"log-opts": {"max-size": "10m", "max-file": 5}},
        {"log-opts": {"max-sise": "10m"}},
        {"live_restore": True},
        {"mtu": "1400"},
        {"hosts": ["unix:///run/trainvitals-test.sock"]},
    ],
)
def test_a_daemon_does_not_start_where_we_say_so(second_engine, options):
    """`dockerd` does not start with options that are reported as fatal for the daemon."""
    flags = (Flag("hosts", "--host", "the test"),)
    assert find_problems(options, Daemon(flags))[0].effect == "daemon"
    with pytest.raises(AssertionError, match=r"unable to configure|unknown log opt"):
        second_engine(options).__enter__()


@pytest.mark.parametrize(
    ("driver", "log_options", "starts"),
    [
        ("json-file", {"max-size": "1m", "max-file": "2", "compress": "true"}, True),
        ("json-file", {"max-size": "1.5MB", "compress": "F"}, True),
        ("json-file", {"max-file": "3"}, True),
        ("json-file", {"compress": "true"}, False),
        ("json-file", {"max-size": "1m", "compress": "true"}, False),
        ("json-file", {"max-size": "1m", "max-file": "1", "compress": "1"}, False),
        ("json-file", {"max-size": "lots"}, False),
        ("json-file", {"max-size": "-1"}, False),
        ("json-file", {"max-size": "0"}, False),
        ("json-file", {"max-size": "1m", "max-file": "0"}, False),
        ("json-file", {"max-size": "1m", "compress": "yes"}, False),
        ("local", {"max-size": "1g", "max-file": "3"}, True),
    ],
)
def test_a_container_does_not_start_where_we_say_so(engine, image, driver, log_options, starts):
    """The engine rejects exactly the log options that are reported as fatal for containers."""
    effects = {
        each.effect for each in find_problems({"log-driver": driver, "log-opts": log_options})
    }
    assert ("containers" in effects) is not starts
    words = [f"--log-opt={name}={value}" for name, value in log_options.items()]
    said = subprocess.run(
        ("docker", "run", "--rm", "--entrypoint=true", f"--log-driver={driver}", *words, image),
        env=engine,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode == 0) is starts, said.stderr
