"""Tests for the user ID ranges of users' containers, which count as one user each."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sources.runs.test_directory import holding, names_of, put
from tests.unit.sources.runs.test_starts import ADA, BOB, NOW, many, start
from trainvitals.sources.runs.directory import Limits, RunDirectory
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.starts import choose_shown
from trainvitals.sources.runs.subordinates import Subordinates, merge_ranges, parse_ranges

FIRST = 100_000
LINES = f"ada:{FIRST}:65536\nbob:165536:65536\n"


@pytest.fixture
def subuid(tmp_path):
    """A file with the user ID ranges of two users."""
    path = tmp_path / "subuid"
    path.write_text(LINES)
    return path


def test_a_range_counts_as_its_first_user(subuid):
    """Each user ID in a range is mapped to the range's first ID, and any other ID to itself."""
    found = Subordinates(subuid).find_first
    users = (0, 1000, 99_999, FIRST, 100_400, 165_535, 165_536, 231_071, 231_072, 1 << 32)
    firsts = (0, 1000, 99_999, FIRST, FIRST, FIRST, 165_536, 165_536, 231_072, 1 << 32)
    assert tuple(map(found, users)) == firsts


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("ada:100000:65536", [(100_000, 165_536)]),
        (" 1000:100000:65536 \n", [(100_000, 165_536)]),
        ("ada:1:2:3\nada:1\nada::\nada:x:y\n# no\n\nada:5:0\n", []),
        ("ada:" + "9" * 5000 + ":1", []),
        ("ada:4294967295:4294967295", [(4294967295, 8589934590)]),
        ("a:10:10\nb:15:10\nc:25:5\nd:12:2", [(10, 25), (25, 30)]),
        ("a:٣:٣", []),
    ],
)
def test_lines(text, ranges):
    """Lines of another format are ignored, and overlapping ranges are merged."""
    assert merge_ranges(parse_ranges(text.split("\n"))) == ranges


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)).map(sorted), max_size=9))
def test_merged_ranges_do_not_overlap(ranges):
    """Merged ranges contain the same user IDs in ascending order."""
    merged = merge_ranges([(first, end) for first, end in ranges if first < end])
    ends = [end for each in merged for end in each]
    assert ends == sorted(ends)
    inside = {user for first, end in merged for user in range(first, end)}
    assert inside == {user for first, end in ranges for user in range(first, end)}


def test_the_file_is_read_again_after_a_minute(subuid):
    """A range that is added or removed later takes effect after one minute."""
    now = 0.0
    found = Subordinates(subuid, monotonic=lambda: now).find_first
    assert found(300_001) == 300_001
    subuid.write_text("eve:300000:65536\n")
    assert found(300_001) == 300_001
    now = 60.0
    assert found(300_001) == 300_000
    subuid.unlink()
    now = 120.0
    assert found(300_001) == 300_001


def test_a_file_that_is_none(tmp_path):
    """If the file is missing, a pipe or a directory, each user ID is mapped to itself."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path / "pipe", tmp_path):
        assert Subordinates(path).find_first(FIRST + 1) == FIRST + 1


def test_root_and_we_are_in_no_range(tmp_path):
    """A range that contains root's user ID makes no other user trusted."""
    (tmp_path / "subuid").write_text("eve:0:4294967295\n")
    users = Users(subordinates=Subordinates(tmp_path / "subuid"))
    assert [users.find_group(user) for user in (0, os.geteuid())] == [0, os.geteuid()]
    assert users.find_group(os.geteuid() + 1) == 0


def test_runs_of_one_range_hide_no_others(subuid):
    """Runs of 400 user IDs in one range have the places of one user."""
    starts = [each for uid in range(400) for each in many(FIRST + uid, 1, made=0.0)]
    starts += [start(f"{user}-{run}", user) for user in (ADA, BOB) for run in range(4)]
    users = Users(subordinates=Subordinates(subuid))
    shown, omitted = choose_shown(starts, NOW, users=users)
    assert sum(each.file.owner in {ADA, BOB} for each in shown) == 8
    assert {each.file.owner in {ADA, BOB} for each in omitted} == {False}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_files_of_one_range_take_no_places_of_others(tmp_path: Path, subuid):
    """Run files of 40 user IDs in one range leave places for the files of two other users."""
    runs = tmp_path / "runs"
    runs.mkdir()
    theirs = [put(runs, f"{number}.tv") for number in range(40)]
    others = [put(runs, f"other{number}.tv") for number in range(4)]
    for number, path in enumerate(theirs):
        os.chown(path, FIRST + number, -1)
    for number, path in enumerate(others):
        os.chown(path, 2000 + number % 2, -1)
    users = Users(subordinates=Subordinates(subuid))
    directory = RunDirectory(runs, limits=Limits(files=8, new=64), users=users)
    with holding(*theirs, user=FIRST):
        reading = directory.read(time.time())
    assert {path.name for path in others} <= set(names_of(reading))
    assert reading.omitted == 40 - 4
    directory.close()
