"""Fixtures shared with the unit tests."""

from tests.unit.dashboards.conftest import exclusions, sample, view

__all__ = ["exclusions", "sample", "view"]
