"""Damaged files of other users that the exporter reads: run files, logs and event files.

Each input is read as in a scrape, beside a valid run, which must stay intact, and a symbolic link
that leads out of the run directory. For one input of `VIEWED` all views are rendered.
"""

import itertools
import os
import struct
import time
import zlib
from contextlib import closing

import pytest

from tests.integration.fuzz.fuzzing import CANARY, TIMEOUT, fuzz
from tests.support.mutations import Mutations
from tests.support.run_files import ROOT
from tests.unit.sources.runs.records import make_event, make_record, make_scalar, make_tensor
from tests.unit.sources.runs.trainer import compose_run_file, holding
from tests.unit.views.test_extremes import NOWHERE, show_reading
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.runfile import (
    LAST_WORDS_AT,
    NAMES_AT,
    STATE_AT,
    STATE_SLOT_BYTES,
    STEP_AT,
    STEP_SLOT_BYTES,
    State,
)
from trainvitals.runfile.codec import encode_last_words, encode_name
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource
from trainvitals.views.machine.observer import Observer

pytestmark = TIMEOUT
FIXTURES = ROOT / "tests/fixtures/training"
FILES = 4
VIEWED = 25  # rendering is slower than reading, so that only one input of 25 is rendered
GOOD_STEP = 12


class Stage:
    """A run directory, logs and event files, and the collector that reads them.

    Args:
        folder: An empty directory.
    """

    def __init__(self, folder):
        self.runs, self.logs, self.board = (folder / name for name in ("runs", "logs", "board"))
        for each in (self.runs, self.logs, self.board):
            each.mkdir()
        outside = folder / "outside.tv"
        outside.write_bytes(compose_run_file(CANARY, wall_time=time.time()))
        (self.runs / "link.tv").symlink_to(outside)
        good = compose_run_file("innocent", wall_time=time.time(), global_step=float(GOOD_STEP))
        (self.runs / "good.tv").write_bytes(good)
        self.options = TrainingOptions(
            self.runs, logdirs=(self.board,), globs=(f"{self.logs}/*.log",)
        )
        self.observer = Observer("1.2.3", roots=NOWHERE, name_host=lambda: "ada")
        self.numbers = itertools.count()

    def read(self, write):
        """Return a collector to close, and a function that reads an input and returns output."""
        collector = TrainingCollector(TrainingSource(self.options, roots=Roots()))

        def take(data):
            number = next(self.numbers)
            write(number, data)
            reading = collector.read(time.monotonic() + 5)
            assert "innocent" in {rank.run for rank in reading.ranks}
            if number % VIEWED == 0:
                picture = show_reading(reading, collector, self.observer)
                (innocent,) = [run for run in picture.runs if run.name == "innocent"]
                assert innocent.step == GOOD_STEP
            return str(reading) + str(collector.express(reading))

        return closing(collector), take


@pytest.fixture
def stage(tmp_path):
    """Write the files of a machine; the valid run stays alive for the whole round."""
    made = Stage(tmp_path)
    with holding(made.runs / "good.tv", user=os.getuid()):
        yield made


def test_no_run_file_costs_a_scrape(stage):
    """Damaged run files, half of them with valid checksums, do not break the valid run."""

    def write(number, data):
        sealed = seal(data) if number % 2 else data
        (stage.runs / f"{number % FILES}.tv").write_bytes(sealed)

    # No file has the name of the valid run, because a newer file of the same user would replace it.
    files = [*map(compose, range(4))]
    closing_it, take = stage.read(write)
    with closing_it:
        fuzz("run files", Mutations(files, [b"run", b"../outside"]), take)


def compose(rank):
    """Return a run file with free metrics and last words; the state depends on the rank."""
    state = (State.RUNNING, State.RUNNING, *list(State)[-2:])[rank]
    data = bytearray(
        compose_run_file("bert", rank=rank, state=state, wall_time=time.time(), names=2.0)
    )
    for at, name in ((NAMES_AT, ("accuracy", "validation")), (NAMES_AT + 64, ("iou", ""))):
        data[at : at + 64] = encode_name(*name)
    words = encode_last_words("OutOfMemoryError")
    data[LAST_WORDS_AT : LAST_WORDS_AT + len(words)] = words
    return bytes(data)


def seal(data):
    """Return the run file with valid checksums, if its offsets leave room for them."""
    file = bytearray(data[:16384].ljust(16384, b"\0"))
    struct.pack_into("<I", file, 12, zlib.crc32(file[16:LAST_WORDS_AT]))
    for at, slot_bytes in ((STEP_AT, STEP_SLOT_BYTES), (STATE_AT, STATE_SLOT_BYTES)):
        used = struct.unpack_from("<Q", file, at + 8)[0]
        if used < slot_bytes // 8:
            crc = zlib.crc32(file[at : at + 8 * used])
            struct.pack_into("<Q", file, at + 8 * used, crc)
    return bytes(file)


def test_no_log_costs_a_scrape(stage):
    """Damaged logs that grow, are rewritten or are rotated do not break the valid run."""

    def write(number, data):
        path = stage.logs / f"{number % FILES}.log"
        with path.open("wb" if number % 5 == 0 else "ab") as file:
            file.write(data)
        if number % 7 == 0:
            path.rename(path.with_suffix(".log.1"))

    corpus = [path.read_bytes() for path in sorted(FIXTURES.glob("*.log"))]
    closing_it, take = stage.read(write)
    with closing_it:
        fuzz("logs", Mutations(corpus, [b"loss", b"step", b"Epoch", b"innocent"]), take)


def test_no_event_file_costs_a_scrape(stage):
    """Damaged event files, half of them with valid record checksums, do not break the valid run."""

    def write(number, data):
        path = stage.board / f"run{number % FILES}/events.out.tfevents.1700000000.box.1.0"
        path.parent.mkdir(exist_ok=True)
        content = b"".join(map(make_record, data.split(SPLIT))) if number % 2 else data
        with path.open("wb" if number % 5 == 0 else "ab") as file:
            file.write(content)

    closing_it, take = stage.read(write)
    with closing_it:
        fuzz("event files", Mutations([event_file(), SPLIT.join(events())], [SPLIT]), take)


SPLIT = b"\0--\0"


def events():
    """Return events as the writers of TensorBoard encode them."""
    now = time.time()
    double = b"\x08\x02\x32\x08" + struct.pack("<d", 0.5)
    return [
        make_event(now, step, value)
        for step in (0, 1, 500)
        for value in (
            *(make_scalar("train/loss", 0.5), make_tensor("eval/loss", double)),
            *(make_scalar("epoch", 1.0), make_scalar("train_runtime", 60.0)),
        )
    ]


def event_file():
    """Return an event file with these events."""
    return b"".join(map(make_record, events()))
