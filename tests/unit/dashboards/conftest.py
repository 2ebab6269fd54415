"""What the tests of the boards share."""

import pytest

from tests.support.rulelint.house import read_house
from tests.unit.dashboards import lint, samples


@pytest.fixture(scope="session")
def view():
    """Return the boards as they are committed, with what they are compared with."""
    return lint.read_view()


@pytest.fixture(scope="session")
def exclusions():
    """Return what the lint finds on them and is meant."""
    return lint.read_excluded()


@pytest.fixture(scope="session")
def sample():
    """Return five small boards that are in order."""
    return samples.make_view(read_house())
