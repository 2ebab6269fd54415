"""A course over time."""

from __future__ import annotations

Points = tuple[tuple[float, float], ...]
"""Moments, seconds since 1970, and values; the oldest first."""
