"""Tests for building blocks of metrics from tables."""

from __future__ import annotations

from trainvitals.metrics.collectors.tables import (
    Metric,
    by,
    counter,
    gauge,
    list_fields,
    scalar_block,
    table_block,
)
from trainvitals.metrics.families import Family

ONE = Family("one", "gauge", "One. Source: a test.")
TWO = Family("two", "gauge", "Two. Source: a test.")
A, B = (("device", "a"),), (("device", "b"),)


def test_values_stand_family_after_family():
    """Values are ordered by family and then by device; a value of None has no sample."""
    metrics = (
        gauge("one", "first", "One."),
        Metric("two", "counter", "Two.", ("read", "written"), by("direction", ("in", "out"))),
    )
    block = table_block(("test",), metrics, (A, B), [(1, 2, 3), (None, 5, 6)])
    one, two = block.describe()
    assert list_fields(metrics) == ("first", "read", "written")
    assert block.values == [1, 2, 5, 3, 6]
    assert one.samples == (("", A),)
    assert two.samples == (
        ("", (*A, ("direction", "in"))),
        ("", (*B, ("direction", "in"))),
        ("", (*A, ("direction", "out"))),
        ("", (*B, ("direction", "out"))),
    )


def test_a_family_without_a_value_is_left_out():
    """A family without a value for any device is omitted, which changes the shape."""
    metrics = (gauge("one", "first", "One."), counter("two", "second", "Two."))
    block = table_block(("test",), metrics, (A, B), [(None, 2), (None, 4)])
    assert ([family.name for family in block.describe()], block.values) == (["two"], [2, 4])
    assert block.shape != table_block(("test",), metrics, (A, B), [(1, 2), (None, 4)]).shape


def test_the_samples_of_a_histogram_stand_together():
    """The samples of a histogram are adjacent for each device, as OpenMetrics requires."""
    steps = Metric(
        "steps",
        "histogram",
        "Steps.",
        ("up_to_1", "count"),
        (("_bucket", (("le", "1.0"),)), ("_count", ())),
    )
    block = table_block(
        ("test",), (steps, gauge("one", "one", "One.")), (A, B), [(1, 2, 9), (3, 4, -1)], absent=-1
    )
    one, histogram = block.describe()
    assert block.values == [9, 1, 2, 3, 4]
    assert one.samples == (("", A),)
    assert [suffix for suffix, _ in histogram.samples] == ["_bucket", "_count"] * 2
    assert histogram.samples[2] == ("_bucket", (*B, ("le", "1.0")))


def test_a_value_that_is_unknown_has_no_family():
    """An unknown value has no family; the shape depends on which values are present."""
    whole = scalar_block("test", (ONE, TWO), (1, 2))
    part = scalar_block("test", (ONE, TWO), (None, 2))
    assert (whole.describe(), whole.values) == ((ONE, TWO), [1, 2])
    assert (part.describe(), part.values) == ((TWO,), [2])
    assert whole.shape != part.shape
    assert part.shape != scalar_block("test", (ONE, TWO), (1, None)).shape


def test_two_collectors_never_share_a_shape():
    """Blocks with the same families of different collectors have different shapes."""
    assert scalar_block("a", (ONE,), (1,)).shape != scalar_block("b", (ONE,), (1,)).shape
