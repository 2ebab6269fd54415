"""Tests for the format of run files."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.run_files import decode
from trainvitals import runfile
from trainvitals.runfile import ABSENT, STATE, STEP, Identity, RunFileError, codec


def write_slot(data, at, slot_bytes, sequence, words):
    """Write a record into the slot that its sequence number determines."""
    row = struct.pack(f"<QQ{len(words) - 2}d", sequence, len(words), *words[2:])
    base = at + slot_bytes * (sequence & 1)
    data[base : base + len(row) + 8] = row + struct.pack("<Q", zlib.crc32(row))


def words_of(known, /, **values):
    """Return the words of a record, in which all words that are not given are absent."""
    return [0, len(known), 7, *(values.get(name, ABSENT) for name in known[3:])]


@pytest.fixture
def whole():
    """Return a run file with both kinds of records, one free metric and last words."""
    data = bytearray(runfile.FILE_BYTES)
    identity = Identity("mnist", rank=3, world_size=8, pid=4711, static={"framework": "torch"})
    data[:4096] = codec.encode_header(identity)
    data[3840:4096] = codec.encode_last_words("ValueError").ljust(256, b"\0")
    data[4096:4160] = codec.encode_name("val_iou", "validation")
    write_slot(data, 8192, 1024, 6, words_of(runfile.STEP_WORDS, loss=0.25, steps=6.0))
    write_slot(data, 8192, 1024, 7, words_of(runfile.STEP_WORDS, loss=0.125, steps=7.0))
    write_slot(data, 10240, 3072, 2, words_of(runfile.STATE_WORDS, names=1.0, metric_0=0.5))
    data[16256:16344] = struct.pack("<11d", 1, 0, 11, 11.5, 12, 12.5, 10, 0, 5, 0, 0)
    return data


def test_a_file_is_read_back(whole):
    """The identity, the newer record, the names, the last words and the live words are read."""
    record = decode(bytes(whole))
    assert (record.identity.run, record.identity.rank, record.identity.world_size) == (
        "mnist",
        3,
        8,
    )
    assert record.identity.static == {"framework": "torch"}
    assert (record.step[STEP["loss"]], record.step[STEP["steps"]]) == (0.125, 7.0)
    assert record.step[STEP["accuracy"]] == ABSENT
    assert record.metrics == (("val_iou", "validation"),)
    assert record.state[STATE["metric_0"]] == 0.5
    assert record.last_words == "ValueError"
    assert record.live == (12_500_000_000, runfile.Phase.BACKWARD)


def test_a_torn_slot_gives_way_to_the_one_before(whole):
    """If the newest record is incomplete, the previous record is read."""
    whole[8192 + 1024 + 100] ^= 0xFF
    assert decode(bytes(whole)).step[STEP["loss"]] == 0.25


def test_two_torn_slots_leave_everything_unknown(whole):
    """If both slots are incomplete, all values are unknown."""
    whole[8192 + 100] ^= 0xFF
    whole[8192 + 1024 + 100] ^= 0xFF
    assert codec.decode_step(bytes(whole)) is None
    assert decode(bytes(whole)).step == runfile.EMPTY_STEP


def test_a_newer_minor_version_has_more_words(whole):
    """Unknown words of a newer minor version are ignored."""
    longer = [*words_of(runfile.STEP_WORDS, loss=2.0), 1.0, 2.0]
    longer[1] = len(longer)
    write_slot(whole, 8192, 1024, 8, longer)
    step = decode(bytes(whole)).step
    assert step[STEP["loss"]] == 2.0
    assert len(step) == len(runfile.STEP_WORDS)


def test_an_older_minor_version_has_fewer_words(whole):
    """Words that an older minor version does not have are absent."""
    shorter = words_of(runfile.STEP_WORDS, loss=2.0)[: STEP["loss"] + 1]
    shorter[1] = len(shorter)
    write_slot(whole, 8192, 1024, 8, shorter)
    step = decode(bytes(whole)).step
    assert step[STEP["loss"]] == 2.0
    assert step[STEP["learning_rate"]] == ABSENT


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda data: data[:100], "too_short"),
        (lambda _: b"", "too_short"),
        (lambda _: b"x" * 16384, "not_a_run_file"),
        (lambda data: data[:8] + b"\x02\x00" + data[10:], "unknown_version"),
        (lambda data: data[:300] + b"!" + data[301:], "damaged"),
        (lambda data: data + b"x", "damaged"),
        (lambda data: data[:8192], "damaged"),
    ],
)
def test_a_file_that_is_none_says_why(whole, change, fault):
    """Each way in which a file is invalid has its own name."""
    with pytest.raises(RunFileError) as caught:
        decode(change(bytes(whole)))
    assert caught.value.fault == fault


@given(st.binary(max_size=20000))
def test_random_bytes_are_refused(data):
    """Decoding random bytes raises a `RunFileError`."""
    with pytest.raises(RunFileError):
        decode(data)


@given(st.lists(st.tuples(st.integers(256, 16383), st.integers(0, 255)), max_size=20))
def test_changed_bytes_never_break_the_reader(changes):
    """Decoding a damaged file returns a record or raises a `RunFileError`."""
    data = bytearray(runfile.FILE_BYTES)
    data[:4096] = codec.encode_header(Identity("r"))
    write_slot(data, 8192, 1024, 7, words_of(runfile.STEP_WORDS, loss=0.125))
    write_slot(data, 10240, 3072, 2, words_of(runfile.STATE_WORDS, names=64.0))
    for at, value in changes:
        data[at] = value
    try:
        record = decode(bytes(data))
    except RunFileError:
        return
    assert len(record.step) == len(runfile.STEP_WORDS)
    assert len(record.state) == len(runfile.STATE_WORDS)


def test_the_layout_is_the_documented_one():
    """The offsets and sizes equal those in the documented format."""
    assert (len(runfile.STEP_WORDS) + 1) * 8 <= runfile.STEP_SLOT_BYTES == 1024
    assert (len(runfile.STATE_WORDS) + 1) * 8 <= runfile.STATE_SLOT_BYTES == 3072
    assert runfile.STATE_AT + 3072 + (len(runfile.STATE_WORDS) + 1) * 8 <= runfile.LIVE_AT == 16256
    assert runfile.LIVE_AT + runfile.LIVE_BYTES == runfile.FILE_BYTES
    assert len(runfile.Phase) * 8 <= runfile.LIVE_BYTES
    assert runfile.STEP["loss"] == 12
    assert runfile.STATE["state"] == 4


def test_a_name_that_is_too_long_is_refused():
    """A metric name must fit in 62 bytes of UTF-8."""
    with pytest.raises(ValueError, match="at most 62"):
        codec.encode_name("é" * 32, "")


def test_a_description_that_is_too_long_is_refused():
    """The static description must fit in 3584 bytes."""
    with pytest.raises(ValueError, match="at most 3584"):
        codec.encode_header(Identity("r", static={"script": "x" * 4000}))


def test_hostile_text_in_a_header_is_made_printable():
    """Control characters and lone surrogates are replaced, and long texts are cut."""
    identity = Identity("a\n\ud800b", static={"framework": "x" * 500, "list": ["\x1b[31m"]})
    decoded = codec.decode_header(codec.encode_header(identity))
    assert decoded.run == "a__b"
    assert decoded.static == {"framework": "x" * 200, "list": ["_[31m"]}
