"""Tests for the arguments of `trainvitals serve`."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.commands.serve import parse_expected
from trainvitals.errors import ConfigurationError


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["gpu=8"], {"gpu": 8}),
        (["gpu=8", "hpu=0"], {"gpu": 8, "hpu": 0}),
        (["gpu=8", "gpu=4"], {"gpu": 4}),
    ],
)
def test_expected_accelerators(texts, expected):
    """Each kind of accelerator has a number, and the last value for a kind counts."""
    assert parse_expected(texts) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "gpu",
        "gpu=",
        "gpu=-1",
        "gpu=8.0",
        "tpu=8",
        "GPU=8",
        "gpu=8,hpu=8",
        "gpu=²",
        "gpu=" + 5000 * "8",
    ],
)
def test_other_numbers_of_accelerators_are_refused(text):
    """The error for an invalid number of accelerators quotes the argument and shows the format."""
    with pytest.raises(ConfigurationError) as refused:
        parse_expected([text])
    assert str(refused.value) == (
        f"--accelerators.expected={text}: write gpu=N or hpu=N, as in gpu=8"
    )


@given(st.text())
def test_any_text_is_a_number_of_accelerators_or_refused(text):
    """Any text either is a valid number of accelerators or raises a ConfigurationError."""
    with suppress(ConfigurationError):
        assert parse_expected([f"gpu={text}"])["gpu"] >= 0
