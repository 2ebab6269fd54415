"""Looking things up in what an engine answers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.sources.containers.documents import (
    as_mapping,
    get_list,
    get_mapping,
    get_number,
    get_text,
    get_texts,
    parse_json,
    parse_time,
)

# Other tests keep the processors busy.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T22:21:20.89509041Z", 1795299680.89509041),
        ("2026-11-21T22:21:20Z", 1795299680.0),
        ("2026-11-22T00:21:20.5+02:00", 1795299680.5),
        ("2026-11-21T17:51:20.123456789-04:30", 1795299680.123456789),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", None),
        ("2026-13-21T22:21:20Z", None),
        ("2026-11-21", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, seconds: float | None):
    """In any zone; the engine's zero is never, and what is no time is none."""
    assert parse_time(text) == seconds


@patient
@given(st.text())
def test_any_text_is_a_time_or_none(text: str):
    """Nothing is raised."""
    parse_time(text)


def test_what_is_not_as_it_should_be_is_not_there():
    """A number is no text, a truth is no number, null is no list."""
    document = {"a": 1, "b": True, "c": None, "d": "x", "e": [1, "y"], "f": 2**64, "g": 1.5}
    assert [get_number(document, name) for name in "abcdefgh"] == [1, *[None] * 7]
    assert [get_text(document, name) for name in "acdeh"] == ["", "", "x", "", ""]
    assert [get_list(document, name) for name in "ace"] == [(), (), (1, "y")]
    assert [get_texts(document, name) for name in "ade"] == [(), ("x",), ("y",)]
    assert get_mapping(document, "a") == as_mapping(None) == as_mapping([]) == {}


def test_texts_are_bounded_and_can_be_written():
    """Four thousand characters at most; a half of a pair becomes a question mark."""
    assert len(get_text({"a": "x" * 10_000}, "a")) == 4096
    assert get_text({"a": "x\ud800y"}, "a") == "x?y"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_a_value_error(text: bytes):
    """Also where it is too deep to be meant."""
    with pytest.raises(ValueError):
        parse_json(text)
