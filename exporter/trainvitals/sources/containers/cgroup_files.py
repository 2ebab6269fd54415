"""Read numbers from the small files of control groups.

Each file is read in one call if possible. The files are opened for each reading, because this costs
less than keeping hundreds of files open. When a container is removed, its files are also removed.
"""

from __future__ import annotations

import os

# The files may be copies in an evidence folder, where a file can be a link or a pipe.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_CHUNK_BYTES = 1 << 14
_MOST_BYTES = 1 << 20
_LONGEST_NUMBER = 20


def read_data(folder: str | None, name: str, *, comes_by_page: bool = False) -> bytes | None:
    """Read a control group's file and return the content of the file.

    Args:
        folder: The folder that contains the file; None if the folder is unknown.
        name: The name of the file.
        comes_by_page: Whether the kernel returns the content in several reads, regardless of the
            buffer size.

    Returns:
        The content of the file, at most about 1 MiB; None if the folder is unknown, the file does
        not exist or cannot be read, or the kernel's accounting for the file is disabled.
    """
    if folder is None:
        return None
    try:
        descriptor = os.open(f"{folder}/{name}", _FLAGS)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _CHUNK_BYTES)
        if comes_by_page or len(data) == _CHUNK_BYTES:
            while len(data) < _MOST_BYTES and (more := os.read(descriptor, _CHUNK_BYTES)):
                data += more
    except OSError:  # a folder, a group that was just removed, disabled pressure accounting
        return None
    finally:
        os.close(descriptor)
    return data


def parse_number(digits: bytes) -> int | None:
    """Parse a non-negative integer of at most 20 digits; return None for other text."""
    digits = digits.strip()
    return int(digits) if digits.isdigit() and len(digits) <= _LONGEST_NUMBER else None


def read_number(folder: str | None, name: str) -> int | None:
    """Read the number in a file; return None if the number cannot be read or is invalid."""
    data = read_data(folder, name)
    return None if data is None else parse_number(data)


def find_number(data: bytes | None, key: bytes) -> int | None:
    """Return the number after a key that starts a line; None if no line starts with the key."""
    if data is None:
        return None
    if data.startswith(key + b" "):
        start = len(key) + 1
    else:
        start = data.find(b"\n" + key + b" ") + len(key) + 2
        if start < len(key) + 2:
            return None
    end = data.find(b"\n", start)
    return parse_number(data[start:] if end < 0 else data[start:end])


def add_up(numbers: list[int | None]) -> int | None:
    """Return the sum of the numbers; None if any number is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def scale(number: int | None, per_unit: int) -> float | None:
    """Convert a number to a larger unit, such as seconds; return None if the number is unknown."""
    return None if number is None else number / per_unit
