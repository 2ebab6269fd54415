"""Families as tables."""

from __future__ import annotations

from trainvitals.collectors.tables import Column, list_families, list_values, scalar_block
from trainvitals.families import Family

ONE = Family("one", "gauge", "One. Source: a test.")
TWO = Family("two", "gauge", "Two. Source: a test.")


def test_values_stand_column_after_column():
    """All devices of the first family come before those of the second."""
    columns: tuple[Column[tuple[int, int]], ...] = (
        Column("one", "gauge", "One.", lambda row: row[0]),
        Column("two", "gauge", "Two.", lambda row: row[1]),
    )
    assert list_values(columns, [(1, 2), (3, 4)]) == [1, 3, 2, 4]
    assert list_families(columns, "device", ["a", "b"])[1].samples == (
        ("", (("device", "a"),)),
        ("", (("device", "b"),)),
    )


def test_a_value_that_is_unknown_has_no_family():
    """The shape tells which are there."""
    whole = scalar_block("test", (ONE, TWO), (1, 2))
    part = scalar_block("test", (ONE, TWO), (None, 2))
    assert (whole.describe(), whole.values) == ((ONE, TWO), [1, 2])
    assert (part.describe(), part.values) == ((TWO,), [2])
    assert whole.shape != part.shape
    assert part.shape != scalar_block("test", (ONE, TWO), (1, None)).shape


def test_two_collectors_never_share_a_shape():
    """The same families of another collector are another shape."""
    assert scalar_block("a", (ONE,), (1,)).shape != scalar_block("b", (ONE,), (1,)).shape
