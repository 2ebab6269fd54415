"""Run files in a run directory: from a real training process, or with made-up contents."""

import os
import struct
import subprocess
import sys
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import ENDS_WITH_PARENT
from trainvitals.runfile import (
    ABSENT,
    EMPTY_STATE,
    EMPTY_STEP,
    EVENTS,
    FILE_BYTES,
    NAMES_AT,
    STATE,
    STEP,
    Identity,
    Phase,
    Record,
    RunFileError,
)
from trainvitals.runfile.codec import (
    decode_header,
    decode_last_words,
    decode_live,
    decode_names,
    decode_state,
    decode_step,
    encode_header,
    encode_last_words,
    encode_name,
)
from trainvitals.sources.runs.endings import Ending, write_ending
from trainvitals.sources.runs.history import read_run_history
from trainvitals.sources.runs.liveness import Host

ROOT = Path(__file__).parents[2]
BOOT = b"the same boot id"
# 2023-11-15 12:00:00 UTC, at which CLOCK_MONOTONIC showed 1000 s.
NOON = 1_700_049_600.0
NOON_MONO = 1000.0
TRAINER = """
import sys, time
from trainvitals import TrainingMonitor

how, run, directory, rank, world_size, attempt, global_step = sys.argv[1:]
with TrainingMonitor(
    run, run_dir=directory, rank=int(rank), world_size=int(world_size), attempt=int(attempt),
    global_step=int(global_step), total_steps=100,
) as monitor:
    monitor.start_epoch(0)
    for number in range(20):
        monitor.update_batch(8, loss=2.0 / (number + 1))
        if number == 14:
            monitor.checkpoint_saved()
        time.sleep(0.002)
    if how == "raise":
        raise LookupError("a message that may hold a secret")
    if how != "finish":
        monitor.mark("backward")
        print("ready", flush=True)
        time.sleep(60)
"""


def decode(data: bytes) -> Record:
    """Return the records of a complete run file.

    Raises:
        RunFileError: The data is not a run file, has another major version, or is damaged.
    """
    identity = decode_header(data)
    if len(data) != FILE_BYTES:
        raise RunFileError("damaged", f"it has {len(data)} bytes")
    state = decode_state(data) or EMPTY_STATE
    return Record(
        step=decode_step(data) or EMPTY_STEP,
        state=state,
        live=decode_live(data),
        metrics=decode_names(data, state[STATE["names"]], NAMES_AT),
        identity=identity,
        last_words=decode_last_words(data),
    )


def read_only(directory: Path) -> Record:
    """Return the records of the only run file in a directory."""
    (path,) = directory.glob("*.tv")
    return decode(path.read_bytes())


def step(record: Record, name: str) -> float | None:
    """Return a word of the step record, or None for an unknown value."""
    value = record.step[STEP[name]]
    return None if value == ABSENT else value


def state(record: Record, name: str) -> float | None:
    """Return a word of the state record, or None for an unknown value."""
    value = record.state[STATE[name]]
    return None if value == ABSENT else value


def events(record: Record) -> list[str]:
    """Return the names of the last events, oldest first."""
    words = record.state
    ring = [
        (words[STATE[f"event_time_{i}"]], EVENTS[int(words[STATE[f"event_code_{i}"]])])
        for i in range(8)
        if words[STATE[f"event_code_{i}"]] > 0
    ]
    return [name for _, name in sorted(ring, key=lambda event: event[0])]


@pytest.fixture
def run_dir():
    """Yield a run directory in memory, where the last step is published at once."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@contextmanager
def training(directory, how="hang", run="bert", *, rank=0, world_size=1, attempt=0, step=0):
    """Train in a separate process, and yield it once it has ended or hangs in a backward pass."""
    arguments = (how, run, directory, rank, world_size, attempt, step)
    process = subprocess.Popen(
        [*ENDS_WITH_PARENT, sys.executable, "-c", TRAINER, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "exporter")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        process.stdout.readline() if how == "hang" else process.wait(30)
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_zombie(process):
    """Wait until a child process is dead, without collecting its exit status."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


class RunFile:
    """A run file with made-up contents, whose times are around noon.

    Args:
        directory: The run directory.
        name: The name of the file.
        words: Words of the step and state records by name, and `live` and `live_phase`.
    """

    def __init__(
        self, directory, name="run.tv", *, identity=None, last_words="", names=(), **words
    ):
        identity = identity or describe()
        live, live_phase = words.pop("live", 0.0), words.pop("live_phase", Phase.FORWARD)
        data = bytearray(16384)
        data[:4096] = encode_header(identity)
        ending = encode_last_words(last_words) if last_words else b""
        data[3840 : 3840 + len(ending)] = ending
        for number, each in enumerate(names):
            data[4096 + 64 * number : 4160 + 64 * number] = encode_name(*each)
        words = {"state": 0.0, "names": float(len(names)), **words}
        _pack(data, 8192 + 1024, STEP, EMPTY_STEP, words)
        _pack(data, 10240 + 3072, STATE, EMPTY_STATE, words)
        if live:
            struct.pack_into("<d", data, 16256 + 8 * live_phase, NOON_MONO + live)
        self.data = data
        self.path = directory / name
        directory.mkdir(exist_ok=True)
        self.path.write_bytes(data)

    def note(self, reason, *, after=0.0, signal_=None, evidence="It was seen.", machine=None):
        """Append the exporter's note about the end of the run to the file."""
        ending = Ending(
            reason, None, signal_, None, NOON + after, evidence, machine or {"load": 1.0}
        )
        write_ending(self.path, ending)
        return self


def describe(run="bert", rank=0, **members):
    """Return an identity whose file was created at noon by default."""
    static = {"framework": "torch", "framework_version": "2.13.0", "hostname": "box"}
    return Identity(
        run,
        rank=rank,
        pid=4711,
        start_ticks=5,
        boot_id=BOOT,
        pid_namespace=7,
        created_time=NOON + members.pop("created", 0.0),
        created_mono_ns=int(NOON_MONO * 1e9),
        static={**static, "script": "train.py"},
        **members,
    )


def _pack(data, at, index, empty, words):
    """Write record number 1, which belongs in slot B."""
    row = list(empty)
    for name, value in words.items():
        if name in index:
            row[index[name]] = value
    after = words.get("written", 0.0)
    row[3] = words.get("wall_time", NOON + after)
    row[2] = words.get("mono_ns", (NOON_MONO + after) * 1e9)
    body = struct.pack(f"<2Q{len(row) - 2}d", 1, len(row), *row[2:])
    data[at : at + len(body) + 8] = body + struct.pack("<Q", zlib.crc32(body))


def find(directory, *, after=3600.0):
    """Read a directory of made-up run files, by default an hour after noon, without processes."""
    host = Host(BOOT, 7, procfs=directory / "no-proc", cgroupfs=directory / "no-cgroups")
    return read_run_history(
        directory,
        host=host,
        clock=lambda: NOON + after,
        monotonic_ns=lambda: int((NOON_MONO + after) * 1e9),
    )
