"""Tests for the file to which snapshots are written."""

import gzip
import os
import stat
import subprocess
from pathlib import Path

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.record.logfile import LogFile


@pytest.fixture
def open_file(tmp_path):
    """Yield a function that opens a log file, which is closed after the test."""
    files = []

    def open_file(name="logs/run.log", **options):
        files.append(LogFile(tmp_path / name, **options))
        return files[-1]

    yield open_file
    for file in files:
        file.close()


@pytest.fixture
def small_disk(tmp_path):
    """Yield a directory with a file system of 64 KiB."""
    if os.geteuid():
        pytest.skip("to mount a small file system takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def names(folder):
    """Return the sorted names of the files in a directory."""
    return sorted(path.name for path in folder.iterdir())


def unpack(path):
    """Return the text of a compressed file."""
    return gzip.decompress(path.read_bytes()).decode()


def mode_of(path):
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read_it(open_file, tmp_path):
    """Only the owner may access the file and its directory, whatever the umask is."""
    before = os.umask(0)
    try:
        open_file().append("one\n")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "logs/run.log") == 0o600
    assert mode_of(tmp_path / "logs") == 0o700


def test_it_is_appended_to(open_file, tmp_path):
    """An existing file is appended to."""
    (tmp_path / "run.log").write_text("before\n", encoding="utf-8")
    open_file("run.log").append("one\n")
    assert (tmp_path / "run.log").read_text(encoding="utf-8") == "before\none\n"


def test_a_full_file_makes_room_for_a_new_one(open_file, tmp_path):
    """Full files are compressed and numbered from the newest, and the oldest is removed."""
    file = open_file(max_bytes=10, keep=2)
    for piece in ("one\n", "two\n", "three\n", "four\n", "five\n", "six\n", "seven\n"):
        file.append(piece)
    folder = tmp_path / "logs"
    assert names(folder) == ["run.log", "run.log.1.gz", "run.log.2.gz"]
    assert (folder / "run.log").read_text(encoding="utf-8") == "six\nseven\n"
    assert unpack(folder / "run.log.1.gz") == "four\nfive\n"
    assert unpack(folder / "run.log.2.gz") == "three\n"
    assert mode_of(folder / "run.log.1.gz") == 0o600


def test_none_may_be_kept(open_file, tmp_path):
    """If no old file is to be kept, a full file is truncated."""
    file = open_file(max_bytes=5, keep=0)
    file.append("one\n")
    file.append("two\n")
    assert names(tmp_path / "logs") == ["run.log"]
    assert (tmp_path / "logs/run.log").read_text(encoding="utf-8") == "two\n"


def test_a_piece_larger_than_the_bound_is_written_whole(open_file, tmp_path):
    """A text larger than the maximum file size is written completely."""
    file = open_file(max_bytes=5, keep=1)
    file.append("0123456789\n")
    assert (tmp_path / "logs/run.log").read_text(encoding="utf-8") == "0123456789\n"


def test_a_file_that_is_taken_away_is_made_anew(open_file, tmp_path):
    """After the file was moved or removed, the next lines are written to a new file."""
    file = open_file()
    file.append("one\n")
    path = tmp_path / "logs/run.log"
    path.rename(tmp_path / "logs/moved")
    file.append("two\n")
    path.unlink()
    file.append("three\n")
    assert (tmp_path / "logs/moved").read_text(encoding="utf-8") == "one\n"
    assert path.read_text(encoding="utf-8") == "three\n"


def test_a_full_disk_leaves_no_torn_piece(open_file, small_disk):
    """A text that does not fit on the disk is not written in part; later texts are written."""
    file = open_file(small_disk / "run.log")
    file.append("one\n")
    filler = small_disk / "filler"
    filler.write_bytes(40_000 * b"x")
    with pytest.raises(OSError, match="No space left on device"):
        file.append(40_000 * "2")
    assert (small_disk / "run.log").read_text(encoding="utf-8") == "one\n"
    filler.unlink()
    file.append("three\n")
    assert (small_disk / "run.log").read_text(encoding="utf-8") == "one\nthree\n"


def test_what_cannot_be_compressed_stays_as_it_is(open_file, small_disk):
    """If there is no space for the compressed file, the uncompressed file is kept."""
    noise = os.urandom(20_000).hex() + "\n"
    file = open_file(small_disk / "run.log", max_bytes=50_000, keep=2)
    file.append(noise)
    (small_disk / "filler").write_bytes(12_000 * b"x")
    file.append("two" + 10_000 * "." + "\n")
    assert names(small_disk) == ["filler", "run.log", "run.log.1"]
    assert (small_disk / "run.log.1").read_text(encoding="utf-8") == noise
    (small_disk / "filler").unlink()
    file._rotate()
    assert names(small_disk) == ["run.log.1.gz", "run.log.2"]


def test_two_recordings_do_not_share_a_file(open_file):
    """A second recording to the same file is refused with advice to choose another."""
    open_file()
    with pytest.raises(ConfigurationError, match="another recording writes to it; choose another"):
        open_file()


@pytest.mark.parametrize("name", ["a/file/run.log", "a", "link"])
def test_a_place_that_cannot_be_written_is_one_line(open_file, tmp_path, name):
    """A path below a file, a directory, and a symbolic link are refused in one line."""
    if name == "a":
        (tmp_path / "a").mkdir()
    else:
        (tmp_path / "a").mkdir()
        (tmp_path / "a/file").write_text("", encoding="utf-8")
        (tmp_path / "link").symlink_to(tmp_path / "a/file")
    with pytest.raises(ConfigurationError, match="choose another place with --output") as refused:
        open_file(name)
    assert "\n" not in str(refused.value)


def test_a_device_is_written_to(open_file):
    """A device is written to without rotation, and its write errors are raised."""
    file = open_file(Path("/dev/full"), max_bytes=1)
    with pytest.raises(OSError, match="No space left on device"):
        file.append("one\n")
    open_file(Path("/dev/null"), max_bytes=1).append("one\n")
    assert Path("/dev/null").is_char_device()
