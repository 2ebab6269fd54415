"""What all tests share."""

import os

import pytest

from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program


def pytest_addoption(parser):
    """Add the one option of our own."""
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew; read the diff"
    )


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
