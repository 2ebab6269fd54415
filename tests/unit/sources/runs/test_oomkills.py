"""Tests for the OOM kill counts of control groups of versions 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.sources.runs.oomkills import OomKills, find_oom_file


def write(path: Path, text: str) -> None:
    """Write a file and create its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("0::/job/step\n", "cg/job/step/memory.events"),
        ("0::/\n", "cg/memory.events"),
        ("4:memory:/job\n0::/\n", "cg/memory/job/memory.oom_control"),
        ("9:cpu,memory:/job\n", "cg/memory/job/memory.oom_control"),
        ("1:name=systemd:/job\n", None),
        ("0::/../outside\n", None),
        ("", None),
    ],
)
def test_the_file_is_found_for_both_versions(tmp_path: Path, lines, expected):
    """Version 1 is preferred if it controls memory; a group outside the hierarchy is ignored."""
    write(tmp_path / "7/cgroup", lines)
    found = find_oom_file(7, procfs=tmp_path, cgroupfs=tmp_path / "cg")
    assert found == (None if expected is None else str(tmp_path / expected))


def test_a_process_that_is_gone_has_no_group(tmp_path: Path):
    """A PID without a directory in `/proc` has no control group file."""
    assert find_oom_file(7, procfs=tmp_path) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n", 1),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", 12),
        ("oom_kill_disable 0\nunder_oom 0\n", None),
        ("oom_kill many\n", None),
    ],
)
def test_kills_are_counted(tmp_path: Path, text, expected):
    """The line `oom_kill` is read, and lines whose names begin with `oom_kill` are ignored."""
    write(tmp_path / "memory.events", text)
    kills = OomKills()
    assert kills.count(str(tmp_path / "memory.events")) == expected
    kills.close()


def test_a_round_reads_once_and_the_next_anew(tmp_path: Path):
    """Within a round, `count` reads a file once, and `count_now` always reads the file."""
    path = tmp_path / "memory.events"
    write(path, "oom_kill 1\n")
    kills = OomKills()
    kills.begin()
    assert kills.count(str(path)) == 1
    write(path, "oom_kill 2\n")
    assert kills.count(str(path)) == 1
    assert kills.count_now(str(path)) == 2
    kills.begin()
    assert kills.count(str(path)) == 2
    kills.close()


def test_a_missing_file_is_none_until_it_comes(tmp_path: Path):
    """A group without a counter file has no count, and at most 64 files are open at a time."""
    kills = OomKills()
    assert kills.count_now(str(tmp_path / "memory.events")) is None
    for number in range(65):
        write(tmp_path / f"{number}/memory.events", "oom_kill 5\n")
    counts = [kills.count_now(str(tmp_path / f"{n}/memory.events")) for n in range(65)]
    assert counts == [5] * 64 + [None]
    kills.begin()
    kills.begin()
    assert kills.count_now(str(tmp_path / "64/memory.events")) == 5
    kills.close()
