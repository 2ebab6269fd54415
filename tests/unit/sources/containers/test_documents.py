"""Tests for the functions that read values from an engine's JSON answers."""

from __future__ import annotations

import pytest

from trainvitals.sources.containers.documents import (
    as_mapping,
    get_list,
    get_mapping,
    get_number,
    get_text,
    get_texts,
    parse_json,
)


def test_what_is_not_as_it_should_be_is_not_there():
    """A member of an unexpected type counts as missing; a boolean does not count as a number."""
    document = {"a": 1, "b": True, "c": None, "d": "x", "e": [1, "y"], "f": 2**63, "g": 1.5}
    assert [get_number(document, name) for name in "abcdefgh"] == [1, *[None] * 7]
    assert [get_text(document, name) for name in "acdeh"] == ["", "", "x", "", ""]
    assert [get_list(document, name) for name in "ace"] == [(), (), (1, "y")]
    assert [get_texts(document, name) for name in "ade"] == [(), ("x",), ("y",)]
    assert get_mapping(document, "a") == as_mapping(None) == as_mapping([]) == {}


def test_texts_are_bounded_and_can_be_written():
    """A text is cut to 4096 characters, and an unpaired surrogate becomes a question mark."""
    assert len(get_text({"a": "x" * 10_000}, "a")) == 4096
    assert get_text({"a": "x\ud800y"}, "a") == "x?y"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_a_value_error(text: bytes):
    """Invalid JSON and too deeply nested JSON raise a `ValueError`."""
    with pytest.raises(ValueError):
        parse_json(text)
