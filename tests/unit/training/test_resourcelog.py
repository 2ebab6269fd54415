"""The console lines and the CSV file of each epoch."""

import csv
import io
import logging
import re
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.training.resourcelog import (
    Console,
    Timeseries,
    order_columns,
    write_alerts,
    write_block,
    write_cleared,
)

READING = {
    "gpu_0_util": 87.3,
    "gpu_0_memory_used_mb": 8192.0,
    "gpu_0_memory_total_mb": 16384.0,
    "gpu_0_temp_c": 72.0,
    "cpu_percent": 45.2,
    "cpu_process_percent": 180.5,
    "memory_available_mb": 8192.0,
    "memory_system_mb": 16384.0,
    "io_read_rate_mbps": 75.2,
    "io_write_rate_mbps": 6.3,
    "io_wait_pct": 5.3,
}


def test_the_block_is_the_published_one():
    """The printed block matches the documented format exactly."""
    assert write_block(50, READING) == (
        "[Resources] Batch 50:\n"
        "  GPU 0: 87.3% util, 8192/16384 MB (50%), 72°C\n"
        "  CPU: 45.2% (process: 180.5%)\n"
        "  Memory: 8192/16384 MB available (50%)\n"
        "  I/O: Read 75.2 MB/s, Write 6.3 MB/s, Wait 5.3%\n"
    )


def test_the_alerts_are_the_published_ones():
    """The printed alerts match the documented format exactly, below an empty line."""
    texts = [
        "GPU underutilized: 42.3% (threshold: 50%)",
        "High memory usage: 92.1% (threshold: 90%)",
    ]
    assert write_alerts(texts) == (
        "\n[Resources] ⚠️ ALERTS:\n"
        "  - GPU underutilized: 42.3% (threshold: 50%)\n"
        "  - High memory usage: 92.1% (threshold: 90%)\n"
    )


def test_what_is_over_has_a_line():
    """Each cleared alert is printed on a line, and nothing is printed without one."""
    assert write_cleared(["High memory usage: 85.0% (threshold: 90%)"]) == (
        "[Resources] cleared: High memory usage: 85.0% (threshold: 90%)\n"
    )
    assert write_cleared([]) == ""


def test_what_is_unknown_is_left_out():
    """Unknown values are omitted, as are lines of which no value is known."""
    metrics = {"gpu_1_temp_c": 34.0, "cpu_percent": 45.2, "io_wait_pct": 5.3}
    assert write_block(0, metrics) == (
        "[Resources] Batch 0:\n  GPU 1: 34°C\n  CPU: 45.2%\n  I/O: Wait 5.3%\n"
    )
    assert write_block(0, {}) == "[Resources] Batch 0:\n"


def test_every_gpu_has_a_line():
    """Each GPU has a line, in the order of the GPU numbers."""
    metrics = {"gpu_10_util": 3.0, "gpu_2_util": 2.0, "gpu_0_util": 1.0}
    assert write_block(0, metrics).splitlines()[1:] == [
        "  GPU 0: 1.0% util",
        "  GPU 2: 2.0% util",
        "  GPU 10: 3.0% util",
    ]


def test_the_available_share_of_memory_is_shown():
    """6000 available of 24000 MB are printed as 25%."""
    metrics = {"memory_available_mb": 6000.0, "memory_system_mb": 24000.0, "memory_percent": 75.0}
    assert "  Memory: 6000/24000 MB available (25%)\n" in write_block(0, metrics)


def test_it_goes_to_standard_output(capsys):
    """The console writes to standard output and not to standard error."""
    Console().show("text\n")
    assert capsys.readouterr() == ("text\n", "")


def test_a_terminal_without_such_signs_gets_question_marks(monkeypatch):
    """On an ASCII terminal, other characters are replaced by question marks."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Console().show("72°C\n")
    assert raw.getvalue() == b"72?C\n"


@pytest.mark.parametrize("broken", ["closed", "none"])
def test_a_console_that_is_gone_is_given_up(monkeypatch, broken):
    """A closed or missing standard output causes no error and is not tried again."""
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream if broken == "closed" else None)
    console = Console()
    console.show("text\n")
    monkeypatch.setattr(sys, "stdout", fresh := io.StringIO())
    console.show("text\n")
    assert fresh.getvalue() == ""


def test_it_goes_where_it_is_told():
    """The console passes its text to the given function."""
    texts = []
    Console(texts.append).show("text\n")
    assert texts == ["text\n"]


METRICS = {
    "gpu_0_util": 85.3,
    "gpu_0_memory_pct": 50.0,
    "cpu_percent": 45.2,
    "memory_percent": 48.5,
    "io_read_rate_mbps": 75.2,
}
HEADER = "step,timestamp,gpu_0_util,gpu_0_memory_pct,cpu_percent,memory_percent,io_read_rate_mbps\n"


@pytest.fixture
def open_series(tmp_path):
    """Yield a function that makes time series in the test's directory, and close them after."""
    opened = []

    def make(directory=tmp_path, **settings):
        opened.append(Timeseries(directory, **settings))
        return opened[-1]

    yield make
    for series in opened:
        series.close()


@pytest.fixture
def utc(monkeypatch):
    """A local time zone of UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_file_is_the_published_one(tmp_path, utc, open_series):
    """A file has the documented header, ISO times without zone, and ordered columns."""
    series = open_series(tmp_path / "logs", now=lambda: 1759831200.7)
    series.append(3, 0, METRICS)
    series.append(3, 10, {**METRICS, "gpu_0_util": 87.12345})
    assert (tmp_path / "logs/epoch_3.csv").read_text() == (
        HEADER
        + "0,2025-10-07T10:00:00,85.3,50.0,45.2,48.5,75.2\n"
        + "10,2025-10-07T10:00:00,87.123,50.0,45.2,48.5,75.2\n"
    )


def test_other_ranks_have_files_of_their_own(tmp_path, open_series):
    """Rank 0 writes `epoch_0.csv`, and another rank adds its number to the name."""
    for rank in (0, 3):
        open_series(rank=rank).append(0, 0, METRICS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch_0.csv", "epoch_0.rank3.csv"]


def test_each_epoch_has_a_file(tmp_path, open_series):
    """A new epoch begins a new file."""
    series = open_series()
    for epoch in (0, 0, 1):
        series.append(epoch, 0, METRICS)
    assert len((tmp_path / "epoch_0.csv").read_text().splitlines()) == 3
    assert len((tmp_path / "epoch_1.csv").read_text().splitlines()) == 2


def test_columns_of_further_gpus_follow_and_then_all_others():
    """The first five columns are fixed, followed by those of further GPUs and by all others."""
    names = ["net_sent_mbps", "gpu_10_util", "gpu_1_memory_pct", "gpu_1_util", "gpu_0_temp_c"]
    assert order_columns(dict.fromkeys(names, 1.0)) == [
        *METRICS,
        "gpu_1_util",
        "gpu_1_memory_pct",
        "gpu_10_util",
        "gpu_0_temp_c",
        "net_sent_mbps",
    ]
    assert order_columns({}) == list(METRICS)


def test_the_header_is_fixed_when_the_file_is_made(tmp_path, open_series):
    """A missing value leaves an empty cell, and a new column begins with the next file."""
    series = open_series()
    series.append(0, 0, METRICS)
    series.append(0, 1, {"cpu_percent": 1.0, "net_sent_mbps": 2.0})
    series.append(1, 2, {"cpu_percent": 1.0, "net_sent_mbps": 2.0})
    first = (tmp_path / "epoch_0.csv").read_text().splitlines()
    assert first[0] + "\n" == HEADER
    assert re.fullmatch(r"1,[^,]+,,,1\.0,,", first[2])
    second = (tmp_path / "epoch_1.csv").read_text().splitlines()
    assert second[0] == HEADER.strip() + ",net_sent_mbps"
    assert re.fullmatch(r"2,[^,]+,,,1\.0,,,2\.0", second[1])


def test_a_file_that_is_there_is_continued_under_its_own_header(tmp_path, open_series):
    """An existing file is continued with its own columns, even if its last line is cut."""
    path = tmp_path / "epoch_0.csv"
    path.write_text("step,timestamp,memory_percent\n0,2025-10-07T10:00:00,48.5\n5,2025-10")
    open_series().append(0, 10, METRICS)
    lines = path.read_text().splitlines()
    assert lines[:3] == ["step,timestamp,memory_percent", "0,2025-10-07T10:00:00,48.5", "5,2025-10"]
    assert re.fullmatch(r"10,[^,]+,48\.5", lines[3])


def test_a_foreign_file_is_left_alone(tmp_path, caplog, open_series):
    """A file that is no resource log is not changed, and one warning is logged."""
    path = tmp_path / "epoch_0.csv"
    path.write_text("name,age\nx,3\n")
    series = open_series()
    with caplog.at_level(logging.WARNING):
        series.append(0, 0, METRICS)
        series.append(0, 1, METRICS)
        series.append(1, 2, METRICS)
    assert path.read_text() == "name,age\nx,3\n"
    assert len((tmp_path / "epoch_1.csv").read_text().splitlines()) == 2
    (record,) = caplog.records
    assert "the existing file is not a resource log" in record.getMessage()


def test_a_directory_that_cannot_be_made_costs_the_log_only(tmp_path, caplog, open_series):
    """If the directory cannot be made, one warning is logged."""
    (tmp_path / "logs").write_text("")
    series = open_series(tmp_path / "logs")
    with caplog.at_level(logging.WARNING):
        series.append(0, 0, METRICS)
        series.append(0, 1, METRICS)
    assert len(caplog.records) == 1


def test_a_line_that_finds_no_room_is_not_written_in_part(tmp_path, caplog, open_series):
    """On a full disk, no line is written in part."""
    series = open_series()
    series.append(0, 0, METRICS)
    whole = (tmp_path / "epoch_0.csv").read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, before[1]))
    try:
        with caplog.at_level(logging.WARNING):
            series.append(0, 1, METRICS)
            series.append(0, 2, METRICS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "epoch_0.csv").read_bytes() == whole
    assert len(caplog.records) == 1


def test_no_descriptor_is_left(tmp_path, open_series):
    """`close` leaves no open file descriptor."""
    series = open_series()
    before = len(list(Path("/proc/self/fd").iterdir()))
    series.append(0, 0, METRICS)
    series.append(1, 0, METRICS)
    series.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_series_that_nobody_closes_closes_itself(tmp_path):
    """A deleted time series closes its file without a ResourceWarning."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        series = Timeseries(tmp_path)
        series.append(0, 0, METRICS)
        del series
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@settings(max_examples=50)
@given(
    header=st.binary(max_size=200)
    | st.binary(max_size=50).map(lambda tail: b"step,timestamp" + tail),
    metrics=st.dictionaries(
        st.sampled_from([*METRICS, "gpu_1_util", "other"]), st.floats(), max_size=7
    ),
)
def test_whatever_is_there_is_kept(tmp_path_factory, header, metrics):
    """The existing content of a file is kept, and a new line has as many cells as the header."""
    directory = tmp_path_factory.mktemp("logs")
    path = directory / "epoch_0.csv"
    path.write_bytes(header)
    logging.disable(logging.WARNING)
    try:
        series = Timeseries(directory)
        series.append(0, 0, metrics)
        series.close()
    finally:
        logging.disable(logging.NOTSET)
    data = path.read_bytes()
    assert data.startswith(header)
    if not header:
        first, second = csv.reader(data.decode().splitlines())
        assert len(first) == len(second) >= 7
