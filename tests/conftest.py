"""What all tests share."""

import logging
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.engines import engine, newer_programs, python_image, second_engine
from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program, prefix_command

__all__ = ["engine", "newer_programs", "python_image", "second_engine"]

# On a loaded machine any example may take seconds.
settings.register_profile(
    "unhurried", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")


def pytest_addoption(parser):
    """Add the one option of our own."""
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden again; read the diff"
    )


def pytest_configure():
    """Keep the stacks of tests from downloading Grafana, and let their programs hear Ctrl-C.

    A shell without job control has what it starts in the background ignore SIGINT.
    """
    os.environ.setdefault("GRAFANA_FETCH", "0")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_logreport(report):
    """Name what failed at once: a run in CI that is ended from outside has no summary."""
    if report.failed and os.environ.get("CI") and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})", file=sys.__stderr__, flush=True)


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
    """Return the path of a real Prometheus."""
    return _find("prometheus")


@pytest.fixture(scope="session")
def promtool():
    """Return the path of a real promtool."""
    return _find("promtool")


@pytest.fixture(scope="session")
def unpacked_alertmanager():
    """Return the path of a real Alertmanager, installed or only unpacked."""
    return _find("prometheus-alertmanager")


@pytest.fixture(scope="session")
def alertmanager(unpacked_alertmanager, tmp_path_factory):
    """Return the path of a real Alertmanager that runs as it is: it finds its template."""
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
    """Return the path of a real amtool."""
    return _find("amtool")


@pytest.fixture
def workshop():
    """Return an empty directory, in memory where there is one, for what programs write and read."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
