"""Tests for parsing HTTP answers, log frames and lines from pieces of any size."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine_stand_in import write_frame
from trainvitals.sources.containers.framing import (
    AnswerDecoder,
    FramingError,
    LastLines,
    LineSplitter,
    LogDecoder,
)

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nServer: Docker\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nepoch\r\n1;name=value\r\n \r\nA\r\n1 finished\r\n0\r\n\r\n"
)
COUNTED = b"HTTP/1.1 404 Not Found\r\nContent-Length: 11\r\n\r\nnothing hereHTTP/1.1 200 OK"
UNTIL_THE_END = b"HTTP/1.0 200 OK\r\nServer: Podman\r\n\r\nas long as it lasts"
LOG = (
    write_frame(b"step 1\n")
    + write_frame(b"Traceback (most", channel=2)
    + write_frame(b"step 2\r\n")
    + write_frame(b" recent call last):\n\n", channel=2)
    + write_frame(b"no end")
)
LINES = [b"step 1", b"step 2", b"Traceback (most recent call last):", b""]
CUTS = st.lists(st.integers(0, len(LOG) + len(CHUNKED)), max_size=12)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """Split bytes at the given positions."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(CUTS)
def test_a_chunked_answer_is_put_together_however_it_comes(cuts: list[int]):
    """A chunked answer is decoded with and without chunk extensions, up to its last chunk."""
    decoder = AnswerDecoder()
    assert b"".join(decoder.feed(piece) for piece in split(CHUNKED, cuts)) == b"epoch 1 finished"
    assert (decoder.status, decoder.is_complete, decoder.ends_by_itself) == (200, True, True)


@given(CUTS)
def test_a_counted_answer_ends_at_its_length(cuts: list[int]):
    """Bytes after the answer's content length are ignored."""
    decoder = AnswerDecoder()
    assert b"".join(decoder.feed(piece) for piece in split(COUNTED, cuts)) == b"nothing her"
    assert (decoder.status, decoder.is_complete) == (404, True)


@given(CUTS)
def test_an_answer_without_a_length_lasts_as_long_as_the_connection(cuts: list[int]):
    """An answer without a length never counts as complete."""
    decoder = AnswerDecoder()
    got = b"".join(decoder.feed(piece) for piece in split(UNTIL_THE_END, cuts))
    assert got == b"as long as it lasts"
    assert (decoder.status, decoder.is_complete, decoder.ends_by_itself) == (200, False, False)


def test_an_empty_answer_is_complete_at_once():
    """An answer with a content length of 0 is complete after its head."""
    decoder = AnswerDecoder()
    assert decoder.feed(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n") == b""
    assert decoder.is_complete


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(data: bytes):
    """Another protocol, an endless head or chunk size and an invalid chunk size are refused."""
    with pytest.raises(FramingError):
        AnswerDecoder().feed(data)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_decoded_or_refused(pieces: list[bytes]):
    """Arbitrary bytes raise no exception other than `FramingError`."""
    for decoder in (AnswerDecoder(), LogDecoder()):
        with suppress(FramingError):
            for piece in pieces:
                decoder.feed(piece)


@given(CUTS)
def test_a_log_in_frames_gives_the_same_lines_however_it_comes(cuts: list[int]):
    """A line may consist of several frames, with frames of the other stream between them."""
    decoder = LogDecoder()
    assert [line for piece in split(LOG, cuts) for line in decoder.feed(piece)] == LINES
    assert decoder.unfinished == [b"no end"]


@given(CUTS)
def test_the_log_of_a_terminal_is_taken_as_it_is(cuts: list[int]):
    """The log of a terminal has no frames, and its lines end with CR LF."""
    text = b"\x1b[1mstep 1\x1b[0m\r\nstep 2\r\nno end"
    decoder = LogDecoder()
    lines = [line for piece in split(text, cuts) for line in decoder.feed(piece)]
    assert lines == [b"\x1b[1mstep 1\x1b[0m", b"step 2"]
    assert decoder.unfinished == [b"no end"]


def test_a_log_that_is_too_short_to_tell_is_a_line():
    """Two bytes that may begin a frame header are an unfinished line until more bytes arrive."""
    decoder = LogDecoder()
    assert decoder.feed(b"\x01\x00") == []
    assert decoder.unfinished == [b"\x01\x00"]


def test_a_frame_without_a_header_is_refused():
    """After a first frame, bytes without a frame header are refused."""
    with pytest.raises(FramingError, match="header"):
        LogDecoder().feed(write_frame(b"step 1\n") + b"step 2\n and more")


def test_a_frame_of_four_gigabytes_holds_nothing_up():
    """The lines of a frame are returned before the whole frame has been received."""
    decoder = LogDecoder()
    assert decoder.feed(b"\x01\0\0\0\xff\xff\xff\xffstep 1\nst") == [b"step 1"]
    assert decoder.unfinished == [b"st"]


@given(st.lists(st.integers(1, 300), max_size=8))
def test_of_a_very_long_line_both_ends_stay(sizes: list[int]):
    """A long line keeps its beginning, a quarter of the limit, and its end, three quarters."""
    splitter = LineSplitter(40)
    line = b"Start:   3%" + b"\r 50%" * 200 + b"\rTraceback (most recent"
    places = [sum(sizes[: count + 1]) for count in range(len(sizes))]
    lines = [found for piece in split(line + b"\n", places) for found in splitter.feed(piece)]
    assert lines == [b"Start:   3 [...] 0%\r 50%\rTraceback (most recent"]
    assert splitter.unfinished == b""


def test_a_line_without_an_end_does_not_grow():
    """Of a line of a million bytes without an end, only a limited number of bytes is stored."""
    splitter = LineSplitter(100)
    for _ in range(1000):
        splitter.feed(b"x" * 1000)
    assert len(splitter.unfinished) == 25 + len(b" [...] ") + 75
    assert len(splitter._rest) + len(splitter._head) <= 1200


def test_only_the_last_lines_are_kept():
    """The oldest lines are dropped if the number of lines or bytes exceeds its limit."""
    few = LastLines(most_lines=2, most_bytes=100)
    few.add([b"one", b"two", b"three"])
    assert few.read() == ("two", "three")
    assert few.read([b"four"]) == ("two", "three", "four")
    short = LastLines(most_lines=100, most_bytes=9)
    short.add([b"one", b"two", b"thr\xffe"])
    assert short.read() == ("two", "thr\N{REPLACEMENT CHARACTER}e")
    short.add([b"0123456789"])
    assert short.read() == ()
