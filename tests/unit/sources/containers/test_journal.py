"""Tests for the journal of deaths under unfavorable conditions."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.containers.evidence import Evidence, Host
from trainvitals.sources.containers.journal import Journal, default_journal
from trainvitals.verdicts.causes.judge import judge


def write(journal: Journal, evidence: Evidence) -> Path:
    """Write a record of evidence and its verdict, and return the record's path."""
    return journal.write(evidence, judge(evidence))


@pytest.mark.parametrize(
    ("name", "id_", "ended", "expected"),
    [
        ("../../etc/x", "/../../root/y", 0.0, "19700101T000000.000Z-.._.._etc_x-_.._.._root_.json"),
        ("", "", None, "19700101T000000.000Z-unnamed-none.json"),
        ("a\nb\0é\udcff", "a1" * 32, -5.0, "19700101T000000.000Z-a_b___-a1a1a1a1a1a1.json"),
        ("n" * 999, "a1" * 32, 3e38, f"99991231T235959.000Z-{'n' * 96}-a1a1a1a1a1a1.json"),
    ],
)
def test_no_name_and_no_time_leads_out_of_the_folder(tmp_path, name, id_, ended, expected):
    """Any name, ID and time of a container result in a plain file name inside the folder."""
    journal = Journal(tmp_path / "deaths")
    path = write(journal, Evidence("container", name, id_, ended=ended, exit_code=1))
    assert path == tmp_path / "deaths" / expected
    assert [entry.path for entry in journal.read_entries()] == [path]


def test_a_name_of_a_process_that_is_no_text_is_written(tmp_path):
    """Invalid bytes in a process name are written as question marks."""
    journal = Journal(tmp_path)
    host = Host(1.0, biggest=(("py\udcff (7)", 5),))
    path = write(journal, Evidence("container", "train", host=host, exit_code=1))
    assert "py? (7)" in path.read_text()


def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path):
    """If a record cannot be written, the error names the file, and no temporary file remains."""
    program = f"""
import resource, signal, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from trainvitals.sources.containers.evidence import Evidence
from trainvitals.verdicts.causes.judge import judge
from trainvitals.errors import SourceError
from trainvitals.sources.containers.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
evidence = Evidence("container", "train", exit_code=1)
try:
    Journal(Path({str(tmp_path / "deaths")!r})).write(evidence, judge(evidence))
except SourceError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.startswith(f"cannot write {tmp_path}/deaths/19700101T000000.000Z-train-none.json: ")
    assert "--containers.journal" in said
    assert list((tmp_path / "deaths").iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100


def test_a_journal_that_is_no_folder_is_told_of(tmp_path):
    """A journal path that is a file raises an error; a missing folder is an empty journal."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match=f"cannot read {tmp_path}/file: Not a directory"):
        Journal(tmp_path / "file").read_entries()
    assert Journal(tmp_path / "none").read_entries() == ()


def test_of_many_bytes_the_oldest_go_and_the_newest_stays(tmp_path):
    """The newest record is kept even if it alone exceeds the size limit of the journal."""
    journal = Journal(tmp_path, most_bytes=3000)
    for number in range(3):
        log = (json.dumps("x" * 2000),)
        write(journal, Evidence("container", f"job-{number}", ended=number * 60.0, log=log))
    assert [entry.evidence.name for entry in journal.read_entries()] == ["job-2"]
    names = [path.name for path in tmp_path.iterdir()]
    assert names == ["19700101T000200.000Z-job-2-none.json"]


def test_the_usual_folder_is_named_by_the_environment(monkeypatch):
    """`TRAINVITALS_JOURNAL_DIR` takes precedence over the default folders of root and users."""
    assert default_journal({"TRAINVITALS_JOURNAL_DIR": "/j"}) == Path("/j")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_journal({}) == Path("/var/lib/trainvitals/deaths")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_journal({"XDG_STATE_HOME": "/s"}) == Path("/s/trainvitals/deaths")
