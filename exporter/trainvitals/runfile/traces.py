"""Trace requests and the trainer's answers in a run file."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from trainvitals.foreign_text import clean_label
from trainvitals.runfile import TRACE_ANSWER_AT, TRACE_AT, TRACE_BYTES

_REQUEST, _REQUEST_CRC = struct.Struct("<QII"), struct.Struct("<I")
_ANSWER = struct.Struct("<QIIII")
_SHAPES, _MEMORY, _STACKS = 1, 2, 4


class TraceStage(IntEnum):
    """The stage of a trace that was requested from the trainer."""

    UNAVAILABLE = 0
    READY = 1
    WAITING = 2
    TRACING = 3
    WRITING = 4
    DONE = 5
    FAILED = 6


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A request to trace steps of a run with the PyTorch profiler.

    Attributes:
        number: The number that identifies the request; never 0.
        steps: The number of steps to trace.
        record_shapes: Whether to record the shapes of operator inputs.
        profile_memory: Whether to record the memory that operators allocate.
        with_stack: Whether to record the source lines that called the operators.
    """

    number: int
    steps: int
    record_shapes: bool = False
    profile_memory: bool = True
    with_stack: bool = False


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """The trainer's answer to a trace request.

    Attributes:
        number: The number of the request that is answered.
        stage: The stage that the trace has reached.
        steps: The number of steps traced so far.
        text: The path of the trace, optionally followed by a tab and a remark; if no trace was
            taken, the reason.
    """

    number: int = 0
    stage: TraceStage = TraceStage.UNAVAILABLE
    steps: int = 0
    text: str = ""


def encode_trace_request(request: TraceRequest) -> bytes:
    """Return an encoded trace request, to be written at offset `TRACE_AT`."""
    flags = (
        _SHAPES * request.record_shapes
        | _MEMORY * request.profile_memory
        | _STACKS * request.with_stack
    )
    words = _REQUEST.pack(request.number, request.steps, flags)
    return words + _REQUEST_CRC.pack(zlib.crc32(words))


def decode_trace_request(data: bytes, at: int = TRACE_AT) -> TraceRequest | None:
    """Return the trace request; None if no request exists or the request is incomplete."""
    words = data[at : at + _REQUEST.size]
    number, steps, flags = _REQUEST.unpack(words)
    if not number or _REQUEST_CRC.unpack_from(data, at + len(words))[0] != zlib.crc32(words):
        return None
    return TraceRequest(
        number, steps, bool(flags & _SHAPES), bool(flags & _MEMORY), bool(flags & _STACKS)
    )


def encode_trace_answer(answer: TraceAnswer) -> bytes:
    """Return an encoded trace answer, to be written at `TRACE_AT` + `TRACE_ANSWER_AT`.

    The text of the answer is cut to the available space.
    """
    most = TRACE_BYTES - TRACE_ANSWER_AT - _ANSWER.size
    text = answer.text.encode(errors="replace")[:most]
    crc = zlib.crc32(text)
    return _ANSWER.pack(answer.number, answer.stage, answer.steps, crc, len(text)) + text


def decode_trace_answer(data: bytes, at: int = TRACE_AT + TRACE_ANSWER_AT) -> TraceAnswer:
    """Return the answer to a trace request; an empty answer if it is invalid or incomplete."""
    number, stage, steps, crc, length = _ANSWER.unpack_from(data, at)
    end = TRACE_BYTES - TRACE_ANSWER_AT
    text = data[at + _ANSWER.size : at + end][:length]
    if stage not in TraceStage.__members__.values() or zlib.crc32(text) != crc:
        return TraceAnswer()
    parts = text.decode(errors="replace").split("\t")
    words = "\t".join(clean_label(part[:end]) for part in parts)
    return TraceAnswer(number, TraceStage(stage), steps, words)
