r"""The run file: what a training process tells about itself, one small file per rank.

A trainer creates the file in the run directory and writes to it through a memory mapping; the
exporter reads it. Nothing else passes between the two. What was written last survives the
trainer's death, by whatever signal.

**Name**: `RUN.RANK.PID.RANDOM.tv`, where RUN is the run's name with everything but letters,
digits, `-` and `_` replaced. Nothing is read from the name; the header has the truth. The file is
written as `.NAME.tmp` and renamed once its header is whole, so no reader ever meets half a header.
`NAME.end`, beside it, is the exporter's note on how the rank ended (see `sources.training.endings`).

**Life**: the trainer holds a POSIX record lock (`fcntl`, F_WRLCK) on byte 0 for as long as it
lives. Who can read the file can ask for the lock's holder (F_GETLK): no holder means that the
trainer is dead; a holder's PID is told in the asker's own PID namespace. The trainer must never
close a second descriptor of the file, for that would drop the lock. The blocks of the file are
allocated when it is made, so that a full file system is met there and not by a SIGBUS at a later
store. Nobody ever truncates a run file; to get rid of one, unlink it.

**Layout**, 16384 bytes, little endian, offsets in bytes:

====== ====== =======================================================================
offset size   content
====== ====== =======================================================================
0      8      magic `TVRUN\r\n\0`
8      2, 2   u16 major version, u16 minor version
12     4      u32 CRC-32 of bytes 16 to 3840
16     4, 4   u32 pid in the trainer's own namespace, u32 uid
24     8      u64 start time of the process in clock ticks since boot (/proc/PID/stat field 22)
32     16     boot id (/proc/sys/kernel/random/boot_id, as bytes)
48     8      u64 inode of the trainer's PID namespace
56     8, 8   f64 creation, Unix seconds; u64 creation, CLOCK_MONOTONIC nanoseconds
72     5x4    i32 rank, local rank (-1 unknown), node rank (-1), world size (0), attempt
92     4      u32 bytes of the static JSON
96     4      u32 words of a step record as this writer knows it
100    4      u32 words of a state record as this writer knows it
256    3584   static JSON, UTF-8: `run` and what else describes the run and never changes
3840   256    last words: u32 CRC-32 of the text, u32 bytes, UTF-8 text: the class of the exception
              that ended the run; all zero until then
4096   4096   names of free metrics: 64 entries of 64 bytes: u8 length, u8 split (`SPLITS`), name
              in UTF-8. Entries are appended; the state record's word `names` says how many are whole
8192   2x1024 step record, slot A and slot B
10240  2x3072 state record, slot A and slot B; the last KiB of slot A is not the record's:
12288  64     request for a trace, written by who wants one (the file's owner or root): u64 number,
              u32 steps, u32 flags (1 shapes, 2 memory, 4 stacks), u32 CRC-32 of these 16 bytes. A
              new number is a new request, 0 takes it back
12352  960    answer, written by the trainer: u64 number of the request, u32 `TraceStage` (0: this
              writer takes none), u32 steps traced, u32 CRC-32 of the text, u32 bytes, UTF-8 text:
              where the trace is or why there is none
16256  16x8   live words: for each phase, in the order of `Phase`, f64 CLOCK_MONOTONIC seconds of
              when it began last, 0 until then. The newest one tells the phase of this moment. A
              change of phase is one aligned store, which is never torn
====== ====== =======================================================================

**Records**: two rows of 8-byte words, `STEP_WORDS` (written on every step) and `STATE_WORDS`
(written when something in it changed). The first two words are u64: the sequence number (from 1;
0 is an empty slot) and the number of words used. All others are f64, the first of them
CLOCK_MONOTONIC in nanoseconds; `ABSENT` means unknown, so that a loss that is NaN can be told from
no loss. The word after the used ones holds the CRC-32 of all used words. Record number n goes to slot A when n is even and to
slot B when it is odd, so the other slot always holds the one before it, whole. A reader takes
the slot whose CRC is right and whose number is higher.

**Versions**: a minor version only appends words. A reader takes the words that it knows, and those
it misses are `ABSENT`. A major version that it does not know is left alone and counted.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from trainvitals.errors import TrainvitalsError

MAJOR, MINOR = 1, 1
SUFFIX = ".tv"
FILE_BYTES = 16384
STATIC_AT, LAST_WORDS_AT, NAMES_AT = 256, 3840, 4096
STEP_AT, STEP_SLOT_BYTES = 8192, 1024
STATE_AT, STATE_SLOT_BYTES = 10240, 3072
TRACE_AT, TRACE_BYTES, TRACE_ANSWER_AT = 12288, 1024, 64
LIVE_AT, LIVE_BYTES = 16256, 128
MOST_METRICS = 64
MOST_NAME_BYTES = 62
ABSENT = -sys.float_info.max

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
_REQUEST, _REQUEST_CRC = struct.Struct("<QII"), struct.Struct("<I")
_ANSWER = struct.Struct("<QIIII")
_SHAPES, _MEMORY, _STACKS = 1, 2, 4

SPLITS = ("", "train", "validation", "test")
ALERTS = (
    "gpu_underutilized",
    "memory_pressure",
    "io_bottleneck",
    "gpu_temperature",
    "adaptive_step_time",
    "adaptive_throughput",
    "adaptive_utilization",
)
EVENTS = (
    "none",
    "start",
    "epoch",
    "validation",
    "checkpoint",
    "nonfinite",
    "loss_spike",
    "data_error",
    "oom",
    "alert",
    "finish",
    "fail",
    "switched_off",
    "resume",
)
EVENT_COUNT = 8
# Upper bounds of a step's duration in seconds; a last bucket takes what is longer.
BUCKET_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Phase(IntEnum):
    """What a trainer is doing; the record has the number, labels have the name in small letters."""

    INIT = 0
    COMPILE = 1
    DATA_WAIT = 2
    H2D = 3
    FORWARD = 4
    BACKWARD = 5
    OPTIMIZER = 6
    OTHER = 7
    VALIDATION = 8
    CHECKPOINT = 9
    IDLE = 10


class State(IntEnum):
    """How a run stands, as the trainer itself last said.

    `ENDED` is what it says when the interpreter ends without an exception, and nobody said that the
    run was over: how well it ended is for the exit code to say.
    """

    RUNNING = 0
    FINISHED = 1
    FAILED = 2
    SWITCHED_OFF = 3
    ENDED = 4


class TraceStage(IntEnum):
    """How far a trainer is with a trace that somebody asked for."""

    UNAVAILABLE = 0
    READY = 1
    WAITING = 2
    TRACING = 3
    WRITING = 4
    DONE = 5
    FAILED = 6


PHASE_NAMES = tuple(phase.name.lower() for phase in Phase)
COARSE_PHASES = ("init", "compile", "train", "validation", "checkpoint", "idle")
# The coarse phase of each phase.
COARSE = tuple(name if name in COARSE_PHASES else "train" for name in PHASE_NAMES)

# What changes on every step stands first, and is written at once.
STEP_WORDS = tuple(
    f"""
    sequence used mono_ns wall_time
    last_progress_time steps samples tokens global_step epoch_step step_seconds train_seconds loss
    {" ".join(f"total_{name}" for name in PHASE_NAMES)}
    phase phase_start_time accuracy learning_rate gradient_norm loss_ema nonfinite_losses
    slowest_step_seconds forward_seconds backward_seconds optimizer_seconds
    {" ".join(f"step_bucket_{index}" for index in range(len(BUCKET_BOUNDS) + 1))}
    window_train_seconds window_steps window_samples window_tokens overhead_seconds errors
    """.split()
)
STATE_WORDS = tuple(
    f"""
    sequence used mono_ns wall_time state state_time epoch total_epochs total_steps epoch_steps
    first_global_step validation_loss validation_accuracy nonfinite_gradients
    nonfinite_evaluations last_nonfinite_time nan_filter_active data_errors evaluations
    evaluations_since_improvement best_evaluation checkpoints last_checkpoint_time
    longest_validation_seconds longest_checkpoint_seconds loss_spike loss_spikes
    memory_allocated_bytes memory_reserved_bytes memory_peak_bytes memory_alloc_retries
    memory_ooms last_oom_time flops_per_sample flops_per_token peak_flops dropped_names alerts
    epoch_start_time names checkpoint_max_age_seconds baseline_step_seconds
    baseline_samples_per_second baseline_utilization_ratio deviations
    {" ".join(f"event_time_{i} event_code_{i} event_value_{i}" for i in range(EVENT_COUNT))}
    {" ".join(f"metric_{index}" for index in range(MOST_METRICS))}
    """.split()
)
STEP: Mapping[str, int] = {name: index for index, name in enumerate(STEP_WORDS)}
STATE: Mapping[str, int] = {name: index for index, name in enumerate(STATE_WORDS)}
EMPTY_STEP = (ABSENT,) * len(STEP_WORDS)
EMPTY_STATE = (ABSENT,) * len(STATE_WORDS)

Fault = Literal["too_short", "not_a_run_file", "unknown_version", "damaged"]


class RunFileError(TrainvitalsError):
    """A file that is no run file, or not one that this version can read.

    Attributes:
        fault: What is wrong with it.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What somebody wants to have traced.

    Attributes:
        number: Tells it from every other request; not 0.
        steps: How many steps.
        record_shapes: With the shapes of operators' inputs.
        profile_memory: With what operators allocate.
        with_stack: With the source lines that called them.
    """

    number: int
    steps: int
    record_shapes: bool = False
    profile_memory: bool = True
    with_stack: bool = False


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """What the trainer says of a request.

    Attributes:
        number: Which request.
        stage: How far it is.
        steps: How many steps are traced.
        text: Where the trace is, with a tab and a remark where there is one; or why there is none.
    """

    number: int = 0
    stage: TraceStage = TraceStage.UNAVAILABLE
    steps: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who wrote a run file; it never changes.

    Attributes:
        run: The run's name.
        rank: The process's rank, 0 when it is alone.
        local_rank: Its rank on this node; -1 unknown.
        node_rank: The node's rank; -1 unknown.
        world_size: How many ranks there are; 0 unknown.
        attempt: How often the launcher restarted the run.
        pid: The process in its own PID namespace.
        uid: Its user.
        start_ticks: When it started, in clock ticks since boot; 0 unknown.
        boot_id: The boot it belongs to, 16 bytes; zeros unknown.
        pid_namespace: The inode of its PID namespace; 0 unknown.
        created_time: When the file was made, Unix seconds.
        created_mono_ns: The same on CLOCK_MONOTONIC, nanoseconds.
        static: What else describes the run: `framework`, `framework_version`, `client_version`,
            `hostname`, `script`, `clock`, `accelerator_uuids`. Values are text or lists of text.
    """

    run: str
    rank: int = 0
    local_rank: int = -1
    node_rank: int = -1
    world_size: int = 0
    attempt: int = 0
    pid: int = 0
    uid: int = 0
    start_ticks: int = 0
    boot_id: bytes = bytes(16)
    pid_namespace: int = 0
    created_time: float = 0.0
    created_mono_ns: int = 0
    static: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """What one rank last told of itself.

    Attributes:
        step: The words of `STEP_WORDS`, in their order; `ABSENT` where unknown.
        state: The words of `STATE_WORDS`, likewise.
        live: What the trainer is doing right now, newer than the step record's word `phase` when a
            step hangs: CLOCK_MONOTONIC nanoseconds of the last change, and the `Phase`; None unknown.
        metrics: Name and split of each free metric; the value of number i is the word `metric_i`.
        identity: Who wrote it; None for a run that was found in event files or logs.
        last_words: The class of the exception that ended the run; empty when there was none.
    """

    step: Sequence[float] = EMPTY_STEP
    state: Sequence[float] = EMPTY_STATE
    live: tuple[int, int] | None = None
    metrics: Sequence[tuple[str, str]] = ()
    identity: Identity | None = None
    last_words: str = ""


def encode_header(identity: Identity) -> bytes:
    """Write the first 4096 bytes of a run file.

    Raises:
        ValueError: The static description does not fit into its 3584 bytes.
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


def encode_name(name: str, split: str) -> bytes:
    """Write one entry of the table of free metrics' names.

    Raises:
        ValueError: The name is longer than 62 bytes, or the split is none of `SPLITS`.
    """
    text = name.encode()
    if len(text) > MOST_NAME_BYTES:
        raise ValueError(f"the name {name!r} has {len(text)} bytes; at most 62 fit")
    return bytes((len(text), SPLITS.index(split))) + text.ljust(MOST_NAME_BYTES, b"\0")


def encode_last_words(text: str) -> bytes:
    """Write the class of the exception that ended the run, cut to what fits."""
    words = text.encode(errors="replace")[: NAMES_AT - LAST_WORDS_AT - _LAST_WORDS.size]
    return _LAST_WORDS.pack(zlib.crc32(words), len(words)) + words


def encode_trace_request(request: TraceRequest) -> bytes:
    """Write a request for a trace, which goes to `TRACE_AT`."""
    flags = (
        _SHAPES * request.record_shapes
        | _MEMORY * request.profile_memory
        | _STACKS * request.with_stack
    )
    words = _REQUEST.pack(request.number, request.steps, flags)
    return words + _REQUEST_CRC.pack(zlib.crc32(words))


def decode_trace_request(data: bytes, at: int = TRACE_AT) -> TraceRequest | None:
    """Read a request for a trace; None where there is none, or only a part of one yet."""
    words = data[at : at + _REQUEST.size]
    number, steps, flags = _REQUEST.unpack(words)
    if not number or _REQUEST_CRC.unpack_from(data, at + len(words))[0] != zlib.crc32(words):
        return None
    return TraceRequest(
        number, steps, bool(flags & _SHAPES), bool(flags & _MEMORY), bool(flags & _STACKS)
    )


def encode_trace_answer(answer: TraceAnswer) -> bytes:
    """Write the answer, which goes to `TRACE_ANSWER_AT` after `TRACE_AT`; the text is cut to fit."""
    most = TRACE_BYTES - TRACE_ANSWER_AT - _ANSWER.size
    text = answer.text.encode(errors="replace")[:most]
    crc = zlib.crc32(text)
    return _ANSWER.pack(answer.number, answer.stage, answer.steps, crc, len(text)) + text


def decode_trace_answer(data: bytes, at: int = TRACE_AT + TRACE_ANSWER_AT) -> TraceAnswer:
    """Read the answer; one that makes no sense, as while it is written, says that there is none."""
    number, stage, steps, crc, length = _ANSWER.unpack_from(data, at)
    end = TRACE_BYTES - TRACE_ANSWER_AT
    text = data[at + _ANSWER.size : at + end][:length]
    if stage not in TraceStage.__members__.values() or zlib.crc32(text) != crc:
        return TraceAnswer()
    parts = text.decode(errors="replace").split("\t")
    words = "\t".join(_clean(part, most=end) for part in parts)
    return TraceAnswer(number, TraceStage(stage), steps, words)


def decode_header(data: bytes) -> Identity:
    """Read who wrote a file from its first 4096 bytes.

    Raises:
        RunFileError: It is no run file, one of another major version, or damaged.
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
        pid, uid, ticks, boot, namespace, created, mono, static,
    )  # fmt: skip


def decode_step(data: bytes, at: int = STEP_AT) -> tuple[float, ...] | None:
    """Read the newest whole step record; `at` is where its slot A begins in the data.

    Returns:
        The words of `STEP_WORDS`; None where no slot is whole.
    """
    return _decode_newest(data, at, STEP_SLOT_BYTES, EMPTY_STEP)


def decode_state(data: bytes, at: int = STATE_AT) -> tuple[float, ...] | None:
    """Read the newest whole state record; `at` is where its slot A begins in the data.

    Returns:
        The words of `STATE_WORDS`; None where no slot is whole.
    """
    return _decode_newest(data, at, STATE_SLOT_BYTES, EMPTY_STATE)


def decode_live(data: bytes, at: int = LIVE_AT) -> tuple[int, int] | None:
    """Read what the trainer is doing: CLOCK_MONOTONIC nanoseconds of the last change, the phase.

    Returns:
        None where nothing was said yet, or the phase is not known here.
    """
    began = _LIVE.unpack_from(data, at)
    newest = max(began)
    if not 0 < newest < _MOST_SECONDS:
        return None
    # A step that ends and what follows it may have one stamp; what follows has the higher number.
    phase = len(began) - 1 - began[::-1].index(newest)
    return (int(newest * 1e9), phase) if phase < len(Phase) else None


def decode_names(data: bytes, count: float, at: int = 0) -> tuple[tuple[str, str], ...]:
    """Read the names of the free metrics.

    Args:
        data: The table.
        count: How many entries are whole: the state record's word `names`.
        at: Where the table begins in the data.

    Returns:
        Name and split of each; an entry that makes no sense has an empty name.
    """
    number = int(count) if 0 <= count <= MOST_METRICS else 0
    return tuple(_decode_name(data, at + index * _NAME_ENTRY_BYTES) for index in range(number))


def decode_last_words(data: bytes, at: int = LAST_WORDS_AT) -> str:
    """Read the class of the exception that ended the run; empty where there is none, or no sense."""
    end = at + NAMES_AT - LAST_WORDS_AT
    if len(data) < end:
        return ""
    crc, length = _LAST_WORDS.unpack_from(data, at)
    words = data[at + _LAST_WORDS.size : end][:length]
    if not words or len(words) != length or zlib.crc32(words) != crc:
        return ""
    return words.decode(errors="replace")


def decode(data: bytes) -> Record:
    """Read a whole run file.

    Raises:
        RunFileError: It is no run file, one of another major version, or damaged.
    """
    identity = decode_header(data)
    if len(data) != FILE_BYTES:
        raise RunFileError("damaged", f"it has {len(data)} bytes; a run file has 16384")
    state = decode_state(data) or EMPTY_STATE
    return Record(
        step=decode_step(data) or EMPTY_STEP,
        state=state,
        live=decode_live(data),
        metrics=decode_names(data, state[STATE["names"]], NAMES_AT),
        identity=identity,
        last_words=decode_last_words(data),
    )


def _decode_static(text: bytes) -> dict[str, str | Sequence[str]]:
    try:
        static = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunFileError("damaged", "its static description is no JSON") from error
    if not isinstance(static, dict):
        raise RunFileError("damaged", "its static description is no JSON object")
    return {_clean(key): _clean_all(value) for key, value in static.items() if _describes(value)}


def _describes(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _clean_all(value: str | Sequence[str]) -> str | Sequence[str]:
    return _clean(value) if isinstance(value, str) else [_clean(item) for item in value]


def _clean(text: str, *, most: int = _MOST_TEXT) -> str:
    """Make text fit for a label: what cannot be printed, a lone surrogate too, becomes `_`."""
    return "".join(c if c.isprintable() else "_" for c in text[:most])


def _decode_newest(
    data: bytes, at: int, slot_bytes: int, empty: tuple[float, ...]
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
                return (float(sequence), float(used), mono_ns, *values, *empty[known:])
    return None


def _decode_name(data: bytes, at: int) -> tuple[str, str]:
    entry = data[at : at + _NAME_ENTRY_BYTES]
    if len(entry) < _NAME_ENTRY_BYTES or entry[0] > MOST_NAME_BYTES or entry[1] >= len(SPLITS):
        return ("", "")
    return (entry[2 : 2 + entry[0]].decode(errors="replace"), SPLITS[entry[1]])
