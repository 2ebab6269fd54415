"""Tests for the CSV and JSON formats of snapshots."""

import csv
import gzip
import io
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.record.snapshots import WHOLE
from trainvitals.errors import ConfigurationError
from trainvitals.record.formats import (
    CsvFormat,
    JsonFormat,
    make_format,
    name_format,
)
from trainvitals.record.logfile import Console, LogFile
from trainvitals.record.numbers import list_numbers
from trainvitals.record.snapshot import Flows
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.host.filesystem import Filesystem, FilesystemReading, Space

MIB = 1 << 20
BUSY = replace(WHOLE, uptime_seconds=86_400.25, flows=Flows(3 * MIB, MIB / 2, None, 0.0))
# Calculated by hand from the snapshot: 48 of 64 GiB of memory, 2 of 8 GiB of swap, 71 of 80 GiB of
# GPU memory, 75 of 100 GiB of disk.
NUMBERS = {
    "uptime_seconds": 86_400.25,
    "cpu_percent": 12.4,
    "io_wait_pct": 3.0,
    "load_1m": 4.0,
    "memory_percent": 75.0,
    "memory_used_mb": 49_152.0,
    "memory_available_mb": 16_384.0,
    "memory_system_mb": 65_536.0,
    "swap_percent": 25.0,
    "swap_used_mb": 2048.0,
    "io_read_rate_mbps": 3.0,
    "io_write_rate_mbps": 0.5,
    "net_sent_mbps": 0.0,
    "processes": 412,
    "oom_kills": 1,
    "containers": 2,
    "containers_running": 1,
    "container_deaths": 1,
    "gpu_0_up": 1.0,
    "gpu_0_util": 97.0,
    "gpu_0_memory_util": 40.0,
    "gpu_0_memory_pct": 88.75,
    "gpu_0_memory_used_mb": 72_704.0,
    "gpu_0_memory_free_mb": 8192.0,
    "gpu_0_memory_total_mb": 81_920.0,
    "gpu_0_temp_c": 63.0,
    "gpu_0_power_w": 512.3,
    "gpu_1_up": 0.0,
    "disk_/_used_pct": 75.0,
    "disk_/_free_mb": 25_600.0,
}


@pytest.fixture(autouse=True)
def zone(monkeypatch):
    """Set the time zone to Central European Time for the test."""
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def rows_of(text):
    """Return the rows of a CSV text as dictionaries."""
    return list(csv.DictReader(io.StringIO(text)))


def test_the_numbers_of_a_snapshot():
    """The numbers of a snapshot are correct, and unknown numbers are absent."""
    assert list_numbers(BUSY) == pytest.approx(NUMBERS)
    assert list(list_numbers(BUSY)) == list(NUMBERS)


def test_a_row_of_csv(tmp_path):
    """A CSV file has a header and a row with the numbers of the snapshot."""
    file = LogFile(tmp_path / "run.csv")
    piece = CsvFormat().write(BUSY)
    file.append(piece.text, piece.head)
    file.close()
    (row,) = rows_of((tmp_path / "run.csv").read_text())
    assert row.pop("timestamp") == "2025-11-13T03:13:20.000+01:00"
    assert [row.pop(f"gpu_{number}_name") for number in (0, 1)] == ["H100", "H100"]
    assert {name: float(value) for name, value in row.items()} == pytest.approx(NUMBERS)
    assert row["gpu_0_util"] == "97"
    assert row["uptime_seconds"] == "86400.25"


def test_a_row_answers_the_query_of_nvidia_smi():
    """The CSV row has a column for each field of the documented nvidia-smi query."""
    query = "name temperature.gpu utilization.gpu utilization.memory memory.total memory.free memory.used"
    page = (Path(__file__).parents[3] / "docs/record.md").read_text(encoding="utf-8")
    pairs = {}
    for line in page.splitlines():
        fields, _, columns = line.strip("| ").partition(" | ")
        names = [re.findall(r"`([\w.]+)`", text) for text in (fields, columns)]
        if len(names[0]) == len(names[1]):
            pairs |= dict(zip(*names, strict=True))
    (device, *others) = WHOLE.accelerators.devices
    named = replace(device, identity=replace(device.identity, model='H100, "80GB"\nHBM3'))
    whole = replace(WHOLE, accelerators=AcceleratorsReading((named, *others)))
    piece = CsvFormat().write(whole)
    (row,) = rows_of(piece.head + piece.text)
    assert [row[pairs[field]] for field in query.split()] == [
        'H100, "80GB" HBM3', "63", "97", "40", "81920", "8192", "72704"
    ]  # fmt: skip


def append(path, *snapshots):
    """Append snapshots to a CSV file, like one run of the command."""
    file = LogFile(path, cuts_torn_line=True)
    format_ = make_format("csv", file.read_first_line(), str(path))
    for snapshot in snapshots:
        piece = format_.write(snapshot)
        file.append(piece.text, piece.head)
    file.close()


def test_a_file_is_continued_under_its_own_header(tmp_path):
    """A continued CSV file keeps its header, and cells of a missing device are empty."""
    path = tmp_path / "run.csv"
    append(path, BUSY)
    append(path, replace(BUSY, accelerators=AcceleratorsReading(())))
    first, second = rows_of(path.read_text())
    assert first["gpu_0_util"] == "97"
    assert second["gpu_0_util"] == ""
    assert second["cpu_percent"] == "12.4"


def test_a_new_device_begins_a_new_file(tmp_path):
    """A new device starts a new CSV file, and the old file is kept compressed."""
    path = tmp_path / "run.csv"
    append(path, replace(BUSY, accelerators=None), BUSY, replace(BUSY, accelerators=None))
    (old,) = rows_of(gzip.decompress((tmp_path / "run.csv.1.gz").read_bytes()).decode())
    assert "gpu_0_util" not in old
    assert [row["gpu_0_util"] for row in rows_of(path.read_text())] == ["97", ""]


def test_a_torn_line_goes(tmp_path):
    """An incomplete last line is removed before a new line is written."""
    path = tmp_path / "run.csv"
    append(path, BUSY, BUSY)
    os.truncate(path, path.stat().st_size - 20)
    append(path, BUSY)
    rows = rows_of(path.read_text())
    assert len(rows) == 2
    assert all(None not in row.values() for row in rows)


def test_a_torn_header_is_written_anew(tmp_path):
    """A CSV file with an incomplete header gets a new header."""
    path = tmp_path / "run.csv"
    path.write_text("timestamp,cpu_pe")
    append(path, BUSY)
    assert len(rows_of(path.read_text())) == 1


def test_text_of_somebody_else_is_not_cut(tmp_path):
    """In a text file, an incomplete last line is completed with a line feed, not removed."""
    path = tmp_path / "notes.txt"
    path.write_text("my note")
    file = LogFile(path)
    file.append("one\n")
    file.close()
    assert path.read_text() == "my note\none\n"


@pytest.mark.parametrize(
    ("name", "first"),
    [("csv", "step,timestamp\n"), ("csv", "=== text ===\n"), ("jsonl", "timestamp,cpu\n")],
)
def test_a_foreign_file_is_refused(name, first):
    """A file in another format is refused."""
    with pytest.raises(ConfigurationError, match="x: this is not a recording in the format"):
        make_format(name, first, "x")


def test_a_json_line():
    """A JSON line has all numbers and also nested details, such as processes and errors."""
    line = JsonFormat().write(BUSY).text
    assert line.count("\n") == 1
    document = json.loads(line)
    assert {name: document[name] for name in NUMBERS} == pytest.approx(NUMBERS)
    assert document["timestamp"] == "2025-11-13T03:13:20.000+01:00"
    assert document["accelerators"][0]["holders"][0] == {
        "pid": 4021,
        "name": "python",
        "container": "bert",
        "used_bytes": 70 << 30,
    }
    assert document["accelerators"][1]["state"] == "lost"
    assert document["container_list"][0]["last_death"]["reason"] == "oom-limit"
    assert [one["pid"] for one in document["top_processes"]] == [4021, 1]
    assert document["kernel"][1] == "Xid 79 of 0000:3b:00 GPU has fallen off the bus."
    assert document["not_read"] == ["disk: did not answer in time"]


def test_a_hostile_mount_point_makes_no_line():
    """A mount point with a line feed and a quote does not break the CSV header."""
    space = Space(100, 25, None, None, readonly=False)
    mount = Filesystem('/a\n"b', "x", "ext4", space, None, None)
    snapshot = replace(BUSY, filesystems=FilesystemReading((mount,), 0))
    piece = CsvFormat().write(snapshot)
    assert piece.head.count("\n") == 1
    assert rows_of(piece.head + piece.text)[0]['disk_/a "b_used_pct'] == "75"


def test_the_header_comes_once_to_the_standard_output(capfd):
    """On the standard output, the header is written once and again if columns are added."""
    console = Console()
    format_ = CsvFormat()
    for snapshot in (replace(BUSY, accelerators=None), replace(BUSY, accelerators=None), BUSY):
        piece = format_.write(snapshot)
        console.append(piece.text, piece.head)
    lines = capfd.readouterr().out.splitlines()
    assert [line.startswith("timestamp,") for line in lines] == [True, False, False, True, False]


@pytest.mark.parametrize(
    ("wanted", "path", "name"),
    [
        (None, None, "text"),
        (None, "-", "text"),
        (None, "a.CSV", "csv"),
        (None, "a.jsonl", "jsonl"),
        (None, "a.ndjson", "jsonl"),
        ("jsonl", "a.csv", "jsonl"),
    ],
)
def test_the_name_of_the_file_chooses_the_format(wanted, path, name):
    """The file name determines the format unless `--format` is given."""
    assert name_format(wanted, path) == name


def test_memory_that_the_kernel_does_not_report_has_no_number():
    """Memory numbers that the kernel does not report are absent, and the others are present."""
    assert BUSY.memory is not None
    memory = replace(BUSY.memory, available_bytes=None, swap_free_bytes=None)
    numbers = dict(list_numbers(replace(BUSY, memory=memory)))
    assert NUMBERS.keys() - numbers.keys() == {
        "memory_percent",
        "memory_used_mb",
        "memory_available_mb",
        "swap_percent",
        "swap_used_mb",
    }
