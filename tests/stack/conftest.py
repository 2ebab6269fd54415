"""What the tests of the stack share."""

import socket
import sys
from pathlib import Path

import pytest

from trainvitals.stack.settings import Settings

STAND_IN = Path(__file__).parent / "stand_ins/exporter.py"


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
