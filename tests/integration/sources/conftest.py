"""Fixtures that the unit tests have too."""

from tests.unit.conftest import roots

__all__ = ["roots"]
