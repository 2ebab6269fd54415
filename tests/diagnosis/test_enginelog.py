"""What an engine logs of itself."""

import os

import pytest

from trainvitals.diagnosis.dates import DatedLine, read_stamp
from trainvitals.diagnosis.enginelog import parse_engine_log, read_engine_log

# 2026-11-21 22:00:07.500 UTC
WHEN = 1_795_298_407.5
RECORDED = """\
time="2026-11-21T22:00:06.100000000Z" level=info msg="ignoring event" container=4f1e0c5ad1f0
time="2026-11-21T22:00:07.500000000Z" level=warning msg="cleaning up after shim disconnected" id=4f
time="2026-11-21T22:00:07.500000000Z" level=info msg="Container failed to exit within 2s of signal 15 - using the force" container=4f
Nov 21 22:00:08 gpu dockerd[77]: time="2026-11-21T23:00:07.5+01:00" level=error msg="password=geheim1234"
2026-11-21T22:00:07.5+0000 gpu dockerd[77]: fatal error: all goroutines are asleep
2026-11-21T22:00:08.5+0000 gpu dockerd[77]: goroutine 1 [chan receive]:
"""


def test_only_what_tells_of_trouble_is_kept():
    """Warnings, errors and a stop by force; not what each end leaves. Secrets are masked."""
    assert parse_engine_log(RECORDED) == (
        DatedLine(
            WHEN,
            'info: msg="Container failed to exit within 2s of signal 15 - using the force" container=4f',
        ),
        DatedLine(WHEN, 'error: msg="password=***"'),
        DatedLine(
            WHEN,
            "2026-11-21T22:00:07.5+0000 gpu dockerd[77]: fatal error: all goroutines are asleep",
        ),
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T22:00:07.5Z", WHEN),
        ("2026-11-21T23:00:07.500000000+01:00 x", WHEN),
        ("2026-11-21 22:00:07,500+0000 x", WHEN),
        ("2026-11-21T22:00:07", None),
        ("2026-13-21T22:00:07Z", None),
        ("yesterday", None),
    ],
)
def test_a_time_is_read_with_its_zone(text, seconds):
    """Docker's and journald's forms; a time without a zone is none."""
    assert read_stamp(text) == seconds


def test_the_log_file_is_read_where_there_is_one(tmp_path):
    """`/var/log/docker.log` goes before the journal."""
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "var/log/docker.log").write_text(RECORDED)
    lines, gap = read_engine_log(WHEN, rootfs=tmp_path)
    assert (len(lines), gap) == (3, None)


def test_neither_journal_nor_file_is_a_gap(tmp_path):
    """It says what would be read, and how to have it."""
    lines, gap = read_engine_log(WHEN, rootfs=tmp_path)
    assert lines == ()
    assert (gap.what, gap.why) == (
        "the engine's log",
        "there is no journal here, and no /var/log/docker.log",
    )


def write_program(path, text):
    """Write a program and give a way to find it."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return lambda _: str(path)


@pytest.mark.skipif(os.path.exists("/var/log/docker.log"), reason="has a log file of its own")  # noqa: PTH110 - a decorator
def test_the_journal_is_asked_around_the_time(tmp_path):
    """Its units and the two minutes around are named; what it says against is the gap."""
    find = write_program(
        tmp_path / "a", f"echo \"$@\" >{tmp_path}/asked; cat <<'END'\n{RECORDED}END"
    )
    lines, gap = read_engine_log(WHEN, find=find)
    assert (len(lines), gap) == (3, None)
    asked = (tmp_path / "asked").read_text()
    assert "--unit=docker" in asked
    assert "--since=@1795298348 --until=@1795298468" in asked
    find = write_program(tmp_path / "b", "echo 'No journal files were found.' >&2; exit 1")
    lines, gap = read_engine_log(WHEN, find=find)
    assert (lines, gap.why) == ((), "No journal files were found.")
    assert "group systemd-journal" in gap.remedy
