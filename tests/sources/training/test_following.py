"""A file that others append to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainvitals.sources.training.following import FollowedFile


def test_what_was_not_taken_is_met_again(tmp_path: Path):
    """Reading moves nothing; advancing does."""
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


def test_a_shorter_file_begins_anew(tmp_path: Path):
    """Its offset lies past the end."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    file = FollowedFile(str(path))
    file.advance(file.peek(100)[0])
    path.write_bytes(b"xy")
    assert file.peek(100) == (b"xy", True)
    assert file.peek(100) == (b"xy", False)
    file.close()


def test_a_file_of_the_same_length_but_other_content_begins_anew(tmp_path: Path):
    """The bytes before the offset are compared."""
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    file = FollowedFile(str(path))
    file.advance(file.peek(100)[0])
    path.write_bytes(b"ABCDEFG")
    assert file.peek(100) == (b"ABCDEFG", True)
    file.close()


def test_a_file_that_took_the_name_is_opened_when_the_old_one_is_read(tmp_path: Path):
    """Nothing that was written before the renaming is lost, be it a whole line or not."""
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
    """Its writer may still write."""
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
    """A pipe would make the reader wait."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="no regular file"):
            FollowedFile(str(path)).peek(1)
    with pytest.raises(FileNotFoundError):
        FollowedFile(str(tmp_path / "none")).peek(1)
