"""Numbers out of the small files of control groups.

Such a file comes in one piece, costs less to open again than it costs to keep hundreds of them
open, and may be gone at any time together with its container.
"""

from __future__ import annotations

import os

_CHUNK_BYTES = 1 << 14
_MOST_BYTES = 1 << 20
_LONGEST_NUMBER = 20


def read_data(folder: str | None, name: str, *, comes_by_page: bool = False) -> bytes | None:
    """Read a file.

    Args:
        folder: The folder it is in; None where that is not known.
        name: Its name.
        comes_by_page: Whether the kernel hands it out in pieces, however large the buffer.

    Returns:
        None where it is not there, cannot be read, or what it tells is switched off.
    """
    if folder is None:
        return None
    try:
        descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
    """Give a whole number that is not negative; None for anything else."""
    digits = digits.strip()
    return int(digits) if digits.isdigit() and len(digits) <= _LONGEST_NUMBER else None


def read_number(folder: str | None, name: str) -> int | None:
    """Read a file that holds one number; None as in `read_data` and `parse_number`."""
    data = read_data(folder, name)
    return None if data is None else parse_number(data)


def find_number(data: bytes | None, key: bytes) -> int | None:
    """Give the number after a key at the start of a line; None where it is not there."""
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
    """Give the sum; None where one is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def scale(number: int | None, per_unit: int) -> float | None:
    """Give the number in larger units; None where it is not known."""
    return None if number is None else number / per_unit
