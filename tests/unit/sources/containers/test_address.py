"""The start time of a container engine is found from the engine's address."""

import os

import pytest

from trainvitals.sources.containers.address import find_engine_start
from trainvitals.sources.files import Roots

STARTED = 1_795_298_400.0


@pytest.mark.parametrize(
    ("address", "is_known"),
    [
        ("unix:///var/run/docker.sock", True),
        ("tcp://proxy:2375", True),
        ("unix:///run/podman/podman.sock", False),
        ("unix:///run/user/1000/docker.sock", False),
    ],
)
def test_only_of_dockers_own_daemon_is_the_start_known(tmp_path, address, is_known):
    """The start time is read from Docker's PID file only if Docker listens at the address."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/docker.pid").write_text("4711")
    os.utime(tmp_path / "run/docker.pid", (STARTED, STARTED))
    roots = Roots(tmp_path, tmp_path, tmp_path)
    assert find_engine_start(address, roots) == (STARTED if is_known else None)
