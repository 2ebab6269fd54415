"""Fixtures shared with the unit tests."""

from tests.unit.alerting.conftest import alertmanager, amtool, quick_routes, version

__all__ = ["alertmanager", "amtool", "quick_routes", "version"]
