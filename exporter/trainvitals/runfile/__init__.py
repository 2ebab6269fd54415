r"""The run file: one small file per rank, which contains the state of a training process.

A trainer creates the file in the run directory and writes to the file through a memory mapping. The
exporter reads the file. The trainer and the exporter communicate only through this file. The last
record is preserved when a signal, even SIGKILL, terminates the trainer. `codec` and `traces`
convert between the bytes and the objects that represent them.

**Name**: `RUN.RANK.PID.RANDOM.tv`, where RUN is the run name with all characters except letters,
digits, `-` and `_` replaced. The name is never parsed; the header is authoritative. The file is
written as `.NAME.tmp` and renamed when the header is complete, so that no reader sees a partial
header. The file `NAME.end` in the same directory is the exporter's record of how the rank ended
(see `sources.runs.endings`).

**Lifetime**: the trainer holds a POSIX record lock (`fcntl`, F_WRLCK) on byte 0 until its process
ends. Any process that can read the file can query the lock holder (F_GETLK): if the lock has no
holder, the trainer has ended; otherwise the kernel returns the holder's PID in the PID namespace of
the querying process. The trainer must never close a second descriptor of the file, because doing so
would release the lock. The file's blocks are allocated when the file is created, so that a full
file system is reported at this time and not as SIGBUS at a later store. A run file is never
truncated; to remove a run file, unlink it.

**Layout**, 16384 bytes, little endian, offsets in bytes:

====== ====== =======================================================================
offset size   content
====== ====== =======================================================================
0      8      magic `TVRUN\r\n\0`
8      2, 2   u16 major version, u16 minor version
12     4      u32 CRC-32 of bytes 16 to 3840
16     4, 4   u32 pid in the trainer's own namespace, u32 uid
24     8      u64 process start time in clock ticks since boot (/proc/PID/stat field 22)
32     16     boot id (/proc/sys/kernel/random/boot_id, as bytes)
48     8      u64 inode of the trainer's PID namespace
56     8, 8   f64 creation, Unix seconds; u64 creation, CLOCK_MONOTONIC nanoseconds
72     5x4    i32 rank, local rank (-1 unknown), node rank (-1), world size (0), attempt
92     4      u32 bytes of the static JSON
96     4      u32 number of words in the writer's version of the step record
100    4      u32 number of words in the writer's version of the state record
256    3584   static JSON, UTF-8: `run` and other constant properties of the run
3840   256    last words: u32 CRC-32 of the text, u32 bytes, UTF-8 text: the class of the exception
              that ended the run; all bytes are zero until then
4096   4096   names of user-defined metrics: 64 entries of 64 bytes: u8 length, u8 split
              (`SPLITS`), name in UTF-8. Entries are appended; the word `names` of the state record
              is the number of complete entries
8192   2x1024 step record, slot A and slot B
10240  2x3072 state record, slot A and slot B; the last KiB of slot A is not part of the record:
12288  64     trace request, written by the file's owner or root: u64 number, u32 steps,
              u32 flags (1 shapes, 2 memory, 4 stacks), u32 CRC-32 of these 16 bytes. A
              new number is a new request; the number 0 withdraws the request
12352  960    trace answer, written by the trainer: u64 number of the request, u32 `TraceStage`
              (0: this writer does not take traces), u32 steps traced, u32 CRC-32 of the text,
              u32 bytes, UTF-8 text: the path of the trace, or the reason why no trace was taken
16256  16x8   live words: for each phase, in the order of `Phase`, f64 CLOCK_MONOTONIC seconds at
              which the phase last began; 0 if the phase has never begun. The newest word
              identifies the current phase. A change of phase is one aligned store, which is atomic
====== ====== =======================================================================

**Records**: two rows of 8-byte words, `STEP_WORDS` (written on every step) and `STATE_WORDS`
(written when one of the state words has changed). The first two words are u64: the sequence number
(from 1; 0 marks an empty slot) and the number of words used. All other words of a record are f64.
The first f64 word is the CLOCK_MONOTONIC time in nanoseconds. An unknown value is written as
`ABSENT`, so that a NaN loss differs from a missing loss. The word after the used words contains the
CRC-32 of all used words. Record number n is written to slot A if n is even and to slot B if n is
odd, so that the other slot always contains the complete previous record. Of the slots whose CRC is
correct, a reader uses the slot with the higher number. It limits the words to their bounds (see
`bounds`).

**Versions**: a new minor version only appends words. A reader uses the words of its own version;
missing words are `ABSENT`. A file with an unknown major version is ignored and counted.
"""

from __future__ import annotations

import sys
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
# The upper bounds of the step duration buckets in seconds; the last bucket counts longer steps.
BUCKET_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Phase(IntEnum):
    """A phase of a trainer: records contain its number, and labels contain its lower-case name."""

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
    """The state of a run, as the trainer last recorded it.

    `ENDED` means that the interpreter ended without an exception and without a call that ends the
    run; the exit code of the process determines whether the run succeeded.
    """

    RUNNING = 0
    FINISHED = 1
    FAILED = 2
    SWITCHED_OFF = 3
    ENDED = 4


PHASE_NAMES = tuple(phase.name.lower() for phase in Phase)
COARSE_PHASES = ("init", "compile", "train", "validation", "checkpoint", "idle")
# The coarse phase to which each phase belongs.
COARSE = tuple(name if name in COARSE_PHASES else "train" for name in PHASE_NAMES)

# The words that change on every step come first, so that one call can write all of them.
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
    """The file is not a run file, or this version cannot read it.

    Attributes:
        fault: The kind of the error.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a run file's writer, which never changes.

    Attributes:
        run: The run name.
        rank: The rank of the process among all processes of the run; 0 for a single process.
        local_rank: The rank of the process on its node; -1 if this rank is unknown.
        node_rank: The rank of the node among the run's nodes; -1 if this rank is unknown.
        world_size: The number of ranks in the run; 0 if the number is unknown.
        attempt: The number of previous restarts of the run by the launcher.
        pid: The process ID in the process's own PID namespace.
        uid: The user ID of the process.
        start_ticks: The start time of the process, in clock ticks since boot; 0 if this time is
            unknown.
        boot_id: The kernel's boot ID, 16 bytes; all bytes are zero if the boot ID is unknown.
        pid_namespace: The inode of the process's PID namespace; 0 if the inode is unknown.
        created_time: The time at which the run file was created, in Unix seconds.
        created_mono_ns: The time at which the run file was created, on CLOCK_MONOTONIC, in
            nanoseconds.
        static: Further properties of the run: `framework`, `framework_version`, `client_version`,
            `hostname`, `script`, `clock`, `accelerator_uuids`. The values are strings or lists of
            strings.
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
    """The latest complete records of one rank.

    Attributes:
        step: The words of the step record, in the order of `STEP_WORDS`; an unknown word is
            `ABSENT`.
        state: The words of the state record, in the order of `STATE_WORDS`; an unknown word is
            `ABSENT`.
        live: The CLOCK_MONOTONIC time of the last phase change in nanoseconds, and the current
            `Phase`; None if no phase is known. When a step hangs, the phase in `live` is newer than
            the step record's word `phase`.
        metrics: The name and split of each user-defined metric; the value of metric i is the word
            `metric_i`.
        identity: The identity of the run file's writer; None for a run found in event files or
            logs.
        last_words: The class of the exception that ended the run; empty if no exception was
            recorded.
    """

    step: Sequence[float] = EMPTY_STEP
    state: Sequence[float] = EMPTY_STATE
    live: tuple[int, int] | None = None
    metrics: Sequence[tuple[str, str]] = ()
    identity: Identity | None = None
    last_words: str = ""
