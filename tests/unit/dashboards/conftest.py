"""Shared fixtures for the tests of the dashboards."""

import pytest

from tests.support.rulelint.house import read_house
from tests.unit.dashboards import lint, samples


@pytest.fixture(scope="session")
def view():
    """Return the committed dashboards and the data to compare them with."""
    return lint.read_view()


@pytest.fixture(scope="session")
def exclusions():
    """Return the intended findings of the lint on the committed dashboards."""
    return lint.read_excluded()


@pytest.fixture(scope="session")
def sample():
    """Return five small dashboards without faults."""
    return samples.make_view(read_house())
