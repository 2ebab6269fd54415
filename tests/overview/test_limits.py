"""The limits are those of the alerts."""

from __future__ import annotations

import pytest

from grafana.build.limits import read_limits
from trainvitals.overview.limits import LIMITS


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_that_of_its_alert(name):
    """It is the number that prometheus/rules/thresholds.yml has under this name."""
    assert LIMITS[name] == read_limits()[name]
