"""Tests for writing files in the state directory."""

import os
import subprocess

import pytest

from trainvitals.errors import StackError
from trainvitals.stack.writing import (
    link,
    make_private,
    require_free_space,
    require_readable,
    write_private,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")


@pytest.fixture
def mount(tmp_path):
    """Yield a function that mounts a tmpfs with the given options."""
    place = tmp_path / "mounted"
    place.mkdir()

    def do(options):
        command = ("mount", "-t", "tmpfs", "-o", options, "tmpfs", place)
        subprocess.run(command, check=True)
        return place

    yield do
    subprocess.run(("umount", "-l", place), check=False)


def test_file_is_whole_and_private(tmp_path):
    """The new text replaces the old text, only the owner may read it, and no other file is left."""
    path = tmp_path / "a.yml"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_leftover_of_an_earlier_write_is_no_hindrance(tmp_path):
    """The partial file of a killed process is overwritten and made private."""
    (tmp_path / ".a.yml.partial").write_text("half")
    (tmp_path / ".a.yml.partial").chmod(0o644)
    write_private(tmp_path / "a.yml", "new")
    assert (tmp_path / "a.yml").stat().st_mode & 0o777 == 0o600


def test_link_is_replaced(tmp_path):
    """A link to another place is replaced."""
    link(tmp_path / "a", tmp_path / "b")
    link(tmp_path / "a", tmp_path / "c")
    link(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "a").readlink() == tmp_path / "c"


@needs_root
def test_full_disk_is_told_and_the_old_file_stays(mount):
    """If the disk is full, the error names the reason, and the old file stays complete."""
    place = mount("size=64k")
    write_private(place / "a.yml", "old")
    with pytest.raises(StackError, match=r"cannot write .*: No space left on device; choose"):
        write_private(place / "a.yml", "x" * 100_000)
    assert (place / "a.yml").read_text() == "old"
    assert [each.name for each in place.iterdir()] == ["a.yml"]


@needs_root
def test_read_only_file_system_is_told(mount):
    """The error for a read-only file system names the path and the reason."""
    place = mount("ro")
    with pytest.raises(StackError, match=r"cannot write .*/state: Read-only file system; choose"):
        make_private(place / "state")


def test_directory_of_another_user_is_told(tmp_path):
    """A directory that cannot be read raises an error; a directory that does not exist does not."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    require_readable(tmp_path / "none")
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        with pytest.raises(
            StackError, match=r"cannot read .*closed: Permission denied; run this as"
        ):
            require_readable(closed)
    finally:
        os.seteuid(user)


def test_little_room_is_refused_before_anything_starts(tmp_path):
    """The error names the free space, the required space and the remedy."""
    with pytest.raises(
        StackError, match=r"[0-9.]+ [MGT]iB are free in .* 90\.9 TiB are needed: free some space"
    ):
        require_free_space(tmp_path, least_bytes=99_999_999_000_000)
    require_free_space(tmp_path, least_bytes=1)
