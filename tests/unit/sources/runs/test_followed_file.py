"""Tests for reading files to which other processes append."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from trainvitals.sources.runs.followed_file import FollowedFile, ReadBudget


def test_what_was_not_taken_is_met_again(tmp_path: Path):
    """`peek` returns the same bytes again until `advance` or `skip` moves the offset."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    file = FollowedFile(str(path))
    assert file.peek(4) == (b"abcd", False)
    assert file.peek(100) == (b"abcdef", False)
    file.advance(b"abc")
    assert file.peek(2) == (b"de", False)
    file.skip(3)
    assert file.peek(100) == (b"", False)
    assert (file.offset, file.size) == (6, 6)
    with path.open("ab") as more:
        more.write(b"gh")
    assert file.peek(100) == (b"gh", False)
    file.close()
    assert file.peek(100) == (b"gh", False)
    file.close()


def test_a_time_to_come_is_not_believed(tmp_path: Path):
    """The owner may set the mtime to any time, but the modified time is at most the ctime."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    os.utime(path, (4e9, 4e9))
    file = FollowedFile(str(path))
    file.peek(1)
    assert file.modified_time <= time.time() + 1
    os.utime(path, (1e9, 1e9))
    file.peek(1)
    assert file.modified_time == 1e9
    file.close()


def test_a_shorter_file_begins_anew(tmp_path: Path):
    """A file that has become shorter than the offset is read from its start."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    file = FollowedFile(str(path))
    file.advance(file.peek(100)[0])
    path.write_bytes(b"xy")
    assert file.peek(100) == (b"xy", True)
    assert file.peek(100) == (b"xy", False)
    file.close()


def test_a_file_of_the_same_length_but_other_content_begins_anew(tmp_path: Path):
    """A file whose bytes before the offset have changed is read from its start."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    file = FollowedFile(str(path))
    file.advance(file.peek(100)[0])
    path.write_bytes(b"ABCDEFG")
    assert file.peek(100) == (b"ABCDEFG", True)
    file.close()


def test_a_file_that_took_the_name_is_opened_when_the_old_one_is_read(tmp_path: Path):
    """A renamed file is read to its end before the new file with its name is opened."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    file = FollowedFile(str(path))
    file.advance(file.peek(3)[0])
    path.rename(tmp_path / "file.1")
    path.write_bytes(b"new")
    assert file.peek(100) == (b"def", False)
    assert file.peek(100) == (b"new", True)
    file.close()


def test_a_deleted_file_is_read_on(tmp_path: Path):
    """A deleted file is still read, as its writer may append to it."""
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    file = FollowedFile(str(path))
    file.advance(file.peek(100)[0])
    with path.open("ab") as writer:
        path.unlink()
        writer.write(b"def")
        writer.flush()
        assert file.peek(100) == (b"def", False)
    file.close()


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path):
    """A pipe and a folder raise an error at once, as a pipe would block the reader."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="no regular file"):
            FollowedFile(str(path)).peek(1)
    with pytest.raises(FileNotFoundError):
        FollowedFile(str(tmp_path / "none")).peek(1)


class Clock:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def take(turns: ReadBudget[str], clock: Clock, seconds: float, deadline: float = math.inf) -> str:
    """Return the items that are yielded if each item takes this number of seconds."""
    taken = ""
    for item in turns.take("abcd", deadline):
        taken += item
        clock.now += seconds
    return taken


def test_everyone_has_a_turn_when_there_is_time():
    """If there is enough time, each reading yields all items in order."""
    clock = Clock()
    turns: ReadBudget[str] = ReadBudget(monotonic=clock)
    assert [take(turns, clock, 0.01) for _ in range(2)] == ["abcd", "abcd"]
    assert list(turns.take((), math.inf)) == []


def test_who_was_not_reached_is_first_the_next_time():
    """The next reading begins with the first item that was not reached in a quarter of a second."""
    clock = Clock()
    turns: ReadBudget[str] = ReadBudget(monotonic=clock)
    assert [take(turns, clock, 0.125) for _ in range(3)] == ["ab", "cd", "ab"]
    assert [take(turns, clock, 9.0) for _ in range(3)] == ["c", "d", "a"]


def test_the_deadline_is_kept():
    """Items are yielded until the deadline, and one item even if the deadline has passed."""
    clock = Clock()
    turns: ReadBudget[str] = ReadBudget(monotonic=clock)
    assert take(turns, clock, 0.01, clock.now + 0.075) == "abc"
    assert take(turns, clock, 0.01, clock.now - 1) == "d"


def test_searches_are_as_rare_as_they_are_slow():
    """The time between searches is two seconds, or 20 times the last search if that is longer."""
    clock = Clock()
    turns: ReadBudget[str] = ReadBudget(monotonic=clock)
    assert turns.is_search_due()
    with turns.searching():
        clock.now += 0.01
    clock.now += 1.5
    assert not turns.is_search_due()
    clock.now += 1.0
    assert turns.is_search_due()
    with turns.searching():
        clock.now += 1.0
    clock.now += 19.0
    assert not turns.is_search_due()
    clock.now += 1.5
    assert turns.is_search_due()
