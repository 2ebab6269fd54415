"""Tests for the parser of scalars in event files."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.sources.runs.records import (
    in_length,
    make_event,
    make_record,
    make_scalar,
    make_tensor,
    varint,
)
from trainvitals.sources.runs.tfrecords import RecordParser, Records, crc32c, mask_crc

GOOD = make_record(make_event(1700000000.5, 7, make_scalar("train/loss", 0.25)))
FOUND = (1700000000.5, 7, "train/loss", 0.25)


def parse(data: bytes) -> Records:
    """Return the result of a new parser."""
    return RecordParser().parse(data)


def test_the_crc_is_that_of_the_standard():
    """The checksums equal the examples of RFC 3720."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert mask_crc(0) == 0xA282EAD8


def test_whole_records_are_taken():
    """Two complete records give two scalars."""
    assert parse(GOOD + GOOD) == Records([FOUND, FOUND], 2 * len(GOOD), 0, "nothing")


def test_an_event_may_have_several_values():
    """Several values of an event share its time and step, which may be large or negative."""
    values = make_scalar("a", 1.0), make_scalar("b", 2.0)
    assert parse(make_record(make_event(5.0, 1 << 40, *values))).scalars == [
        (5.0, 1 << 40, "a", 1.0),
        (5.0, 1 << 40, "b", 2.0),
    ]
    assert parse(make_record(make_event(5.0, -3, values[0]))).scalars == [(5.0, -3, "a", 1.0)]


@pytest.mark.parametrize("cut", range(1, len(GOOD)))
def test_a_part_of_a_record_is_left(cut: int):
    """An incomplete record is left for the next reading and is not counted as damaged."""
    assert parse(GOOD + GOOD[:cut]) == Records([FOUND], len(GOOD), 0, "part")


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (b"\x08\x01" + in_length(0x2A, struct.pack("<f", 0.5)), 0.5),
        (b"\x08\x02" + in_length(0x32, struct.pack("<d", 0.1)), 0.1),
        (b"\x08\x03" + in_length(0x3A, varint(300)), 300.0),
        (b"\x08\x09" + in_length(0x52, varint((1 << 64) - 2)), -2.0),
        (b"\x08\x01" + in_length(0x22, struct.pack("<f", 0.5)), 0.5),
        (b"\x08\x02" + in_length(0x22, struct.pack("<d", 0.1)), 0.1),
        (b"\x08\x03" + in_length(0x22, struct.pack("<i", -7)), -7.0),
        (b"\x08\x09" + in_length(0x22, struct.pack("<q", 1 << 40)), 1099511627776.0),
        (b"\x08\x13" + in_length(0x22, struct.pack("<e", 0.5)), 0.5),
        (b"\x08\x01" + in_length(0x12, b"") + in_length(0x2A, struct.pack("<f", 0.5)), 0.5),
    ],
)
def test_a_tensor_of_one_number_is_a_scalar(tensor: bytes, value: float):
    """The tensor formats in which TensorFlow 2 and PyTorch write scalars are read."""
    records = parse(make_record(make_event(5.0, 1, make_tensor("t", tensor))))
    assert records == Records([(5.0, 1, "t", value)], records.length_bytes, 0, "nothing")


@pytest.mark.parametrize(
    "tensor",
    [
        b"\x08\x01" + in_length(0x2A, struct.pack("<ff", 0.5, 0.5)),
        b"\x08\x01" + in_length(0x22, struct.pack("<ff", 0.5, 0.5)),
        b"\x08\x03" + in_length(0x3A, varint(3) + varint(4)),
        b"\x08\x07" + in_length(0x42, b"a text"),
        b"\x08\x01",
        b"",
    ],
)
def test_other_tensors_are_stepped_over(tensor: bytes):
    """Histograms and texts are skipped and not counted as damaged."""
    records = parse(make_record(make_event(5.0, 1, make_tensor("t", tensor))))
    assert (records.scalars, records.damaged, records.then) == ([], 0, "nothing")


def test_unknown_fields_are_stepped_over():
    """Unknown fields of every wire type are skipped."""
    more = b"\x1a\x03abc" + b"\x38\x05" + b"\x41" + bytes(8) + b"\x4d" + bytes(4)
    event = more + make_event(5.0, 1, more + make_scalar("a", 1.0) + more) + more
    assert parse(make_record(event)).scalars == [(5.0, 1, "a", 1.0)]


def test_a_large_record_is_not_read():
    """The length of a large record is read from its header, without reading its data."""
    large = make_record(bytes(2_000_000))
    expected = Records([FOUND], len(GOOD), 0, "large", len(large))
    assert parse(GOOD + large[:100]) == expected


@pytest.mark.parametrize("garbage", [bytes(40), b"\xff" * 40, b"this is no event file at all"])
def test_garbage_ends_the_reading(garbage: bytes):
    """A length with a wrong CRC ends the reading, because the next record cannot be found."""
    assert parse(GOOD + garbage) == Records([FOUND], len(GOOD), 0, "garbage")


def test_a_record_without_sense_is_counted():
    """A record with invalid data is counted, and the records around it are read."""
    broken = make_record(make_event(5.0, 1, make_scalar("a", 1.0))[:-3])
    assert parse(GOOD + broken + GOOD) == Records([FOUND, FOUND], 132, 1, "nothing")


@given(st.binary(max_size=200))
@example(b"\xff" * 12)
@example(b"")
def test_any_bytes_are_parsed(data: bytes):
    """Parsing arbitrary bytes raises no exception and consumes no more bytes than exist."""
    records = parse(data)
    assert 0 <= records.length_bytes <= len(data)


@given(st.binary(max_size=120))
@example(b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x0a" * 60)
@example(b"\x2a\x04\x0a\x02\x42\x00")
def test_any_data_in_a_record_is_parsed(data: bytes):
    """Arbitrary data in a record counts as damaged at most once, and the next record is read."""
    records = parse(make_record(data) + GOOD)
    assert records.scalars[-1] == FOUND
    assert records.damaged <= 1
    assert records.then == "nothing"


@given(st.data())
def test_a_spoiled_event_is_parsed(data: st.DataObject):
    """If any byte of an event is wrong, the next record is still read."""
    event = bytearray(make_event(5.0, 300, make_scalar("a", 1.0), make_tensor("b", b"\x08\x01")))
    event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    assert parse(make_record(bytes(event)) + GOOD).scalars[-1] == FOUND


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e10), st.integers(0, 1 << 62), st.text(min_size=1), st.floats(width=32)
        ),
        max_size=5,
    )
)
def test_what_was_written_is_read(events: list[tuple[float, int, str, float]]):
    """Every written number, including NaN and infinity, is read back."""
    tags = [tag.encode(errors="replace").decode() for _, _, tag, _ in events]
    data = b"".join(
        make_record(make_event(time, step, make_scalar(tag, value)))
        for (time, step, _, value), tag in zip(events, tags, strict=True)
    )
    found = parse(data).scalars
    assert [scalar[:2] for scalar in found] == [event[:2] for event in events]
    assert [scalar[2] for scalar in found] == tags
    for scalar, event in zip(found, events, strict=True):
        assert scalar[3] == event[3] or (math.isnan(scalar[3]) and math.isnan(event[3]))
