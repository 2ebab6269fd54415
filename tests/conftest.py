"""What all tests share."""

import logging
import os
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.engines import engine, newer_programs, python_image, second_engine
from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program
from trainvitals.stack.templatepath import prefix_command

__all__ = ["engine", "newer_programs", "python_image", "second_engine"]


def pytest_addoption(parser):
    """Add the one option of our own."""
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew; read the diff"
    )


@pytest.fixture(autouse=True)
def logging_stays():
    """Leave the package's logger as it was: a command that runs in this process sets it up."""
    logger = logging.getLogger("trainvitals")
    handlers, level, propagates = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagates
    logger.setLevel(level)


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
def unpacked_alertmanager():
    """Give the path of a real Alertmanager, installed or only unpacked."""
    return _find("prometheus-alertmanager")


@pytest.fixture(scope="session")
def alertmanager(unpacked_alertmanager, tmp_path_factory):
    """Give the path of a real Alertmanager that runs as it is: it finds its template."""
    program = unpacked_alertmanager
    place = tmp_path_factory.mktemp("alertmanager")
    prefix = prefix_command(program, place / "hold")
    if not prefix:
        return program
    launcher = place / "prometheus-alertmanager"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join((*prefix, str(program)))} "$@"\n')
    launcher.chmod(0o755)
    return launcher


@pytest.fixture(scope="session")
def amtool():
    """Give the path of a real amtool."""
    return _find("amtool")


@pytest.fixture
def workshop():
    """Give an empty directory, in memory where there is one, for what programs write and read."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
