"""A soak test with hanging drivers and dying runs, at one scrape a second."""

import os

import pytest

from tests.support.soak import Soak

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
SHORT_SECONDS, LONG_SECONDS = 30.0, 6 * 3600.0


@pytest.mark.timeout(LONG_SECONDS + 600 if LONG else 180)
def test_trouble_costs_no_scrape_and_leaves_nothing_behind(tmp_path):
    """No scrape fails and nothing leaks in six hours, or in 30 s with ten times the faults."""
    if LONG:
        soak = Soak(LONG_SECONDS)
        soak.run(tmp_path, print)
        wrong = soak.judge()
    else:
        # Other tests run at the same time, and a new exporter still loads modules.
        soak = Soak(SHORT_SECONDS, speed=10, patience=5.0)
        soak.run(tmp_path)
        wrong = soak.judge(most_growth=16 << 20)
    assert wrong == []
    assert soak.faults > SHORT_SECONDS
    assert soak.runs > SHORT_SECONDS / 2
