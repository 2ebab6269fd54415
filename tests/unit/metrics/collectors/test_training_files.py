"""Tests for the metrics page with arbitrary run files."""

from __future__ import annotations

import os
import shutil
import struct
import time
import zlib
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.sources.runs.trainer import compose_run_file
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.exposition import Exposition
from trainvitals.runfile import ABSENT, STATE, STATE_WORDS, STEP_WORDS, Identity
from trainvitals.runfile.codec import encode_header, encode_name
from trainvitals.sources.runs.liveness import Host, read_host
from trainvitals.sources.runs.processes import read_process_state
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource

HOST = read_host()
I32 = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])
U64 = st.sampled_from([0, 1, 2**64 - 1]) | st.integers(0, 2**64 - 1)
USUAL = (
    *(ABSENT, 0.0, -0.0, 1.0, 2.0, 3.0, 8.0, 9.0, -1.0, 0.5, 1e18, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), -float("inf"), time.time(), time.time() + 1e9),
)
NUMBERS = st.sampled_from(USUAL) | st.floats(width=64)


def know_self(host: Host) -> tuple[int, int]:
    """Return the PID and the start time of this process, which a forged header may contain."""
    state = read_process_state(os.getpid(), procfs=host.procfs)
    return os.getpid(), state.start_ticks if state is not None else 0


def _draw_words(random: Random, words: tuple[str, ...]) -> list[float]:
    strange = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(8)]
    return [random.choice((*USUAL, *strange)) for _ in words[3:]]


@st.composite
def run_files(draw: st.DrawFn) -> bytes:
    """Draw a run file with correct checksums and arbitrary numbers."""
    pid, start_ticks = draw(st.sampled_from([know_self(HOST), (0, 0), (1, 1), (2**32 - 1, 7)]))
    identity = Identity(
        draw(st.sampled_from(["a", "b", 'a"\\\n', "x" * 1000, "", "\ud800"])),
        rank=draw(I32),
        local_rank=draw(I32),
        world_size=draw(I32),
        attempt=draw(I32),
        pid=pid,
        start_ticks=start_ticks,
        boot_id=draw(st.sampled_from([HOST.boot_id, bytes(16), b"another machine."])),
        pid_namespace=draw(st.sampled_from([HOST.pid_namespace, 0])),
        created_time=draw(NUMBERS),
        created_mono_ns=draw(U64),
        static=draw(st.sampled_from([{}, {"framework": ["x"], "accelerator_uuids": "y"}])),
    )
    names = draw(st.integers(0, 64))
    random = Random(draw(st.integers(0, 2**32)))  # hundreds of draws by Hypothesis would take long
    step, state = _draw_words(random, STEP_WORDS), _draw_words(random, STATE_WORDS)
    state[STATE["names"] - 3] = float(names)
    state[STATE["state"] - 3] = draw(NUMBERS)
    data = bytearray(16384)
    data[:4096] = encode_header(identity)
    for number in range(names):
        at = 4096 + 64 * number
        data[at : at + 64] = encode_name(f"name {number // 2}", "")
    for at, words in ((8192, step), (10240, state)):
        told = draw(st.floats(0, 1e18))  # a record later than 30 years after the boot is invalid
        row = struct.pack(f"<2Q{len(words) + 1}d", draw(U64), len(words) + 3, told, *words)
        row += struct.pack("<Q", zlib.crc32(row))
        data[at : at + len(row)] = row
    data[16256:16272] = struct.pack("<dd", draw(NUMBERS), draw(NUMBERS))
    return bytes(data)


@settings(max_examples=80)
@given(st.lists(st.lists(run_files(), min_size=1, max_size=3), min_size=1, max_size=3))
def test_no_run_file_costs_the_page(tmp_path_factory, readings):
    """Other run files with arbitrary contents do not prevent the report of a valid run."""
    runs = tmp_path_factory.mktemp("runs")
    good = compose_run_file("innocent", wall_time=time.time())
    (runs / "good.tv").write_bytes(good)
    collector = TrainingCollector(TrainingSource(TrainingOptions(runs)))
    try:
        for files in readings:
            for number, data in enumerate(files):
                (runs / f"{number}.tv").write_bytes(data)
            reading = collector.read(time.monotonic() + 5)
            page = Exposition().write(collector.express(reading)).decode()
            up = {
                sample.labels["run"]
                for family in text_string_to_metric_families(page)
                for sample in family.samples
                if sample.name == "training_process_up"
            }
            assert "innocent" in up
            assert reading.complaint is None
    finally:
        collector.close()
        shutil.rmtree(runs)
