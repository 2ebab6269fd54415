"""Tests for the parser of times in texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.timestamps import parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T22:21:20.89509041Z", 1795299680.89509041),
        ("2026-11-21T22:21:20Z", 1795299680.0),
        ("2026-11-22T00:21:20.5+02:00", 1795299680.5),
        ("2026-11-21T17:51:20.123456789-04:30", 1795299680.123456789),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", None),
        ("2026-11-21T22:21:20.500000000+00:00 and more", 1795299680.5),
        ("2026-11-21 22:21:20,500+0000 and more", 1795299680.5),
        ("2026-11-21T22:21:20", None),
        ("2026-11-21T22:21:20Zulu", None),
        ("2026-13-21T22:21:20Z", None),
        ("2026-11-21", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, seconds: float | None):
    """Times in any time zone are read; the zero time and texts without a zone are read as None."""
    assert parse_time(text) == seconds


@given(st.text())
def test_any_text_is_a_time_or_none(text: str):
    """Parsing arbitrary text raises no exception."""
    parse_time(text)
