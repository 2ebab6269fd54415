"""What the tests of the stack share."""

import os
import socket
import sys
from pathlib import Path

import pytest

from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program
from trainvitals.stack.settings import Settings

STAND_IN = Path(__file__).parent / "stand_ins/exporter.py"


def _find(name):
    try:
        return find_program(name)
    except StackError as error:
        if os.environ.get("CI"):
            raise
        return pytest.skip(f"needs {name}: {error}")


@pytest.fixture(scope="session")
def prometheus():
    """Give the path of a real Prometheus."""
    return _find("prometheus")


@pytest.fixture(scope="session")
def promtool():
    """Give the path of a real promtool."""
    return _find("promtool")


@pytest.fixture(scope="session")
def free_ports():
    """Give a function that finds two free ports."""

    def find():
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            return one.getsockname()[1], other.getsockname()[1]

    return find


@pytest.fixture(scope="session")
def new_settings(free_ports):
    """Give a function that makes settings on free ports with the stand-in exporter."""

    def make(state_dir):
        exporter, prometheus = free_ports()
        return Settings(state_dir.resolve(), exporter, prometheus, (sys.executable, str(STAND_IN)))

    return make
