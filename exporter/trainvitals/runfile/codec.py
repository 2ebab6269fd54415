"""Encoding and decoding of a run file's header, records and metric names."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence

from trainvitals.foreign_numbers import read_time
from trainvitals.foreign_text import clean_label
from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    LAST_WORDS_AT,
    LIVE_AT,
    LIVE_BYTES,
    MAJOR,
    MINOR,
    MOST_METRICS,
    MOST_NAME_BYTES,
    NAMES_AT,
    SPLITS,
    STATE_AT,
    STATE_SLOT_BYTES,
    STATE_WORDS,
    STATIC_AT,
    STEP_AT,
    STEP_SLOT_BYTES,
    STEP_WORDS,
    Identity,
    Phase,
    RunFileError,
)
from trainvitals.runfile.bounds import bound_state, bound_step

_MAGIC = b"TVRUN\r\n\0"
_HEADER = struct.Struct("<8sHHI")
_IDENTITY = struct.Struct("<IIQ16sQdQiiiiiIII")
_NAME_ENTRY_BYTES = 64
_FEWEST_WORDS = 4
_MOST_SECONDS, _MOST_NANOSECONDS = 1e9, 1e18
_MOST_TEXT = 200
_U64_PAIR = struct.Struct("<QQ")
_WORD = struct.Struct("<Q")
_LIVE = struct.Struct(f"<{LIVE_BYTES // 8}d")
_LAST_WORDS = struct.Struct("<II")


def encode_header(identity: Identity) -> bytes:
    """Return the header of a run file, which is the first 4096 bytes of the file.

    Raises:
        ValueError: The static JSON is longer than 3584 bytes.
    """
    static = json.dumps({"run": identity.run, **identity.static}).encode()
    if len(static) > LAST_WORDS_AT - STATIC_AT:
        raise ValueError(f"{len(static)} bytes of static description; at most 3584 fit")
    data = bytearray(NAMES_AT)
    data[STATIC_AT : STATIC_AT + len(static)] = static
    _IDENTITY.pack_into(
        data,
        16,
        identity.pid & 0xFFFFFFFF,
        identity.uid & 0xFFFFFFFF,
        identity.start_ticks,
        identity.boot_id,
        identity.pid_namespace,
        identity.created_time,
        identity.created_mono_ns,
        identity.rank,
        identity.local_rank,
        identity.node_rank,
        identity.world_size,
        identity.attempt,
        len(static),
        len(STEP_WORDS),
        len(STATE_WORDS),
    )
    _HEADER.pack_into(data, 0, _MAGIC, MAJOR, MINOR, zlib.crc32(data[16:LAST_WORDS_AT]))
    return bytes(data)


def clean_metric_name(name: str) -> str:
    """Return a user-defined metric's name without control characters, cut to 62 bytes."""
    return clean_label(name).encode()[:MOST_NAME_BYTES].decode(errors="ignore")


def encode_name(name: str, split: str) -> bytes:
    """Return the entry of a user-defined metric's name in the table of names, as bytes.

    Raises:
        ValueError: The name is longer than 62 bytes, or the split is not one of `SPLITS`.
    """
    text = name.encode()
    if len(text) > MOST_NAME_BYTES:
        raise ValueError(f"the name {name!r} has {len(text)} bytes; at most 62 fit")
    return bytes((len(text), SPLITS.index(split))) + text.ljust(MOST_NAME_BYTES, b"\0")


def encode_last_words(text: str) -> bytes:
    """Return the encoded class of the exception that ended the run, cut to the available space."""
    words = text.encode(errors="replace")[: NAMES_AT - LAST_WORDS_AT - _LAST_WORDS.size]
    return _LAST_WORDS.pack(zlib.crc32(words), len(words)) + words


def decode_header(data: bytes) -> Identity:
    """Return the identity of a run file's writer from the first 4096 bytes of the file.

    Raises:
        RunFileError: The bytes are not the header of a run file, belong to another major version,
            or are damaged.
    """
    if len(data) < NAMES_AT:
        raise RunFileError("too_short", f"{len(data)} bytes are no run file; it has 16384")
    magic, major, _, crc = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise RunFileError("not_a_run_file", "it does not begin as a run file does")
    if major != MAJOR:
        raise RunFileError(
            "unknown_version",
            f"run files of version {major} are not known here; update the exporter",
        )
    if zlib.crc32(data[16:LAST_WORDS_AT]) != crc:
        raise RunFileError("damaged", "its header does not match its checksum")
    pid, uid, ticks, boot, namespace, created, mono, *ranks, length, _, _ = _IDENTITY.unpack_from(
        data, 16
    )
    static = _decode_static(data[STATIC_AT : STATIC_AT + length])
    run = static.pop("run", None)
    if not isinstance(run, str) or length > LAST_WORDS_AT - STATIC_AT:
        raise RunFileError("damaged", "its static description does not name the run")
    rank, local_rank, node_rank, world_size, attempt = ranks
    return Identity(
        run, rank, local_rank, node_rank, world_size, attempt,
        pid, uid, ticks, boot, namespace, read_time(created) or 0.0, mono, static,
    )  # fmt: skip


def decode_step(data: bytes, at: int = STEP_AT) -> tuple[float, ...] | None:
    """Return the newest complete step record; `at` is the offset of the record's slot A.

    Returns:
        The words of the record in the order of `STEP_WORDS`, limited to their bounds; None if
        neither slot contains a complete record.
    """
    return _decode_newest(data, at, STEP_SLOT_BYTES, EMPTY_STEP, bound_step)


def decode_state(data: bytes, at: int = STATE_AT) -> tuple[float, ...] | None:
    """Return the newest complete state record; `at` is the offset of the record's slot A.

    Returns:
        The words of the record in the order of `STATE_WORDS`, limited to their bounds; None if
        neither slot contains a complete record.
    """
    return _decode_newest(data, at, STATE_SLOT_BYTES, EMPTY_STATE, bound_state)


def decode_live(data: bytes, at: int = LIVE_AT) -> tuple[int, int] | None:
    """Return the CLOCK_MONOTONIC time of the last phase change in nanoseconds, and the phase.

    Returns:
        The time and the phase; None if no phase has been recorded yet, or if this version does not
        define the phase.
    """
    began = _LIVE.unpack_from(data, at)
    newest = max(began)
    if not 0 < newest < _MOST_SECONDS:
        return None
    # The end of a step and the start of the next phase can have the same time. The next phase has
    # the higher number.
    phase = len(began) - 1 - began[::-1].index(newest)
    return (int(newest * 1e9), phase) if phase < len(Phase) else None


def decode_names(data: bytes, count: float, at: int = 0) -> tuple[tuple[str, str], ...]:
    """Return the names and splits of the user-defined metrics in a table of names.

    Args:
        data: Bytes of a run file that contain the table of names.
        count: The number of complete entries, which is the state record's word `names`.
        at: The offset of the table in the data.

    Returns:
        The name and the split of each user-defined metric. For an invalid entry, both are empty
            strings.
    """
    number = int(count) if 0 <= count <= MOST_METRICS else 0
    return tuple(_decode_name(data, at + index * _NAME_ENTRY_BYTES) for index in range(number))


def decode_last_words(data: bytes, at: int = LAST_WORDS_AT) -> str:
    """Return the class of the exception that ended the run; "" if it is missing or invalid."""
    end = at + NAMES_AT - LAST_WORDS_AT
    if len(data) < end:
        return ""
    crc, length = _LAST_WORDS.unpack_from(data, at)
    words = data[at + _LAST_WORDS.size : end][:length]
    if not words or len(words) != length or zlib.crc32(words) != crc:
        return ""
    return words.decode(errors="replace")


def _decode_static(text: bytes) -> dict[str, str | Sequence[str]]:
    try:
        static = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunFileError("damaged", "its static description is no JSON") from error
    if not isinstance(static, dict):
        raise RunFileError("damaged", "its static description is no JSON object")
    return {_cut(key): _cut_all(value) for key, value in static.items() if _describes(value)}


def _describes(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _cut_all(value: str | Sequence[str]) -> str | Sequence[str]:
    return _cut(value) if isinstance(value, str) else [_cut(item) for item in value]


def _cut(text: str) -> str:
    return clean_label(text[:_MOST_TEXT])


def _decode_newest(
    data: bytes,
    at: int,
    slot_bytes: int,
    empty: tuple[float, ...],
    bound: Callable[[Sequence[float]], tuple[float, ...]],
) -> tuple[float, ...] | None:
    slots = [(_U64_PAIR.unpack_from(data, base), base) for base in (at, at + slot_bytes)]
    for (sequence, used), base in sorted(slots, reverse=True):
        if not sequence or not _FEWEST_WORDS <= used < slot_bytes // 8:
            continue
        end = base + 8 * used
        if _WORD.unpack_from(data, end)[0] == zlib.crc32(data[base:end]):
            known = min(used, len(empty))
            mono_ns, *values = struct.unpack_from(f"<{known - 2}d", data, base + 16)
            if 0 <= mono_ns < _MOST_NANOSECONDS:
                return bound((float(sequence), float(used), mono_ns, *values, *empty[known:]))
    return None


def _decode_name(data: bytes, at: int) -> tuple[str, str]:
    entry = data[at : at + _NAME_ENTRY_BYTES]
    if len(entry) < _NAME_ENTRY_BYTES or entry[0] > MOST_NAME_BYTES or entry[1] >= len(SPLITS):
        return ("", "")
    return (entry[2 : 2 + entry[0]].decode(errors="replace"), SPLITS[entry[1]])
