"""Tests for the users whose run files are read, and of the turns between users."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sources.runs.records import write
from trainvitals.errors import ConfigurationError
from trainvitals.sources.runs.eventfiles import EventFileSource
from trainvitals.sources.runs.owners import Users, is_trusted, parse_users, take_turns


def first_of(word: str) -> str:
    """Return the first letter, which is the group of a word in these tests."""
    return word[0]


def test_groups_take_turns_and_keep_their_order():
    """The group of the first word begins, and groups without remaining words are skipped."""
    words = ["a1", "a2", "b1", "a3", "c1", "c2"]
    assert take_turns(words, first_of) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_groups_of_a_group_take_turns_within_it():
    """A group has one turn at a time, regardless of the number of its subgroups."""
    words = ["ax1", "ay1", "az1", "ax2", "b1", "b2"]
    turns = take_turns(words, first_of, lambda word: word[1])
    assert turns == ["ax1", "b1", "ay1", "b2", "az1", "ax2"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3))))
def test_the_first_places_are_shared_out(things):
    """Nothing is lost, and no waiting group is more than one turn behind another group."""
    turns = take_turns(things, lambda thing: thing[0])
    assert Counter(turns) == Counter(things)
    sizes = Counter(group for group, _ in things)
    for length in range(len(turns)):
        had = Counter(group for group, _ in turns[:length])
        waiting = [had[group] for group, size in sizes.items() if had[group] < size]
        assert not waiting or max(had.values(), default=0) <= min(waiting) + 1


def test_every_user_counts_unless_some_are_named():
    """All users are included if no user is named."""
    for users in (Users(), parse_users([]), parse_users(["", " , "])):
        assert 0 in users
        assert 4_000_000_000 in users


def test_users_are_named_by_name_number_and_range():
    """Users may be separated by commas or given in several arguments."""
    users = parse_users(["root, 7", "1000-1002"])
    assert [user for user in (*range(10), *range(998, 1005)) if user in users] == [
        *(0, 7),
        *(1000, 1001, 1002),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nobody-at-all", "this machine has no such user"),
        ("ada\0", "this machine has no such user"),
        ("9-7", "this is not a range of users"),
        ("4294967295", "this is not a range of users"),
        ("1" * 5000, "this is not a range of users"),
        ("1-2-3", "this machine has no such user"),
        ("-5", "this machine has no such user"),
    ],
)
def test_other_users_are_refused(text: str, reason: str):
    """The message repeats the invalid word and shows the valid forms."""
    with pytest.raises(ConfigurationError) as refused:
        parse_users([text])
    assert str(refused.value).startswith(f"--run-dir.users {text}: {reason}; write names, ")


@given(st.text())
def test_any_text_names_users_or_is_refused(text):
    """Parsing arbitrary text raises no exception other than `ConfigurationError`."""
    with suppress(ConfigurationError):
        assert isinstance(0 in parse_users([text]), bool)


def test_root_and_we_are_trusted():
    """Only root and the user of this process are trusted."""
    assert is_trusted(0)
    assert is_trusted(os.geteuid())
    assert not is_trusted(os.geteuid() + 12345)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_user_s_event_files_hide_none(tmp_path):
    """Event files are chosen from each user in turn, so newer files of others hide no run.

    The files that are left out are counted.
    """
    for number in range(41):
        folder = tmp_path / f"run{number:02}"
        folder.mkdir()
        file = folder / "events.out.tfevents.1700000000.box.1.0"
        write(file, (1_700_000_000.0, 1, "loss", 0.5))
        if number:
            os.chown(file, 12345, -1)
            os.utime(file, (4e9, 4e9))
    source = EventFileSource([tmp_path])
    assert "run00" in {run.run for run in source.read(time.monotonic() + 10.0)}
    assert source.omitted == 41 - 16
    source.close()
    source = EventFileSource([tmp_path], users=Users(((0, 0),)))
    assert [run.run for run in source.read(time.monotonic() + 10.0)] == ["run00"]
    source.close()
