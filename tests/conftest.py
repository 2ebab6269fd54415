"""Fixtures and settings that all tests share."""

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

# On a loaded machine any example of Hypothesis may take seconds.
settings.register_profile(
    "unhurried", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")


def pytest_addoption(parser):
    """Add the option `--update-golden`."""
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden again; read the diff"
    )


def pytest_configure():
    """Disable the download of Grafana, and restore Python's own handler of SIGINT.

    A shell without job control makes its background processes ignore SIGINT, and the programs that
    tests start would inherit this.
    """
    os.environ.setdefault("GRAFANA_FETCH", "0")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_logreport(report):
    """Print each failure at once in CI, as a run that is ended from outside has no summary."""
    if report.failed and os.environ.get("CI") and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})", file=sys.__stderr__, flush=True)


@pytest.fixture(autouse=True)
def logging_stays():
    """Restore the package's logger, which commands that run in this process configure."""
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
    """Return the path of a real Alertmanager, or of a launcher that lets it find its template."""
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
    """Yield an empty directory for the files of programs, in memory if `/dev/shm` exists."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
