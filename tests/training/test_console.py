"""The console block, as published."""

import io
import sys

import pytest

from trainvitals.training.console import Console, write_alerts, write_block, write_cleared

METRICS = {
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
    """Letter by letter."""
    assert write_block(50, METRICS) == (
        "[Resources] Batch 50:\n"
        "  GPU 0: 87.3% util, 8192/16384 MB (50%), 72°C\n"
        "  CPU: 45.2% (process: 180.5%)\n"
        "  Memory: 8192/16384 MB available (50%)\n"
        "  I/O: Read 75.2 MB/s, Write 6.3 MB/s, Wait 5.3%\n"
    )


def test_the_alerts_are_the_published_ones():
    """Letter by letter, below an empty line."""
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
    """One for each alert, none where there is none."""
    assert write_cleared(["High memory usage: 85.0% (threshold: 90%)"]) == (
        "[Resources] cleared: High memory usage: 85.0% (threshold: 90%)\n"
    )
    assert write_cleared([]) == ""


def test_what_is_unknown_is_left_out():
    """Parts of a line, and the line where nothing of it is known."""
    metrics = {"gpu_1_temp_c": 34.0, "cpu_percent": 45.2, "io_wait_pct": 5.3}
    assert write_block(0, metrics) == (
        "[Resources] Batch 0:\n  GPU 1: 34°C\n  CPU: 45.2%\n  I/O: Wait 5.3%\n"
    )
    assert write_block(0, {}) == "[Resources] Batch 0:\n"


def test_every_gpu_has_a_line():
    """In the order of their numbers."""
    metrics = {"gpu_10_util": 3.0, "gpu_2_util": 2.0, "gpu_0_util": 1.0}
    assert write_block(0, metrics).splitlines()[1:] == [
        "  GPU 0: 1.0% util",
        "  GPU 2: 2.0% util",
        "  GPU 10: 3.0% util",
    ]


def test_the_available_share_of_memory_is_shown():
    """6 of 24 GB are a quarter."""
    metrics = {"memory_available_mb": 6000.0, "memory_system_mb": 24000.0, "memory_percent": 75.0}
    assert "  Memory: 6000/24000 MB available (25%)\n" in write_block(0, metrics)


def test_it_goes_to_standard_output(capsys):
    """And nothing to standard error."""
    Console().show("text\n")
    assert capsys.readouterr() == ("text\n", "")


def test_a_terminal_without_such_signs_gets_question_marks(monkeypatch):
    """An ASCII terminal does not stop the console."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Console().show("72°C\n")
    assert raw.getvalue() == b"72?C\n"


@pytest.mark.parametrize("broken", ["closed", "none"])
def test_a_console_that_is_gone_is_given_up(monkeypatch, broken):
    """Standard output may be closed, or there may be none."""
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream if broken == "closed" else None)
    console = Console()
    console.show("text\n")
    monkeypatch.setattr(sys, "stdout", fresh := io.StringIO())
    console.show("text\n")
    assert fresh.getvalue() == ""


def test_it_goes_where_it_is_told():
    """The keyword takes the text."""
    texts = []
    Console(texts.append).show("text\n")
    assert texts == ["text\n"]
