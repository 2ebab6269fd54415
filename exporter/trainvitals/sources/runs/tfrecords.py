"""Parse the scalars in TensorBoard event files, without TensorBoard.

**File**: consecutive records (TFRecord), all little-endian: u64 length of the data, u32 masked
CRC-32C of these eight bytes, the data, u32 masked CRC-32C of the data. The masked form of a CRC c
is `rotate_right(c, 15) + 0xa282ead8`, modulo 2**32. A writer flushes its buffer irregularly, so the
last record may be incomplete.

**Data**: a protocol buffer `Event`: 1 wall_time (double, Unix seconds), 2 step (int64), 5 summary.
`Summary`: 1 value (repeated). `Summary.Value`: 1 tag (string), 2 simple_value (float), 8 tensor.
`TensorProto`, used by TensorFlow 2 and new-style summaries for scalars: 1 dtype, 4 tensor_content
(bytes), 5 float_val, 6 double_val, 7 int_val, 10 int64_val (packed). Everything else (histograms,
images, text, graphs) is skipped.

The CRC of the length is checked, because the position of the next record depends on the length;
lengths repeat, so their CRCs are cached. The CRC of the data is not checked, because in pure Python
this would take several times as long as reading the event. Instead, a record whose data is not a
complete, well-formed protocol buffer is left out and counted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

MOST_RECORD_BYTES = 1 << 20
_HEADER = struct.Struct("<QI")
_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_LENGTH = struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_SINGLE_BYTE = 0x80
_LONGEST_VARINT_BITS = 63
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE = 0b111
_MOST_KEPT_LENGTHS = 4096

# The keys that precede the fields; each key contains the field number and the wire type.
_WALL_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A
_VALUE = 0x0A
_TAG, _SIMPLE_VALUE, _TENSOR = 0x0A, 0x15, 0x42
_DTYPE, _TENSOR_CONTENT, _INT_VAL, _INT64_VAL = 0x08, 0x22, 0x3A, 0x52
_PACKED = {0x2A: "<f", 0x32: "<d"}  # float_val and double_val
_CONTENT_KEYS = frozenset({_TENSOR_CONTENT, _INT_VAL, _INT64_VAL, *_PACKED})
# The layout of a number in tensor_content, by dtype: float, double, int32, int64, half.
_LAYOUTS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}

Scalar = tuple[float, int, str, float]


@dataclass(frozen=True, slots=True)
class Records:
    """The records that were parsed from a piece of an event file.

    Attributes:
        scalars: The wall time in Unix seconds, step, tag and value of each scalar.
        length_bytes: The total length in bytes of the parsed records, from the start of the piece.
        damaged: The number of invalid records that were left out.
        then: The content after the parsed records: `nothing`, `part` of a record, a `large` record,
            which is not parsed, or `garbage`, which are bytes that are not a record.
        large_bytes: The total length in bytes of the large record; 0 if there is no large record.
    """

    scalars: list[Scalar]
    length_bytes: int
    damaged: int
    then: Literal["nothing", "part", "large", "garbage"]
    large_bytes: int = 0


class RecordParser:
    """Extracts scalars from the data of TensorBoard event files."""

    def __init__(self) -> None:
        self._crc_of_length: dict[int, int] = {}

    def parse(self, data: bytes) -> Records:
        """Parse all complete records at the start of a piece of an event file."""
        scalars: list[Scalar] = []
        damaged = 0
        start, end = 0, len(data)
        while start + _HEADER_BYTES <= end:
            length, crc = _HEADER.unpack_from(data, start)
            if self._crc_of_length.get(length) != crc and not self._is_right(length, crc):
                return Records(scalars, start, damaged, "garbage")
            if length > MOST_RECORD_BYTES:
                whole = _HEADER_BYTES + length + _FOOTER_BYTES
                return Records(scalars, start, damaged, "large", whole)
            body = start + _HEADER_BYTES
            stop = body + length + _FOOTER_BYTES
            if stop > end:
                break
            try:
                _parse_event(data, body, stop - _FOOTER_BYTES, scalars)
            except (ValueError, IndexError, struct.error):
                damaged += 1
            start = stop
        return Records(scalars, start, damaged, "part" if start < end else "nothing")

    def _is_right(self, length: int, crc: int) -> bool:
        if mask_crc(crc32c(_LENGTH.pack(length))) != crc:
            return False
        if len(self._crc_of_length) >= _MOST_KEPT_LENGTHS:
            self._crc_of_length.clear()
        self._crc_of_length[length] = crc
        return True


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _make_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of data; `zlib` does not provide this CRC."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def mask_crc(crc: int) -> int:
    """Return a CRC in the masked form that event file records contain."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _parse_event(data: bytes, at: int, end: int, scalars: list[Scalar]) -> None:
    wall_time, step = 0.0, 0
    values: list[tuple[str, float]] = []
    while at < end:
        key = data[at]
        at += 1
        if key == _WALL_TIME:
            (wall_time,) = _DOUBLE.unpack_from(data, at)
            at += 8
        elif key == _STEP:
            step = data[at]
            at += 1
            if step >= _SINGLE_BYTE:
                step, at = _read_varint(data, at - 1)
        elif key == _SUMMARY:
            length = data[at]
            at += 1
            if length >= _SINGLE_BYTE:
                length, at = _read_varint(data, at - 1)
            stop = at + length
            if stop > end:
                raise ValueError(stop)
            _parse_summary(data, at, stop, values)
            at = stop
        else:
            at = _step_over(data, at - 1, end)
    if at != end:
        raise ValueError(at)
    step = _with_sign(step)
    for tag, value in values:
        scalars.append((wall_time, step, tag, value))


def _parse_summary(data: bytes, at: int, end: int, values: list[tuple[str, float]]) -> None:
    while at < end:
        if data[at] != _VALUE:
            at = _step_over(data, at, end)
            continue
        length = data[at + 1]
        at += 2
        if length >= _SINGLE_BYTE:
            length, at = _read_varint(data, at - 1)
        stop = at + length
        if stop > end:
            raise ValueError(stop)
        _parse_value(data, at, stop, values)
        at = stop


def _parse_value(data: bytes, at: int, end: int, values: list[tuple[str, float]]) -> None:
    tag = ""
    value: float | None = None
    while at < end:
        key = data[at]
        if key == _SIMPLE_VALUE:
            (value,) = _FLOAT.unpack_from(data, at + 1)
            at += 5
        elif key in (_TAG, _TENSOR):
            length = data[at + 1]
            at += 2
            if length >= _SINGLE_BYTE:
                length, at = _read_varint(data, at - 1)
            stop = at + length
            if stop > end:
                raise ValueError(stop)
            if key == _TAG:
                tag = data[at:stop].decode(errors="replace")
            else:
                value = _parse_tensor(data, at, stop)
            at = stop
        else:
            at = _step_over(data, at, end)
    if at != end:
        raise ValueError(at)
    if value is not None and tag:
        values.append((tag, value))


def _parse_tensor(data: bytes, at: int, end: int) -> float | None:
    """Return the number in a tensor; None if the tensor does not contain exactly one number."""
    dtype = 0
    content, content_key = b"", 0
    while at < end:
        start = at
        key, at = _read_varint(data, at)
        if key == _DTYPE:
            dtype, at = _read_varint(data, at)
        elif key in _CONTENT_KEYS:
            length, at = _read_varint(data, at)
            stop = at + length
            if stop > end:
                raise ValueError(stop)
            content, content_key = data[at:stop], key
            at = stop
        else:
            at = _step_over(data, start, end)
    if content_key in (_INT_VAL, _INT64_VAL) and content:
        number, at = _read_varint(content, 0)
        return float(_with_sign(number)) if at == len(content) else None
    layout = _LAYOUTS.get(dtype) if content_key == _TENSOR_CONTENT else _PACKED.get(content_key)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


def _with_sign(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _SINGLE_BYTE:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > _LONGEST_VARINT_BITS:
            raise ValueError(shift)


def _step_over(data: bytes, at: int, end: int) -> int:
    """Return the position at which the field that starts at the position `at` ends."""
    key, at = _read_varint(data, at)
    wire = key & _WIRE
    if key >> 3 == 0:
        raise ValueError(key)
    if wire == _VARINT:
        _, at = _read_varint(data, at)
    elif wire == _FIXED64:
        at += 8
    elif wire == _BYTES:
        length, at = _read_varint(data, at)
        at += length
    elif wire == _FIXED32:
        at += 4
    else:
        raise ValueError(wire)
    if at > end:
        raise ValueError(at)
    return at
