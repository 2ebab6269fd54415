"""Tests for the one-line explanations of Docker's error messages."""

import socket

import pytest

from trainvitals.stack.services import explain


def test_a_full_disk_is_named():
    """A full disk is named together with the action that failed."""
    said = "failed to register layer: write /usr/lib/x: no space left on device"
    assert explain(said, doing="pull prom/prometheus:v3") == (
        "cannot pull prom/prometheus:v3: Docker's disk is full; see `docker system df` and "
        "free some space"
    )


@pytest.mark.parametrize(
    "said",
    [
        (
            "Error response from daemon: Get https://registry/v2/: dial tcp: lookup registry: "
            "no such host"
        ),
        "Error response from daemon: pull access denied for prom/x, repository does not exist",
        "toomanyrequests: You have reached your pull rate limit",
        "failed to solve: python:3.13: failed to resolve source metadata for python:3.13: x",
    ],
)
def test_an_image_that_cannot_be_had_points_to_the_other_way(said):
    """The explanation names the variables for other images and the way without images."""
    line = explain(said, doing="pull prom/x")
    assert line.startswith("cannot pull prom/x: ")
    assert line.endswith("in .env (PROMETHEUS_IMAGE, …), or run `trainvitals up --way native`")
    assert "\n" not in line


@pytest.mark.parametrize(
    "said",
    [
        (
            "driver failed programming external connectivity on endpoint t-1 (ab): Bind for "
            "127.0.0.1:{port} failed: port is already allocated"
        ),
        (
            "driver failed programming external connectivity on endpoint t-1 (ab): Error starting "
            "userland proxy: listen tcp4 127.0.0.1:{port}: bind: address already in use"
        ),
    ],
)
def test_a_taken_port_names_its_holder(said):
    """The explanation names the process that uses the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = explain(said.format(port=port), doing="start the containers")
    assert f"port {port} is in use by " in line
    assert "(pid " in line


def test_a_missing_runtime_is_named():
    """If a container runtime is missing, the explanation names the toolkit to reinstall."""
    said = 'could not select device driver "nvidia" with capabilities: [[gpu utility]]'
    assert "reinstall the vendor's container toolkit" in explain(said, doing="start")


def test_anything_else_is_quoted_in_its_last_reason():
    """For other errors, the last reason is quoted without the progress lines around it."""
    said = (
        " Container t-alertmanager-1  Starting\n"
        "Error response from daemon: it is tired\n"
        " Container t-exporter-1  Started\n"
    )
    assert explain(said, doing="start the containers") == (
        "cannot start the containers: it is tired"
    )
    assert explain("", doing="start") == "cannot start: no reason given"
