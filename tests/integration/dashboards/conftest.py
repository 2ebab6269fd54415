"""Fixtures that the unit tests have too."""

from tests.unit.dashboards.conftest import exclusions, sample, view

__all__ = ["exclusions", "sample", "view"]
