"""Fixtures that are shared with the unit tests."""

from tests.unit.stack.conftest import (
    new_settings,
    programs,
    quick_files,
    quick_up,
    settings,
    stack,
)

__all__ = ["new_settings", "programs", "quick_files", "quick_up", "settings", "stack"]
