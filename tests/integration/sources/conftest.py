"""Fixtures that the unit tests have too."""

from tests.unit.sources.conftest import roots

__all__ = ["roots"]
