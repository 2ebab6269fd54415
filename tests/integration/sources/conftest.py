"""Fixtures that are shared with the unit tests."""

from tests.unit.conftest import roots

__all__ = ["roots"]
