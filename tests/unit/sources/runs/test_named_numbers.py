"""Tests for the recognition of numbers in lines of text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.runs.named_numbers import find_pairs, parse_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7.0),
        (" -0.5 ", -0.5),
        ("1.5E-04", 0.00015),
        (".5", 0.5),
        ("5.", 5.0),
        ("1,234,567.5", 1234567.5),
        ("12.5%", 0.125),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1e999", math.inf),
    ],
)
def test_a_number_is_read(text: str, number: float):
    """Thousands separators, percentages and exponents are understood."""
    assert parse_number(text) == number


def test_nan_is_a_number():
    """Both spellings, Python's `nan` and `NaN`, are read as NaN."""
    assert math.isnan(parse_number("nan") or 0.0)
    assert math.isnan(parse_number("NaN") or 0.0)


@pytest.mark.parametrize("text", ["", "a", "1a", "1_0", "1,23", "0x10", "1.2.3", "--1", "9" * 50])
def test_what_is_no_number_is_none(text: str):
    """Text that is not a decimal number is rejected, even if Python's `float` accepts it."""
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("val_loss: 0.9 | val_iou: 0.1", [("val_loss", 0.9), ("val_iou", 0.1)]),
        ("'loss': '1.5', 'lr': 5e-05", [("loss", 1.5), ("lr", 0.00005)]),
        ("loss=0.5, acc=91%", [("loss", 0.5), ("acc", 0.91)]),
        (" - loss: 0.5 - val_loss: 0.6", [("loss", 0.5), ("val_loss", 0.6)]),
        ("lm loss: 2.5E+00 | grad norm: 0.5 |", [("lm loss", 2.5), ("grad norm", 0.5)]),
        ("time per step (ms): 2.5", [("time per step (ms)", 2.5)]),
        ("tps: 10,050  tflops: 314.71", [("tps", 10050.0), ("tflops", 314.71)]),
        ("loss=tensor(0.5, grad_fn=<X>)", [("loss", 0.5)]),
        ("train/loss: 0.5", [("train/loss", 0.5)]),
        ("memory: 66.91GiB(37.5%)", []),
        ("at 12:30:45", []),
        ("version: 1.2.3", []),
        ("path=/data/1", []),
        ("no numbers here", []),
    ],
)
def test_pairs_are_found(text: str, pairs: list[tuple[str, float]]):
    """Pairs are found with any separator; times of day and numbers with units are not pairs."""
    assert find_pairs(text) == pairs


@given(st.text(max_size=200))
def test_any_text_is_searched(text: str):
    """Searching arbitrary text raises no exception, and every name begins with a letter or `_`."""
    parse_number(text)
    assert all(name[0].isalpha() or name[0] == "_" for name, _ in find_pairs(text))


@given(st.floats(allow_nan=False))
def test_what_python_prints_is_read(number: float):
    """The shortest representation that Python prints is read as exactly the same number."""
    assert parse_number(repr(number)) == number
