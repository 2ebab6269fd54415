"""How much device memory may be used, as a person writes it."""

from __future__ import annotations

import re
from decimal import Decimal

from trainvitals.errors import ConfigurationError

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


def parse_memory_limit(text: str) -> int | None:
    """Read the value of `--accelerators.memory-limit` in bytes.

    Args:
        text: A number of bytes, or a number with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB,
            TiB (powers of 1024), as in 7.5GB; upper and lower case are the same.

    Returns:
        At least 1; None for an empty text, which is no limit.

    Raises:
        ConfigurationError: It is no such size, or less than a byte.
    """
    if not text.strip():
        return None
    limit = parse_size(text)
    if limit is None:
        raise ConfigurationError(
            f"--accelerators.memory-limit={text!r}: write a size above 0 such as 7.5GB, 40GiB or "
            "a number of bytes (its default is the variable ACCELERATOR_MEMORY_LIMIT)"
        )
    return limit


def parse_size(text: str) -> int | None:
    """Give the bytes that a size such as 7.5GB, 40GiB or 512 means; None where it is none, or 0."""
    size = _SIZE.fullmatch(text.strip())
    unit = None if size is None else _UNITS.get(size[2].lower())
    if size is None or unit is None:
        return None
    return int(Decimal(size[1]) * unit) or None
