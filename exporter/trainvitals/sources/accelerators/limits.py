"""Parses the accelerator limits that a user sets on the command line."""

from __future__ import annotations

import re

from trainvitals.errors import ConfigurationError

MEMORY_LIMIT_VARIABLE = "ACCELERATOR_MEMORY_LIMIT"
TEMPERATURE_LIMIT_VARIABLE = "ACCELERATOR_TEMPERATURE_LIMIT"

_UNITS = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([a-z]*)", re.IGNORECASE)
_CELSIUS = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,18})?) ?(?:°?C)?", re.IGNORECASE)


def parse_memory_limit(text: str) -> int | None:
    """Parse the value of `--accelerators.memory-limit`, and return the limit in bytes.

    Args:
        text: A number of bytes, or a number with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB,
            TiB (powers of 1024), such as 7.5GB; case is ignored.

    Returns:
        The limit in bytes, at least 1; None if the text is empty, which means that no limit is set.

    Raises:
        ConfigurationError: The text is not a size, or the size is less than one byte.
    """
    if not text.strip():
        return None
    limit = parse_size(text)
    if limit is None:
        raise ConfigurationError(
            f"--accelerators.memory-limit={text!r}: write a size above 0 such as 7.5GB, 40GiB or "
            f"a number of bytes (its default is the variable {MEMORY_LIMIT_VARIABLE})"
        )
    return limit


def parse_temperature_limit(text: str) -> float | None:
    """Parse the value of `--accelerators.temperature-limit`; return the limit in degrees Celsius.

    Args:
        text: A number, with or without a unit, such as 80, 82.5 or 80 °C.

    Returns:
        The limit, above 0 and below 1000 degrees Celsius; None if the text is empty, which means
        that no limit is set.

    Raises:
        ConfigurationError: The text is not a temperature, or the temperature is not above 0 and
            below 1000.
    """
    if not text.strip():
        return None
    found = _CELSIUS.fullmatch(text.strip())
    limit = float(found[1]) if found else 0.0
    if not limit:
        raise ConfigurationError(
            f"--accelerators.temperature-limit={text!r}: write degrees Celsius above 0 such as 80 "
            f"(its default is the variable {TEMPERATURE_LIMIT_VARIABLE})"
        )
    return limit


def parse_size(text: str) -> int | None:
    """Parse a size such as 7.5GB, 40GiB or 512, and return the number of bytes.

    The result is None if the text is not a size or the size is less than 1 byte.
    """
    size = _SIZE.fullmatch(text.strip())
    unit = None if size is None else _UNITS.get(size[2].lower())
    if size is None or unit is None:
        return None
    whole, _, fraction = size[1].partition(".")
    return int(whole + fraction) * unit // 10 ** len(fraction) or None
