"""Tests for the check of the run directory's owner and mode."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from trainvitals.sources.runs.ownership import OwnershipCheck, find_exposure

MALLORY = 54321


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run directory, whose path contains a space."""
    path = tmp_path / "the runs"
    path.mkdir()
    return path


@pytest.fixture
def reader(runs: Path) -> int:
    """The ID of a user other than root who does not own the directory."""
    if os.geteuid() == 0:
        os.chown(runs, MALLORY, -1)
    return MALLORY + 1


def test_a_directory_of_root_or_ours_is_as_it_should_be(runs: Path):
    """A directory of root or of this user has no problem with mode 1777, 755 or 700."""
    for mode in (0o1777, 0o755, 0o700):
        runs.chmod(mode)
        assert find_exposure(runs) is None


def test_there_may_be_none(tmp_path: Path, runs: Path):
    """A path that does not exist or is not a directory has no problem."""
    (tmp_path / "link").symlink_to(runs)
    (tmp_path / "file").touch()
    for name in ("missing", "link", "file", "file/below"):
        assert find_exposure(tmp_path / name, user=MALLORY) is None


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o755, 0o700])
def test_another_user_s_directory_is_named_with_what_that_user_may(
    runs: Path, reader: int, mode: int
):
    """The owner may remove all files in the directory, regardless of its mode."""
    runs.chmod(mode)
    found = find_exposure(runs, user=reader)
    assert found is not None
    owner = runs.stat().st_uid
    assert found.words == f"{runs} belongs to user {owner}, who may remove the run files of others"
    assert found.command == f"sudo mv -T '{runs}' '{runs}'.old && sudo mkdir -m 1777 '{runs}'"
    assert not found.hides_runs


def test_in_the_usual_directory_others_have_no_runs_if_its_owner_closed_it(runs: Path, reader: int):
    """If the owner has closed the default directory, the problem hides runs of other users."""
    found = find_exposure(runs, user=reader, usual=runs)
    assert found is not None
    assert found.words.endswith("and other users cannot have runs there")
    assert found.hides_runs


def test_root_may_have_closed_the_usual_directory_on_purpose(runs: Path):
    """A default directory that root closed is reported, but does not count as hiding runs."""
    found = find_exposure(runs, usual=runs)
    assert found is not None
    assert found.words.endswith("and other users cannot have runs there")
    assert found.command == f"sudo chmod 1777 '{runs}'"
    assert not found.hides_runs


def test_without_the_sticky_bit_every_user_may_remove_files(runs: Path):
    """A directory that all users may write to needs the sticky bit, which the command sets."""
    runs.chmod(0o777)
    found = find_exposure(runs)
    assert found is not None
    assert found.words == f"every user may remove the run files of others in {runs}"
    assert found.command == f"sudo chmod 1777 '{runs}'"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give the directory away")
def test_it_is_logged_once_and_is_a_failure_while_runs_are_kept_away(runs: Path, caplog):
    """Each problem is logged once, although the owner may change the mode repeatedly."""
    caplog.set_level(logging.WARNING, logger="trainvitals")
    check = OwnershipCheck(runs, usual=runs)
    told = []
    os.chown(runs, MALLORY, -1)
    for mode in (0o755, 0o1777) * 3:
        runs.chmod(mode)
        told.append(check.complain())
    assert told[0] is not None
    assert (
        "belongs to user 54321, and other users cannot have runs there; between two runs" in told[0]
    )
    assert told == [told[0], None] * 3
    assert len(caplog.messages) == 2
    os.chown(runs, 0, -1)
    assert check.complain() is None
