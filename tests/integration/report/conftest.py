"""Hand-written data of a day and of a week, each in a real Prometheus."""

import pytest

from tests.integration.report.past_day import write_day
from tests.integration.report.past_week import write_week


@pytest.fixture(scope="session")
def day(promtool, prometheus, tmp_path_factory):
    """Start a Prometheus with the data of `past_day`."""
    with write_day().open(promtool, prometheus, tmp_path_factory.mktemp("day")) as kept:
        yield kept


@pytest.fixture(scope="session")
def week(promtool, prometheus, tmp_path_factory):
    """Start a Prometheus with the data of `past_week`."""
    with write_week().open(promtool, prometheus, tmp_path_factory.mktemp("week")) as kept:
        yield kept
