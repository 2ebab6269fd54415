"""Extreme numbers in run files, logs and event files, through every view.

Run files, logs, event files and the answers of Prometheus may hold any number. No number may make a
view fail or a document be refused, and the other runs must still be shown.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.metrics.collectors.test_training_files import run_files
from tests.unit.sources.runs.records import in_length, make_event, make_record, make_tensor
from tests.unit.sources.runs.trainer import compose_run_file
from trainvitals.http.endpoints import describe_readings
from trainvitals.http.health import judge_health
from trainvitals.metrics.collector_metrics import Report
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.exposition import Exposition
from trainvitals.runfile import STATE, STEP
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.reading import RunsReading
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource
from trainvitals.verdicts.machine import Alerts
from trainvitals.verdicts.thresholds import ThresholdsFile
from trainvitals.views.machine.document import read_document, write_document
from trainvitals.views.machine.observer import Observer
from trainvitals.views.machine.picture import Picture
from trainvitals.views.page.page import PageWriter
from trainvitals.views.terminal.frame import Source, draw_screen, write_all
from trainvitals.views.terminal.terminal import make_console
from trainvitals.views.terminal.view import View

NOWHERE = Roots(Path("/nonexistent/proc"), Path("/nonexistent/sys"), Path("/nonexistent"))
EXTREMES = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 1e30, -1e30, 3.6e38, 1e200, 5e-324, 1e-300),
    *(0.0, -0.0, 1.0, -1.0, 2.0**31, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e15, 4e9, 1e10),
)
NUMBERS = st.sampled_from(EXTREMES)
# Numbers as programs write them, and in other notations.
TEXTS = st.sampled_from(
    [*map(repr, EXTREMES), "1e9999", "-1e9999", "9" * 39, "9" * 5000, "1,000,000", "1e-9999", "12%"]
)
GOOD_STEP = 12
FIXED = {"sequence", "used", "mono_ns", "wall_time", "state"}
THRESHOLDS = ThresholdsFile()  # parsed once
WRITER = PageWriter()
SOURCE = Source("exporter at http://gpu-07:9200")
LINES = (
    "{{'loss': {}, 'grad_norm': {}, 'learning_rate': {}, 'epoch': {}}}",
    "step {} loss: {} accuracy: {} lr: {}",
    "Epoch {}/{}: train_loss={} val_loss={}",
    "Epoch 3: 50%|##        | {}/{} [00:00<00:00, 50.00it/s, train_loss={}, val_loss={}]",
    "iteration {}/ {} | elapsed time per iteration (ms): {} | lm loss: {}",
    "{{'train_runtime': {}, 'train_samples_per_second': {}, 'train_steps_per_second': {}, 'x': {}}}",
)


@st.composite
def logs(draw: st.DrawFn) -> str:
    """Draw the lines of a log."""
    lines = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=4))
    return "".join(line.format(*draw(st.tuples(*[TEXTS] * 4))) + "\n" for line in lines)


@st.composite
def event_files(draw: st.DrawFn) -> bytes:
    """Draw an event file."""
    data = b""
    for _ in range(draw(st.integers(1, 4))):
        step = draw(st.sampled_from([0, 1, 2**31, 2**53, 2**63 - 1, -1, -(2**63)]))
        tag = draw(
            st.sampled_from(["train/loss", "eval/loss", "loss", "epoch", "samples_per_second"])
        )
        value = draw(NUMBERS)
        double = b"\x08\x02" + in_length(0x32, struct.pack("<d", value))
        data += make_record(make_event(draw(NUMBERS), step, make_tensor(tag, double)))
    return data


def see(reading: RunsReading, now: float) -> SimpleNamespace:
    """Return the snapshot with this reading that a scrape passes to the views."""
    report = Report(
        collector="training",
        success=True,
        answered=True,
        seconds=0.01,
        reason=None,
        timeouts=0,
        omitted=0,
        last_success=now,
    )
    return SimpleNamespace(readings={"training": reading}, reports=(report,))


def show(picture: Picture) -> None:
    """Render a picture in every view."""
    document = write_document(picture)
    json.loads(document, parse_constant=pytest.fail)
    read = read_document(document)
    for each in (picture,) if read == picture else (picture, read):
        WRITER.write_fragment(each)
        console = make_console(io.StringIO(), None, width=120)
        draw_screen(console, each, View(), SOURCE, width=120, height=40)
        write_all(console, each, View(), SOURCE, width=None)


def view(collector: TrainingCollector, observer: Observer) -> Picture:
    """Read the runs and render them in every view."""
    reading = collector.read(time.monotonic() + 5)
    assert reading.complaint is None
    return show_reading(reading, collector, observer)


def show_reading(reading: RunsReading, collector: TrainingCollector, observer: Observer) -> Picture:
    """Render a reading in every view, and return its picture."""
    now = time.time()
    blocks = collector.express(reading)
    for exposition in (Exposition(), Exposition(openmetrics=True)):
        exposition.write(blocks)
    seen = see(reading, now)
    observer.note(seen, now)
    json.dumps(describe_readings(seen), allow_nan=False)
    health = judge_health(seen, {}, observer.judge(seen, now, Alerts()), now=now)
    json.dumps(health.document, allow_nan=False)
    picture = observer.picture(seen, now)
    show(picture)
    return picture


def make_observer() -> Observer:
    """Return an observer without a past."""
    return Observer("1.2.3", roots=NOWHERE, name_host=lambda: "ada", thresholds=THRESHOLDS)


def watch(
    folder: Path, contents: Sequence[tuple[bytes, str, bytes]], names: tuple[str, str, str]
) -> Iterator[Picture]:
    """Yield the picture after each reading of a run directory, a log and an event file."""
    (folder / "runs").mkdir()
    (folder / "board/tb").mkdir(parents=True)
    good = compose_run_file("innocent", wall_time=time.time(), global_step=float(GOOD_STEP))
    (folder / "runs/good.tv").write_bytes(good)
    options = TrainingOptions(
        folder / "runs", logdirs=(folder / "board",), globs=(f"{folder}/*.log",)
    )
    observer = make_observer()
    with closing(TrainingCollector(TrainingSource(options, roots=Roots()))) as collector:
        for content in contents:
            for name, data in zip(names, content, strict=True):
                part = data.encode() if isinstance(data, str) else data
                with (folder / name).open("wb" if name.endswith(".tv") else "ab") as file:
                    file.write(part)
            yield view(collector, observer)


@pytest.mark.untraced
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(max_examples=40)
@given(st.lists(st.tuples(run_files(), logs(), event_files()), min_size=1, max_size=3))
def test_no_number_from_outside_costs_a_view(tmp_path_factory, contents):
    """Whatever numbers a run file, a log and an event file contain, another run is still shown."""
    folder = tmp_path_factory.mktemp("numbers")
    names = ("runs/evil.tv", "evil.log", "board/tb/events.out.tfevents.1700000000.box.1.0")
    try:
        for picture in watch(folder, contents, names):
            (innocent,) = [run for run in picture.runs if run.name == "innocent"]
            assert innocent.step == GOOD_STEP
    finally:
        shutil.rmtree(folder)


def write_extreme(run: str, rank: int, **words: float) -> bytes:
    """Return a run file that was just written on another boot, so that its age decides."""
    return compose_run_file(
        run, rank=rank, boot_id=b"another machine.", wall_time=time.time(), **words
    )


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize(("word", "ranks"), [("loss", 1), ("loss", 2), ("others", 2)])
def test_a_run_of_one_number_is_shown(tmp_path: Path, word: str, ranks: int, value: float):
    """A run with an extreme number as its loss, or in all other words, is shown."""
    names = [
        each
        for each in (*STEP, *STATE)
        if each not in FIXED and (each == "loss") == (word == "loss")
    ]
    (tmp_path / "runs").mkdir()
    for rank in range(ranks):
        data = write_extreme("evil", rank, **dict.fromkeys(names, value))
        (tmp_path / f"runs/{rank}.tv").write_bytes(data)
    observer = make_observer()
    source = TrainingSource(TrainingOptions(tmp_path / "runs"), roots=Roots())
    with closing(TrainingCollector(source)) as collector:
        for _ in range(3):
            picture = view(collector, observer)
    (evil,) = picture.runs
    assert (evil.name, evil.ranks, evil.ended) == ("evil", ranks, None)
