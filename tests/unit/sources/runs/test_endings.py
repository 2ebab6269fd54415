"""Tests for how the ending of a rank is determined, and of the note beside the run file."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.runfile import State
from trainvitals.sources.runs.endings import (
    Ending,
    determine_ending,
    read_ending,
    write_ending,
)
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.processes import Exit

KILLED = Exit(code=None, signal=9)
NOTE = {
    "format": 1,
    "reason": "signal",
    "exit_code": None,
    "signal": 9,
    "exception": None,
    "time": 1000.5,
    "evidence": "The kernel says that signal 9 (SIGKILL) killed its process.",
    "machine": {"memory_available_bytes": 4096.0},
}
ENDING = Ending(
    reason="signal",
    exit_code=None,
    signal=9,
    exception=None,
    time=1000.5,
    evidence="The kernel says that signal 9 (SIGKILL) killed its process.",
    machine={"memory_available_bytes": 4096.0},
)


def dead(exit_=None, *, oom_killed=False, evidence="lock"):
    """Return the liveness of a dead rank."""
    return Liveness(is_alive=False, evidence=evidence, exit=exit_, oom_killed=oom_killed)


@pytest.mark.parametrize(
    ("state", "words", "liveness", "expected", "evidence"),
    [
        (State.FINISHED, "", dead(Exit(1, None)), ("finished", 1, None, None), "it finished"),
        (State.ENDED, "", dead(Exit(0, None)), ("finished", 0, None, None), "interpreter ended"),
        (State.ENDED, "", dead(None), ("finished", None, None, None), "interpreter ended"),
        (State.ENDED, "", dead(Exit(3, None)), ("exception", 3, None, None), "exit code 3"),
        (State.ENDED, "", dead(Exit(None, 11)), ("signal", None, 11, None), "SIGSEGV"),
        (State.FINISHED, "", dead(KILLED, oom_killed=True), ("finished", None, 9, None), "run said"),
        (State.FAILED, "ValueError", dead(Exit(1, None)),
         ("exception", 1, None, "ValueError"), "ValueError ended it"),
        (State.FAILED, "", dead(), ("exception", None, None, None), "it failed"),
        (State.RUNNING, "", dead(KILLED, oom_killed=True), ("oom", None, 9, None), "hit this one"),
        (State.RUNNING, "", dead(oom_killed=True), ("oom", None, None, None), "is not known"),
        (State.RUNNING, "", dead(KILLED), ("signal", None, 9, None), "9 (SIGKILL)"),
        (State.RUNNING, "", dead(Exit(None, 15)), ("signal", None, 15, None), "15 (SIGTERM)"),
        (State.RUNNING, "", dead(Exit(None, 40)), ("signal", None, 40, None), "signal 40 killed"),
        (State.RUNNING, "", dead(Exit(3, None)), ("exception", 3, None, None), "exit code 3"),
        (State.RUNNING, "", dead(Exit(0, None)), ("finished", 0, None, None), "exit code 0"),
        (State.SWITCHED_OFF, "", dead(), ("unknown", None, None, None), "neither the run nor"),
        (None, "Left\x1bover", dead(), ("unknown", None, None, None), "neither the run nor"),
        (State.RUNNING, "", dead(evidence="age"), ("unknown", None, None, None), "stopped reporting"),
    ],
)  # fmt: skip
def test_the_run_is_believed_before_the_kernel(state, words, liveness, expected, evidence):
    """The run's own state comes first, then an OOM kill, the signal and the exit code."""
    ending = determine_ending(state, words, liveness, 1000.0)
    assert (ending.reason, ending.exit_code, ending.signal, ending.exception) == expected
    assert evidence in ending.evidence
    assert ending.time == 1000.0
    assert ending.machine == {}


def test_the_class_of_an_exception_holds_no_control_characters():
    """Control characters in the class name of an exception are replaced."""
    ending = determine_ending(State.FAILED, "Bad\x1b[31m\nError", dead(), 0.0)
    assert ending.exception == "Bad?[31m?Error"


def test_the_note_is_as_documented(tmp_path: Path):
    """The note has the documented name, content and mode, whatever the umask."""
    mask = os.umask(0o077)
    write_ending(tmp_path / "a.0.1.x.tv", ENDING)
    os.umask(mask)
    assert [path.name for path in tmp_path.iterdir()] == ["a.0.1.x.tv.end"]
    note = tmp_path / "a.0.1.x.tv.end"
    assert json.loads(note.read_bytes()) == NOTE
    assert note.stat().st_mode & 0o777 == 0o644
    assert read_ending(tmp_path / "a.0.1.x.tv") == ENDING


def test_a_later_note_replaces_the_first(tmp_path: Path):
    """A later note replaces the first note, as the exit status may be known only later."""
    write_ending(tmp_path / "a.tv", determine_ending(State.RUNNING, "", dead(), 1.0))
    write_ending(tmp_path / "a.tv", ENDING)
    assert read_ending(tmp_path / "a.tv") == ENDING


def test_a_link_in_the_way_leads_nowhere(tmp_path: Path):
    """A symbolic link in place of a note is not read, and is replaced when a note is written."""
    (tmp_path / "victim").write_text(json.dumps(NOTE))
    (tmp_path / "a.tv.end").symlink_to(tmp_path / "victim")
    assert read_ending(tmp_path / "a.tv") is None
    write_ending(tmp_path / "a.tv", ENDING)
    assert not (tmp_path / "a.tv.end").is_symlink()
    assert (tmp_path / "victim").read_text() == json.dumps(NOTE)


def test_a_link_in_place_of_the_directory_leads_nowhere(tmp_path: Path, caplog):
    """If the run directory is a symbolic link, no note is written to the target of the link."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "victim")
    write_ending(tmp_path / "runs/a.tv", ENDING)
    assert list((tmp_path / "victim").iterdir()) == []
    assert "cannot note how" in caplog.text


def test_a_directory_that_cannot_be_written_costs_one_line(tmp_path: Path, caplog):
    """If a note cannot be written, one warning is logged and no error is raised."""
    with caplog.at_level(logging.WARNING):
        write_ending(tmp_path / "gone/a.tv", ENDING)
    assert len(caplog.records) == 1
    assert "cannot note how" in caplog.text
    assert read_ending(tmp_path / "gone/a.tv") is None


def test_what_is_too_much_is_left_out(tmp_path: Path):
    """The machine state is left out of a note that would exceed 4096 bytes."""
    many = {f"{index:0>60}": 1e300 for index in range(64)}
    large = Ending("unknown", None, None, None, 1.0, "Nothing.", many | {"nan": float("nan")})
    write_ending(tmp_path / "a.tv", large)
    assert (tmp_path / "a.tv.end").stat().st_size <= 4096
    ending = read_ending(tmp_path / "a.tv")
    assert ending is not None
    assert ending.machine == {}


def test_nothing_but_a_small_regular_file_is_read(tmp_path: Path):
    """A FIFO, a folder, an oversized file and an empty file are not read as notes."""
    os.mkfifo(tmp_path / "fifo.end")
    (tmp_path / "folder.end").mkdir()
    (tmp_path / "large.end").write_bytes(json.dumps(NOTE).encode().ljust(4097))
    (tmp_path / "empty.end").touch()
    for name in ("fifo", "folder", "large", "empty", "none", "nul\0"):
        assert read_ending(tmp_path / name) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_a_stranger_is_not_believed(tmp_path: Path):
    """A note is read only if it belongs to root, to the reader or to the owner of the run file."""
    note, run_file = tmp_path / "a.tv.end", tmp_path / "a.tv"
    note.write_text(json.dumps(NOTE))
    run_file.touch()
    os.chown(note, 12345, -1)
    assert read_ending(run_file) is None
    os.chown(run_file, 12345, -1)
    assert read_ending(run_file) == ENDING


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"reason": "murder"},
        {"reason": None},
        {"time": None},
        {"time": True},
        {"time": float("inf")},
        {"time": 10**400},
        {"time": 1e300},
        {"time": -1.0},
        {"evidence": 5},
        {"exit_code": 256},
        {"exit_code": -1},
        {"exit_code": True},
        {"signal": 0},
        {"signal": 65},
        {"signal": 9.0},
        {"exception": ["x"]},
        {"machine": []},
    ],
)
def test_a_note_that_makes_no_sense_is_none(tmp_path: Path, changes):
    """A note with a member of a wrong type or outside its bounds is ignored."""
    (tmp_path / "a.tv.end").write_text(json.dumps(NOTE | changes))
    assert read_ending(tmp_path / "a.tv") is None


def test_texts_of_a_note_are_made_fit(tmp_path: Path):
    """Control characters and surrogates in a note are replaced; invalid members are left out."""
    members = {"evidence": "a\nb\ud800", "machine": {"x": 1, "\x1b": 2, "y": "no", "z" * 65: 3}}
    (tmp_path / "a.tv.end").write_text(json.dumps(NOTE | members))
    ending = read_ending(tmp_path / "a.tv")
    assert ending is not None
    assert ending.evidence == "a?b?"
    assert ending.machine == {"x": 1.0, "?": 2.0}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.binary(max_size=300)
    | st.dictionaries(st.sampled_from(sorted(NOTE)), JSON).map(
        lambda c: json.dumps(NOTE | c).encode()
    )
)
def test_no_note_raises(tmp_path_factory, data):
    """A note with arbitrary content is read as an ending or as None."""
    path = tmp_path_factory.getbasetemp() / "fuzz.tv"
    Path(f"{path}.end").write_bytes(data)
    ending = read_ending(path)
    assert ending is None or isinstance(ending, Ending)
