"""Numbers out of the small files of control groups.

Such a file is read in one piece, costs less to reopen than to keep hundreds of them open, and may
be removed at any time together with its container.
"""

from __future__ import annotations

import os

# The files may be copies in a folder of evidence, where each can be a link or a pipe.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_CHUNK_BYTES = 1 << 14
_MOST_BYTES = 1 << 20
_LONGEST_NUMBER = 20


def read_data(folder: str | None, name: str, *, comes_by_page: bool = False) -> bytes | None:
    """Read a file.

    Args:
        folder: The folder of the file; None if unknown.
        name: Its name.
        comes_by_page: Whether the kernel returns it in pieces, however large the buffer.

    Returns:
        None if it does not exist, cannot be read, or its accounting is switched off.
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
    except OSError:  # a folder, a group that was just removed, pressure that is not counted
        return None
    finally:
        os.close(descriptor)
    return data


def parse_number(digits: bytes) -> int | None:
    """Return a whole number that is not negative; None for anything else."""
    digits = digits.strip()
    return int(digits) if digits.isdigit() and len(digits) <= _LONGEST_NUMBER else None


def read_number(folder: str | None, name: str) -> int | None:
    """Read a file that holds one number; None as in `read_data` and `parse_number`."""
    data = read_data(folder, name)
    return None if data is None else parse_number(data)


def find_number(data: bytes | None, key: bytes) -> int | None:
    """Return the number after a key at the start of a line; None if there is no such line."""
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
    """Return the sum; None if one of the numbers is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def scale(number: int | None, per_unit: int) -> float | None:
    """Return the number in larger units; None if unknown."""
    return None if number is None else number / per_unit
