"""Fixtures that the unit tests have too."""

from tests.unit.stack.conftest import (
    new_settings,
    programs,
    quick_files,
    quick_up,
    settings,
    stack,
)

__all__ = ["new_settings", "programs", "quick_files", "quick_up", "settings", "stack"]
