"""Limits of memory and temperature are parsed from text."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import ConfigurationError
from trainvitals.sources.accelerators.limits import parse_memory_limit, parse_temperature_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", None),
        ("  ", None),
        ("7500000000", 7_500_000_000),
        ("7.5GB", 7_500_000_000),
        ("7.5 gb", 7_500_000_000),
        (" 40GiB ", 42_949_672_960),
        ("1kB", 1_000),
        ("1KiB", 1_024),
        ("512MB", 512_000_000),
        ("512MiB", 536_870_912),
        ("1TB", 1_000_000_000_000),
        ("0.5TiB", 549_755_813_888),
        ("1.9", 1),
    ],
)
def test_a_size_is_read_in_bytes(text, limit):
    """A size may have decimal or binary units, and an empty text means no limit."""
    assert parse_memory_limit(text) == limit


@pytest.mark.parametrize(
    "text",
    ["0", "0.5", "0GB", "-1GB", "GB", "7,5GB", "7.5G", "7.5 GB each", "1e9", "²GB", "9" * 19],
)
def test_what_is_no_size_above_zero_is_refused(text):
    """The error message shows the refused size, valid examples and the environment variable."""
    with pytest.raises(ConfigurationError) as refused:
        parse_memory_limit(text)
    assert str(refused.value) == (
        f"--accelerators.memory-limit={text!r}: write a size above 0 such as 7.5GB, 40GiB or "
        "a number of bytes (its default is the variable ACCELERATOR_MEMORY_LIMIT)"
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", None), (" ", None), ("80", 80.0), (" 82.5 ", 82.5), ("80 °C", 80.0), ("80c", 80.0)],
)
def test_a_temperature_is_read_in_degrees_celsius(text, limit):
    """A temperature may be followed by its unit, and an empty text means no limit."""
    assert parse_temperature_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["0", "0.0", "-80", "80F", "hot", "nan", "inf", "1e2", "8000", "²"]
)
def test_what_is_no_temperature_above_zero_is_refused(text):
    """The error message shows the refused temperature, an example and the environment variable."""
    with pytest.raises(ConfigurationError) as refused:
        parse_temperature_limit(text)
    assert str(refused.value) == (
        f"--accelerators.temperature-limit={text!r}: write degrees Celsius above 0 such as 80 "
        "(its default is the variable ACCELERATOR_TEMPERATURE_LIMIT)"
    )


@pytest.mark.parametrize("parse", [parse_memory_limit, parse_temperature_limit])
@given(text=st.text() | st.from_regex(r"[0-9.]{1,25} ?[a-zA-Z°]{0,3}"))
def test_any_text_is_a_limit_or_refused(parse, text):
    """Any text is parsed to a positive limit or None, or raises a `ConfigurationError`."""
    with suppress(ConfigurationError):
        limit = parse(text)
        assert limit is None or limit > 0
