"""Tests for the launch notes of `trainvitals run`: their validation, and when they are removed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sources.runs.trainer import compose_run_file
from trainvitals.sources.runs.deaths import DeathRegister
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.endings import Ending, write_ending
from trainvitals.sources.runs.history import read_run_history
from trainvitals.sources.runs.launches import (
    Launch,
    encode_launch,
    find_launch,
    read_launches,
    read_output,
)
from trainvitals.sources.runs.owners import Users

LAUNCH = Launch(
    name="bert",
    runs=("bert", "eval"),
    started=1000.0,
    ended=1060.5,
    exit_code=3,
    error="Traceback\nValueError: x",
    log="/logs/out.log",
    log_start=7,
    owner=os.geteuid(),
    thread_error="Traceback\nKeyError: 1",
    pids=(71, 72),
)
OTHER_USER = 54321


def write(directory: Path, data: bytes, name: str = "run.1.aa.launch") -> Path:
    """Write a launch note."""
    path = directory / name
    path.write_bytes(data)
    return path


def test_a_note_is_read_as_it_was_written(tmp_path):
    """A launch note is read with all its values, and its owner is the owner of the file."""
    write(tmp_path, encode_launch(LAUNCH))
    assert read_launches(tmp_path) == (LAUNCH,)


@pytest.mark.parametrize(
    ("member", "value"),
    [("format", 2), ("started", None), ("started", "1"), ("started", True), ("started", 5e9)],
)
def test_a_note_without_its_essentials_is_left_aside(tmp_path, member, value):
    """A note of another format or without a valid start time is ignored."""
    write(tmp_path, json.dumps(json.loads(encode_launch(LAUNCH)) | {member: value}).encode())
    assert read_launches(tmp_path) == ()


@pytest.mark.parametrize(
    ("member", "value", "attribute", "expected"),
    [
        ("exit_code", 256, "exit_code", None),
        ("exit_code", True, "exit_code", None),
        ("signal", 65, "signal", None),
        ("signal", 0, "signal", None),
        ("log", "relative", "log", None),
        ("log_start", -1, "log_start", 0),
        ("error", "x" * 16385, "error", None),
        ("thread_error", 1, "thread_error", None),
        ("pids", [1, 0, -1, True, "7", 9], "pids", (1, 9)),
        ("pids", 7, "pids", ()),
        ("runs", "bert", "runs", ()),
        ("runs", [1, "a\nb"], "runs", ("a_b",)),
        ("ended", float("nan"), "ended", None),
    ],
)
def test_a_value_out_of_bounds_is_unknown(tmp_path, member, value, attribute, expected):
    """A value outside its bounds is read as unknown, and the other values of the note are kept."""
    write(tmp_path, json.dumps(json.loads(encode_launch(LAUNCH)) | {member: value}).encode())
    [launch] = read_launches(tmp_path)
    assert getattr(launch, attribute) == expected
    assert launch.started == 1000.0


@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_survived(tmp_path_factory, data):
    """A note that contains arbitrary bytes is ignored."""
    directory = tmp_path_factory.mktemp("runs")
    write(directory, data)
    assert read_launches(directory) == ()


def test_links_pipes_and_large_files_are_not_read(tmp_path):
    """Symbolic links, pipes and notes over 64 KiB are ignored; a pipe would block the reader."""
    target = tmp_path / "elsewhere"
    target.write_bytes(encode_launch(LAUNCH))
    directory = tmp_path / "runs"
    directory.mkdir()
    (directory / "run.1.aa.launch").symlink_to(target)
    os.mkfifo(directory / "run.2.aa.launch")
    write(directory, encode_launch(LAUNCH) + b" " * 65536, "run.3.aa.launch")
    assert read_launches(directory) == ()
    assert read_launches(tmp_path / "missing") == ()


def test_only_the_users_that_count_are_read(tmp_path):
    """Launch notes are read only if their owner is one of the selected users."""
    write(tmp_path, encode_launch(LAUNCH))
    assert read_launches(tmp_path, Users(((OTHER_USER, OTHER_USER),))) == ()


def test_a_launch_belongs_to_later_runs_of_its_user():
    """A run belongs to its user's last launch that started before the run file was created."""
    later = replace(LAUNCH, started=2000.0)
    launches = (later, LAUNCH)
    assert find_launch(launches, "bert", LAUNCH.owner, 2001.0) is later
    assert find_launch(launches, "eval", LAUNCH.owner, 1500.0) is LAUNCH
    assert find_launch(launches, "bert", OTHER_USER, 2001.0) is None
    assert find_launch(launches, "other", LAUNCH.owner, 2001.0) is None
    assert find_launch(launches, "bert", LAUNCH.owner, 900.0) is None


def test_the_log_is_read_from_where_the_command_began(tmp_path):
    """The output of earlier commands and overwritten versions of a progress bar are left out."""
    log = tmp_path / "out.log"
    log.write_bytes(b"before\n 1%\r 2%\r 3%\r\nlast\n")
    launch = replace(LAUNCH, log=str(log))
    assert read_output(launch) == " 3%\nlast\n"
    assert read_output(replace(launch, log=None)) is None
    assert read_output(replace(launch, log=str(tmp_path))) is None


def test_a_log_of_another_user_is_not_read(tmp_path):
    """A log is read only if it belongs to the note's owner, as root may read all users' files."""
    log = tmp_path / "out.log"
    log.write_bytes(b"secret\n")
    assert read_output(replace(LAUNCH, log=str(log), log_start=0, owner=OTHER_USER)) is None


def test_a_launch_without_a_run_is_listed(tmp_path):
    """Only launches that have a name and no runs are listed separately."""
    write(tmp_path, encode_launch(replace(LAUNCH, runs=())), "run.1.aa.launch")
    write(tmp_path, encode_launch(LAUNCH), "run.2.aa.launch")
    write(tmp_path, encode_launch(replace(LAUNCH, name=None, runs=())), "run.3.aa.launch")
    assert read_run_history(tmp_path).launches == (replace(LAUNCH, runs=()),)


def test_the_exporter_removes_old_notes(tmp_path):
    """Notes that are older than one day and temporary files of killed launches are removed."""
    old = write(tmp_path, encode_launch(LAUNCH))
    hidden = write(tmp_path, b"", ".run.1.aa.launch.0badcafe")
    directory = RunDirectory(tmp_path)
    now = old.stat().st_mtime
    directory.read(now)
    directory.discard(now + 86000)
    assert old.exists()
    directory.discard(now + 87000)
    assert not old.exists()
    assert not hidden.exists()


def test_a_running_exporter_adopts_what_the_launcher_notes_later(tmp_path):
    """The ending that the launcher notes replaces an unknown ending that was reported before."""
    path = tmp_path / "bert.0.4000000.aa.tv"
    path.write_bytes(compose_run_file("bert"))
    directory, deaths = RunDirectory(tmp_path), DeathRegister()
    [file] = directory.read(1000.0).files
    assert not file.liveness.is_alive
    assert deaths.find_ending("key", file, 1000.0, (), run="bert").reason == "unknown"
    told = Ending("signal", None, 9, None, 999.0, "The kernel says so.")
    write_ending(path, told)
    found = deaths.find_ending("key", file, 1001.0, (), run="bert")
    assert (found.reason, found.signal) == ("signal", 9)
    assert deaths.count_exits("bert")["signal"] == 1
