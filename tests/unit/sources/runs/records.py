"""Helpers that encode TensorBoard event files byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of the data, computed bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mask(crc: int) -> int:
    """Return a CRC in the masked form in which records store it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def make_record(data: bytes) -> bytes:
    """Return a record that contains the data."""
    length = struct.pack("<Q", len(data))
    return (
        length
        + struct.pack("<I", mask(crc32c(length)))
        + data
        + struct.pack("<I", mask(crc32c(data)))
    )


def varint(number: int) -> bytes:
    """Return the variable-length encoding of a number."""
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def in_length(key: int, data: bytes) -> bytes:
    """Return a length-delimited protobuf field."""
    return bytes([key]) + varint(len(data)) + data


def make_event(wall_time: float, step: int, *values: bytes) -> bytes:
    """Return an event whose summary contains the values."""
    summary = b"".join(in_length(0x0A, value) for value in values)
    return (
        b"\x09"
        + struct.pack("<d", wall_time)
        + b"\x10"
        + varint(step & (1 << 64) - 1)
        + in_length(0x2A, summary)
    )


def make_scalar(tag: str, value: float) -> bytes:
    """Return a summary value that is stored as `simple_value`."""
    return in_length(0x0A, tag.encode()) + b"\x15" + struct.pack("<f", value)


def make_tensor(tag: str, tensor: bytes) -> bytes:
    """Return a summary value that is stored as a tensor."""
    return in_length(0x0A, tag.encode()) + in_length(0x42, tensor)


def write(path: Path, *events: tuple[float, int, str, float]) -> None:
    """Append events of one scalar each (time, step, tag, value) to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for wall_time, step, tag, value in events:
            file.write(make_record(make_event(wall_time, step, make_scalar(tag, value))))
