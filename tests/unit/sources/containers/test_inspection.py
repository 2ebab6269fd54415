"""Tests for parsing inspections recorded from Docker 20.10 or written in Podman's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.sources.containers.evidence import HealthProbe, Settings, State
from trainvitals.sources.containers.inspection import (
    Inspection,
    Listing,
    describe_engine,
    parse_inspection,
    parse_listing,
)

FOLDER = Path(__file__).parents[3] / "fixtures" / "inspections"
NAMES = [
    *("Id", "Name", "State", "Health", "Log", "Config", "HostConfig", "Env", "Cmd", "Labels"),
    *("LogConfig", "DeviceRequests", "Capabilities", "Mounts", "Tmpfs", "StartedAt", "Pid"),
    *("Path", "Args", "Names", "Devices", "Memory"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
        )
    ),
    max_leaves=15,
)


def read(name: str) -> dict[str, object]:
    """Return a recorded inspection."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    assert isinstance(found, dict)
    return found


def test_a_container_that_is_unhealthy():
    """The state and the settings are read completely, but variables only by name."""
    container = "3183ce008323cfafc3e8d05372a6b0635e82be4a25540883ef37e8a9d3949fe2"
    found = parse_inspection(read("unhealthy"))
    assert found == Inspection(
        id=container,
        name="train",
        image="busybox",
        compose_project="vision",
        compose_service="trainer",
        created=1795299679.460631873,
        pid=24925,
        restart_count=0,
        state=State(
            status="running",
            exit_code=0,
            started=1795299679.84412293,
            health="unhealthy",
            failing_streak=5,
            probes=(
                HealthProbe(1795299680.968337317, 1, "down\n"),
                HealthProbe(1795299682.043105911, 1, "down\n"),
                HealthProbe(1795299683.122317206, 1, "down\n"),
                HealthProbe(1795299684.201452737, 1, "down\n"),
                HealthProbe(1795299685.279095542, 1, "down\n"),
            ),
        ),
        settings=Settings(
            command=("sleep", "1000"),
            variables=("PYTHONUNBUFFERED", "WANDB_API_KEY"),
            is_unbuffered=True,
            memory_limit_bytes=536870912,
            memory_swap_bytes=1073741824,
            shm_size_bytes=67108864,
            pids_limit=100,
            has_init=True,
            restart_policy="unless-stopped",
            log_driver="json-file",
            log_options=(("max-file", "3"), ("max-size", "10m")),
            network_mode="default",
            stop_timeout_seconds=30,
            user="1000:1000",
            mounts=(
                ("/var/lib/docker/volumes/data/_data", "/data"),
                ("/tmp", "/host"),
                ("tmpfs", "/scratch"),
            ),
        ),
    )


def test_a_container_that_the_kernel_killed():
    """The memory limit, the exit code and the engine's OOM flag are read."""
    found = parse_inspection(read("oom"))
    assert found.state == State(
        status="exited",
        exit_code=137,
        is_oom_killed=True,
        started=1795299680.806638843,
        finished=1795299680.89509041,
    )
    assert (found.pid, found.settings.memory_limit_bytes) == (None, 33554432)
    assert not found.settings.is_unbuffered


def test_a_container_whose_gpus_were_refused():
    """For a container that was never started, the error, the state and the settings are read."""
    found = parse_inspection(read("gpus_refused"))
    assert found.state == State(
        status="created",
        exit_code=128,
        error='could not select device driver "" with capabilities: [[gpu]]',
    )
    assert (found.settings.wants_gpus, found.settings.is_unbuffered) == (True, True)
    assert found.settings.variables == ("HF_TOKEN",)
    assert found.settings.shm_size_bytes == 1073741824


def test_a_command_with_a_secret():
    """A secret in the command is masked, and Python's `-u` is found inside a shell command."""
    found = parse_inspection(read("created_with_terminal")).settings
    assert found.command == ("sh", "-c", "python -X dev -u train.py --token=***")
    assert found.is_unbuffered
    assert (found.has_tty, found.is_read_only, found.network_mode) == (True, True, "host")


def test_a_command_that_is_not_there():
    """The engine's error names the command that was not found."""
    state = parse_inspection(read("no_such_command")).state
    assert (state.status, state.exit_code) == ("created", 127)
    assert 'exec: "nosuchcmd": executable file not found in $PATH' in state.error


def test_podman_while_it_runs():
    """An empty health status counts as none, and an NVIDIA device as a request for GPUs."""
    found = parse_inspection(read("podman_running"))
    assert (found.name, found.image) == ("train", "localhost/train:latest")
    assert (found.compose_project, found.compose_service) == ("vision", "trainer")
    assert found.state == State(status="running", exit_code=0, started=1795299001.5)
    assert found.settings == Settings(
        command=("python3", "train.py"),
        variables=("HF_TOKEN", "container"),
        memory_limit_bytes=536870912,
        memory_swap_bytes=1073741824,
        shm_size_bytes=65536000,
        pids_limit=2048,
        log_driver="journald",
        network_mode="slirp4netns",
        wants_gpus=True,
        stop_timeout_seconds=10,
    )


def test_podman_when_it_has_stopped():
    """Podman's status `stopped`, its missing flags and a name without a slash are supported."""
    found = parse_inspection(read("podman_stopped"))
    assert (found.name, found.image, found.pid) == ("train", "localhost/train:latest", None)
    assert found.restart_count is None
    assert found.state == State(
        status="stopped", exit_code=137, started=1795299001.5, finished=1795299121.5
    )
    assert found.settings.command == ("sh", "-c", "python3 train.py")


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"Running": True, "Paused": True}, "paused"),
        ({"Running": True, "Restarting": True}, "restarting"),
        ({"Running": True}, "running"),
        ({"Running": False, "FinishedAt": "2026-11-21T22:12:01Z"}, "exited"),
        ({}, "created"),
    ],
)
def test_a_status_is_told_from_flags(state: dict[str, object], status: str):
    """Without a status, the flags determine it, and paused or restarting outranks running."""
    assert parse_inspection({"State": state}).state.status == status


@pytest.mark.parametrize(
    ("host", "wants_gpus"),
    [
        ({"Runtime": "nvidia"}, True),
        ({"DeviceRequests": [{"Driver": "nvidia", "Capabilities": None}]}, True),
        ({"DeviceRequests": [{"Capabilities": [["utility", "gpu"]]}]}, True),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, True),
        ({"Devices": [{"PathOnHost": "/dev/accel/accel0"}]}, True),
        ({"Devices": [{"PathOnHost": "/dev/fuse"}], "Runtime": "runc"}, False),
        ({"DeviceRequests": [{"Capabilities": [["tpu"]]}]}, False),
        ({"DeviceRequests": None, "Devices": None}, False),
    ],
)
def test_a_wish_for_gpus_has_many_shapes(host: dict[str, object], wants_gpus: bool):  # noqa: FBT001
    """GPUs can be requested by runtime, by device request, by device or by CDI name."""
    assert parse_inspection({"HostConfig": host}).settings.wants_gpus is wants_gpus


@pytest.mark.parametrize(
    ("command", "is_unbuffered"),
    [
        (["python", "-u", "train.py"], True),
        (["/opt/venv/bin/python3.12", "-X", "faulthandler", "-W", "error", "-Bu", "x.py"], True),
        (["torchrun", "--nproc-per-node=8", "train.py", "-u"], False),
        (["python", "train.py", "-u"], False),
        (["python", "--unbuffered"], False),
    ],
)
def test_python_is_told_to_write_at_once(command: list[str], is_unbuffered: bool):  # noqa: FBT001
    """Output is unbuffered if `-u` is an option of Python, but not if it is one of the program."""
    found = parse_inspection({"Config": {"Cmd": command}}).settings
    assert found.is_unbuffered is is_unbuffered


@pytest.mark.parametrize("option", ["-X", "-W", "-Xa", "-a", "python", "-X -a", "python -X"])
def test_a_long_command_costs_little(option: str):
    """A very long command, which any container may have, is parsed in linear time."""
    command = ["python", *option.split() * 20_000, "train.py"]
    assert not parse_inspection({"Config": {"Cmd": command}}).settings.is_unbuffered


def test_an_empty_variable_does_not_unbuffer():
    """Python treats an empty `PYTHONUNBUFFERED` as not set."""
    assert not parse_inspection({"Config": {"Env": ["PYTHONUNBUFFERED="]}}).settings.is_unbuffered


def test_the_key_to_a_log_is_masked():
    """A token in the options of the log driver is masked."""
    log = {"Type": "splunk", "Config": {"splunk-token": "8f7e6d5c-secret", "tag": "train"}}
    found = parse_inspection({"HostConfig": {"LogConfig": log}}).settings
    assert found.log_options == (("splunk-token", "***"), ("tag", "train"))


def test_errors_and_probes_are_masked_and_short():
    """Secrets in errors and probes are masked, and a probe's output is cut to 2048 characters."""
    probe = {"End": "never", "ExitCode": -1, "Output": "x" * 5000}
    log = [{"Output": "Authorization: Bearer abcdefghijklmnop"}, probe]
    state = parse_inspection(
        {"State": {"Error": "https://me:hunter2@example.org: no", "Health": {"Log": log}}}
    ).state
    assert state.error == "https://me:***@example.org: no"
    assert "abcdefghijklmnop" not in state.probes[0].output
    assert state.probes[1] == HealthProbe(None, -1, "x" * 2048)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["Id", "State", "Config", "HostConfig", "Mounts"]), JSON))
def test_any_document_is_an_inspection(document: dict[str, object]):
    """No document raises an exception."""
    parse_inspection(document)
    parse_listing(document)


def test_a_line_of_the_list():
    """The container's own name is read, not the names that linked containers use for it."""
    document = {
        "Id": "ab12",
        "Names": ["/web/trainer", "/train"],
        "Image": "busybox",
        "Created": 1795299157,
        "State": "running",
        "Status": "Up 3 seconds",
        "Labels": {"com.docker.compose.project": "vision"},
    }
    assert parse_listing(document) == Listing(
        "ab12", "train", "busybox", "vision", "", 1795299157.0, "running"
    )


@pytest.mark.parametrize(
    ("version", "description"),
    [
        ({"Version": "26.1.5", "Components": [{"Name": "Engine"}]}, "docker 26.1.5"),
        ({"Version": "4.3.1", "Components": [{"Name": "Podman Engine"}]}, "podman 4.3.1"),
        ({"Version": "20.10.24"}, "docker 20.10.24"),
        ({}, ""),
    ],
)
def test_an_engine_is_described(version: dict[str, object], description: str):
    """Podman is recognized by the name of one of its components."""
    assert describe_engine(version) == description
