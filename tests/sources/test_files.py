"""Files of /proc and /sys that stay open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, open_regular, read_small


def test_a_regular_file_is_opened_and_nothing_else(tmp_path: Path):
    """A pipe without a writer, a folder and a device are refused at once; a link where asked."""
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    for name in ("file", "link"):
        descriptor = open_regular(str(tmp_path / name))
        assert os.read(descriptor, 9) == b"text"
        os.close(descriptor)
    for path in (tmp_path / "pipe", tmp_path, "/dev/null"):
        with pytest.raises(OSError, match="no regular file"):
            open_regular(str(path))
    with pytest.raises(OSError, match="no regular file"):
        open_regular(str(tmp_path / "link"), follows=False)
    with pytest.raises(FileNotFoundError):
        open_regular(str(tmp_path / "none"))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - numbers


def test_a_file_is_read_anew_each_time(tmp_path: Path):
    """What was written since the last read is seen, though the file stays open."""
    path = tmp_path / "loadavg"
    path.write_bytes(b"one")
    file = KeptFile(path)
    assert file.read() == b"one"
    path.write_bytes(b"three")
    assert file.read() == b"three"
    file.close()


def test_a_missing_file_is_none_until_it_comes(tmp_path: Path):
    """A file that does not exist reads as None, and is read once it is there."""
    file = KeptFile(tmp_path / "late")
    assert file.read() is None
    (tmp_path / "late").write_bytes(b"here")
    assert file.read() == b"here"
    file.close()


def test_a_required_file_that_is_missing_is_an_error(tmp_path: Path):
    """The error names the file and the flags that say where it should be."""
    with pytest.raises(SourceError, match=r"cannot find .*/meminfo; .*--path\.procfs"):
        KeptFile(tmp_path / "meminfo").require()


def test_a_folder_cannot_be_read(tmp_path: Path):
    """What exists and cannot be read is an error that names it."""
    with pytest.raises(SourceError, match=str(tmp_path)):
        KeptFile(tmp_path).read()


def test_a_file_of_many_pages_is_read_whole():
    """The kernel hands this file out by the page; all of its lines arrive."""
    path = Path("/proc/zoneinfo")
    file = KeptFile(path)
    data = file.read()
    file.close()
    assert data is not None
    assert data.count(b"\n") == path.read_bytes().count(b"\n")
    descriptor = os.open(path, os.O_RDONLY)
    assert len(os.pread(descriptor, 1 << 20, 0)) <= len(data)
    os.close(descriptor)


def test_the_file_of_an_ended_process_is_none():
    """A process that ended has no file, though the file is still open."""
    with subprocess.Popen(["sleep", "60"]) as process:
        file = KeptFile(Path(f"/proc/{process.pid}/stat"))
        assert file.read() is not None
        process.kill()
        process.wait()
        assert file.read() is None
        file.close()


def test_a_regular_file_never_counts_as_unchanged(tmp_path: Path):
    """Where the kernel cannot tell that a file changed, it is read again."""
    path = tmp_path / "mountinfo"
    path.write_bytes(b"one")
    file = KeptFile(path)
    assert not file.unchanged()
    file.read()
    assert not file.unchanged()
    file.close()


MOUNTING = """
import subprocess, sys
from pathlib import Path
from trainvitals.sources.files import KeptFile
file = KeptFile(Path("/proc/self/mountinfo"))
file.read()
quiet = file.unchanged(), file.unchanged()
subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1]], check=True)
noticed = not file.unchanged()
found = sys.argv[1].encode() in file.read()
print(quiet, noticed, found, file.unchanged())
"""


def test_the_kernel_tells_when_a_mount_came(tmp_path: Path):
    """The list of mounts counts as unchanged until something is mounted."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", MOUNTING]
    done = subprocess.run(
        [*command, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": "exporter", "PATH": os.environ["PATH"]},
        cwd=Path(__file__).parents[2],
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("this kernel permits no user namespaces")
    assert done.stdout == "(True, True) True True True\n", done.stderr


def test_a_small_file_is_stripped(tmp_path: Path):
    """The white space around a small file's text is left out."""
    (tmp_path / "speed").write_text(" 25000\n")
    assert read_small(tmp_path / "speed") == "25000"


def test_a_small_file_that_says_nothing_is_none(tmp_path: Path):
    """A file that is missing, or holds only white space, is None."""
    (tmp_path / "empty").write_text("\n")
    assert read_small(tmp_path / "empty") is None
    assert read_small(tmp_path / "missing") is None
