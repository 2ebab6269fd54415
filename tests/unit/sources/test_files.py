"""Tests for files in `/proc` and `/sys` that stay open between readings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, has_room, read_small


def test_a_file_is_read_anew_each_time(tmp_path: Path):
    """Every reading returns the current content, although the file stays open."""
    path = tmp_path / "loadavg"
    path.write_bytes(b"one")
    file = KeptFile(path)
    assert file.read() == b"one"
    path.write_bytes(b"three")
    assert file.read() == b"three"
    file.close()


def test_a_missing_file_is_none_until_it_comes(tmp_path: Path):
    """A file that does not exist is read as None, and is read as soon as it exists."""
    file = KeptFile(tmp_path / "late")
    assert file.read() is None
    (tmp_path / "late").write_bytes(b"here")
    assert file.read() == b"here"
    file.close()


def test_a_required_file_that_is_missing_is_an_error(tmp_path: Path):
    """The error names the file and the flag `--path.procfs`."""
    with pytest.raises(SourceError, match=r"cannot find .*/meminfo; .*--path\.procfs"):
        KeptFile(tmp_path / "meminfo").require()


@pytest.mark.parametrize("path", ["1/mountinfo", "1/net/dev"])
def test_the_flags_are_not_blamed_for_processes_that_are_hidden(tmp_path: Path, path: str):
    """If `/proc` hides the processes of other users, the error names `hidepid` and no flag."""
    (tmp_path / "self").mkdir()
    with pytest.raises(SourceError, match=rf"cannot find .*/{path}; .*hidepid.* gid ") as raised:
        KeptFile(tmp_path / path).require()
    assert "--path" not in str(raised.value)


@pytest.mark.parametrize("path", ["meminfo", "stat", "loadavg", "net/dev"])
def test_the_flags_are_not_blamed_for_a_proc_of_processes_alone(tmp_path: Path, path: str):
    """If `/proc` shows only processes (`ProcSubset=pid`), the error names `subset=pid`."""
    (tmp_path / "self").mkdir()
    with pytest.raises(SourceError, match=rf"cannot find .*/{path}; .*subset=pid") as raised:
        KeptFile(tmp_path / path).require()
    assert "--path" not in str(raised.value)


def test_a_folder_cannot_be_read(tmp_path: Path):
    """A path that exists and cannot be read raises an error that names the path."""
    with pytest.raises(SourceError, match=str(tmp_path)):
        KeptFile(tmp_path).read()


def test_a_file_of_many_pages_is_read_whole():
    """A file that the kernel returns one page at a time is read completely."""
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
    """The file of a process that has ended is read as None, although the file is still open."""
    with subprocess.Popen(["sleep", "60"]) as process:
        file = KeptFile(Path(f"/proc/{process.pid}/stat"))
        assert file.read() is not None
        process.kill()
        process.wait()
        assert file.read() is None
        file.close()


def test_a_regular_file_never_counts_as_unchanged(tmp_path: Path):
    """A file for which the kernel does not report changes never counts as unchanged."""
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
    """The list of mounts counts as unchanged until a file system is mounted."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", MOUNTING]
    done = subprocess.run(
        [*command, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": "exporter", "PATH": os.environ["PATH"]},
        cwd=Path(__file__).parents[3],
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("this kernel permits no user namespaces")
    assert done.stdout == "(True, True) True True True\n", done.stderr


def test_a_small_file_is_stripped(tmp_path: Path):
    """White space around the text of a small file is removed."""
    (tmp_path / "speed").write_text(" 25000\n")
    assert read_small(tmp_path / "speed") == "25000"


def test_a_small_file_that_says_nothing_is_none(tmp_path: Path):
    """A file that is missing or contains only white space is read as None."""
    (tmp_path / "empty").write_text("\n")
    assert read_small(tmp_path / "empty") is None
    assert read_small(tmp_path / "missing") is None


@pytest.mark.parametrize("free", [0, 1])
def test_a_file_is_kept_open_while_half_of_all_descriptors_are_free(
    tmp_path: Path, monkeypatch, free: int
):
    """If more than half of the descriptors are in use, the file is opened for each reading."""
    path = tmp_path / "stat"
    path.write_text("cpu 1")
    with path.open() as other:
        used = other.fileno()  # The next opened file gets the number `used`.
    limit = 2 * (used + free)
    monkeypatch.setattr("trainvitals.sources.files.resource.getrlimit", lambda _: (limit, 4096))
    file = KeptFile(path)
    assert [file.read(), file.read()] == [b"cpu 1", b"cpu 1"]
    assert (file._descriptor is not None) is bool(free)
    file.close()


def test_without_a_limit_there_is_room(monkeypatch):
    """Without a limit on descriptors, any number of files may stay open."""
    resource = pytest.importorskip("resource")
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert has_room(1_000_000, 0.5)
