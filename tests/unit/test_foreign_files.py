"""Tests for opening files that another user may have created."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import pytest

from tests.support.privileges import NOBODY
from trainvitals.foreign_files import (
    explain_refusal,
    open_named,
    open_regular,
    read_named,
    read_regular,
    read_whole,
)

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder that all users can enter."""
    folder = tmp_path
    while not folder.stat().st_mode & stat.S_IXOTH:
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
        folder = folder.parent
    return tmp_path


def test_a_regular_file_is_opened_and_nothing_else(tmp_path: Path):
    """Pipes, folders and devices are refused, and symbolic links if the caller forbids them."""
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    for name in ("file", "link"):
        assert read_regular(tmp_path / name, 9) == b"text"
    for path in (tmp_path / "pipe", tmp_path / "to-pipe", tmp_path, "/dev/null", "/dev/zero"):
        with pytest.raises(OSError, match="no regular file"):
            open_regular(str(path))
    with pytest.raises(OSError, match="symbolic link, no regular file"):
        open_regular(str(tmp_path / "link"), follows=False)
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(str(tmp_path / "loop"))
    with pytest.raises(FileNotFoundError):
        open_regular(str(tmp_path / "none"))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - numbers


@pytest.mark.parametrize(
    "way", ["real/file", "folder/file", "real/../link", "absolute/file", "deep", "folder/../link"]
)
def test_links_lead_where_the_kernel_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    """Symbolic links of all forms, and `..` after a link, are resolved as the kernel does."""
    (tmp_path / "a/real").mkdir(parents=True)
    (tmp_path / "a/real/file").write_bytes(b"here")
    (tmp_path / "a/link").symlink_to("real/file")
    (tmp_path / "real").symlink_to("a/real")
    (tmp_path / "folder").symlink_to("./real/")
    (tmp_path / "absolute").symlink_to(tmp_path / "folder")
    (tmp_path / "deep").symlink_to("absolute/../link")
    assert (tmp_path / way).read_bytes() == b"here"
    assert read_regular(tmp_path / way, 9) == b"here"
    monkeypatch.chdir(tmp_path)
    assert read_regular(Path(way), 9) == b"here"


def test_the_files_of_a_process_are_reached_through_its_root():
    """The link `/proc/PID/root` leads to the root of the process, whatever the link's text is."""
    path = Path(f"/proc/{os.getpid()}/root/proc/self/stat")
    assert read_regular(path, 4096).startswith(b"%d " % os.getpid())


@ROOT_ONLY
@pytest.mark.parametrize("way", ["link", "folder/secret", "chain"])
def test_a_link_of_another_user_leads_to_what_he_may_read(shared: Path, way: str):
    """Root follows another user's link only to a file that the owner of the link may read."""
    secret = shared / "private/secret"
    secret.parent.mkdir()
    secret.write_bytes(b"root:$6$")
    (shared / "folder").symlink_to(secret.parent)
    (shared / "link").symlink_to(secret)
    (shared / "chain").symlink_to("link")
    assert read_regular(shared / way, 99) == b"root:$6$", "links of root are followed"
    for name in ("folder", "link"):
        os.lchown(shared / name, NOBODY, NOBODY)
    for mode, folder_mode in ((0o600, 0o755), (0o644, 0o700)):
        secret.chmod(mode)
        secret.parent.chmod(folder_mode)
        with pytest.raises(OSError, match="of a user who may not read it") as raised:
            read_regular(shared / way, 99)
        assert raised.value.errno == errno.ELOOP
    secret.parent.chmod(0o755)
    assert read_regular(shared / way, 99) == b"root:$6$", "everybody may read it"
    secret.chmod(0o600)
    os.chown(secret, NOBODY, NOBODY)
    assert read_regular(shared / way, 99) == b"root:$6$", "it is his own"


def test_no_more_is_read_than_is_asked_for(tmp_path: Path):
    """Only the requested part of a large file is read, and `read_whole` refuses a large file."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 40)
        file.write(b"end")
    began = time.process_time()
    assert read_regular(path, 5) == b"begin"
    assert read_regular(path, 3, from_end=True) == b"end"
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        read_whole(path, 1000)
    assert time.process_time() - began < 1.0
    path.write_bytes(b"x" * 1000)
    assert read_whole(path, 1000) == b"x" * 1000


def test_what_the_shell_opened_can_be_a_pipe(tmp_path: Path):
    """A pipe is accepted as `/dev/fd/N`, which the shell passes for `<(COMMAND)`."""
    reading, writing = os.pipe()
    os.write(writing, b"from the command")
    os.close(writing)
    with open_named(Path(f"/dev/fd/{reading}")) as file:
        assert file.read() == b"from the command"
    os.close(reading)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        open_named(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ELOOP, "put the file itself there"),
        (errno.EINVAL, "put the file itself there"),
        (errno.EFBIG, "keep the part that matters"),
        (errno.EACCES, "run as a user that may read it"),
    ],
)
def test_a_refusal_says_what_to_do(number: int, words: str):
    """The explanation contains the reason and the remedy."""
    assert explain_refusal(OSError(number, "so it is")) == f"so it is; {words}"


def test_a_named_file_is_bounded(tmp_path):
    """A file that is larger than the limit and a pipe are refused without a long read."""
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_named(file, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_named(file, 4)
    os.truncate(file, 1 << 40)
    with pytest.raises(OSError, match="larger than 100 bytes"):
        read_named(file, 100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        read_named(tmp_path / "pipe", 100)
