"""Tests for the source that reads the sizes of file systems."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until
from trainvitals.sources.files import Roots
from trainvitals.sources.host.filesystem import Filesystem, FilesystemSource, Space

NO_DEADLINE = math.inf
EMPTY = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
# 1000 blocks of 4096 bytes, 300 free, 250 of them for users; 100 files, 40 free
SOME = os.statvfs_result((4096, 4096, 1000, 300, 250, 100, 40, 40, 0, 255))
SOME_SPACE = Space(
    size_bytes=4_096_000, avail_bytes=1_024_000, files=100, files_free=40, readonly=False
)


class Disks:
    """A substitute for `statvfs`, whose answers may be errors or may never come."""

    def __init__(self) -> None:
        self.answers: dict[bytes, os.statvfs_result | OSError] = {}
        self.asked: list[bytes] = []
        self.hanging: set[bytes] = set()
        self.heal = threading.Event()

    def __call__(self, path: bytes) -> os.statvfs_result:
        """Return or raise the answer for a path, or block until the test ends the hang."""
        self.asked.append(path)
        if path in self.hanging:
            self.heal.wait()
        answer = self.answers.get(path, SOME)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
def disks() -> Iterator[Disks]:
    """A substitute for `statvfs` that returns the same answer for every path by default."""
    disks = Disks()
    yield disks
    disks.heal.set()


@pytest.fixture
def source(roots: Roots, disks: Disks) -> Iterator[FilesystemSource]:
    """A source that reads the fake machine."""
    source = FilesystemSource(roots=roots, statvfs=disks)
    yield source
    source.close()


def by_place(source: FilesystemSource, deadline: float = NO_DEADLINE) -> dict[str, Filesystem]:
    """Return the file systems of a new reading, by mount point."""
    return {one.mountpoint: one for one in source.read(deadline).filesystems}


def test_the_fake_machine_is_read_in_bytes(source: FilesystemSource):
    """Blocks are converted to bytes, and only a remote file system has a value for `responding`."""
    reading = source.read(NO_DEADLINE)
    assert reading.dropped == 0
    assert reading.filesystems[0] == Filesystem(
        mountpoint="/",
        device="/dev/nvme0n1p1",
        fstype="ext4",
        space=SOME_SPACE,
        responding=None,
        trouble=None,
    )
    assert [(one.mountpoint, one.responding) for one in reading.filesystems] == [
        ("/", None),
        ("/dev/shm", None),
        ("/data", None),
        ("/datasets", True),
        ("/run", None),
    ]


def test_a_disk_that_turned_read_only_is_seen(source: FilesystemSource, disks: Disks):
    """The read-only flag comes from `statvfs`, as the list of mounts does not change."""
    assert by_place(source)["/data"].space == SOME_SPACE
    disks.answers[b"/data"] = os.statvfs_result((4096, 4096, 1000, 300, 250, 100, 40, 40, 1, 255))
    assert by_place(source)["/data"].space == replace(SOME_SPACE, readonly=True)


def test_a_file_system_without_a_bound_on_files_has_no_number(
    source: FilesystemSource, disks: Disks
):
    """A file count of 0, as Btrfs and FAT return it, means that the count is unknown."""
    disks.answers[b"/data"] = os.statvfs_result((4096, 4096, 1000, 300, 250, 0, 0, 0, 0, 255))
    space = by_place(source)["/data"].space
    assert space is not None
    assert (space.files, space.files_free) == (None, None)


def test_a_file_system_without_size_is_left_out(source: FilesystemSource, disks: Disks):
    """A file system without blocks, such as a kernel interface, is left out."""
    disks.answers[b"/run"] = EMPTY
    assert "/run" not in by_place(source)


def test_a_hung_mount_takes_its_own_values_only(source: FilesystemSource, disks: Disks):
    """After a quarter of a second, a hung mount is not responding; other mounts are complete."""
    disks.hanging.add(b"/datasets")
    started_at = time.monotonic()
    found = by_place(source)
    assert 0.2 < time.monotonic() - started_at < 30
    assert found["/datasets"].space is None
    assert found["/datasets"].responding is False
    assert found["/datasets"].trouble == "does not answer"
    assert found["/data"].space == SOME_SPACE
    assert len(found) == 5


def test_a_hung_mount_is_not_asked_again_and_costs_no_thread_a_scrape(
    source: FilesystemSource, disks: Disks
):
    """Fifty readings query a hung mount only once and start fewer threads than readings."""
    disks.hanging.add(b"/datasets")
    threads = threading.active_count()
    for _ in range(50):
        source.read(time.monotonic() + 0.02)
    assert disks.asked.count(b"/datasets") == 1
    # On a busy machine other mounts are slow too, and the pool grows for each that waits.
    assert threading.active_count() < threads + 25


def test_a_mount_that_answers_again_is_back(source: FilesystemSource, disks: Disks):
    """A hung mount that answers again is read again without a restart of the exporter."""
    disks.hanging.add(b"/datasets")
    assert by_place(source)["/datasets"].responding is False
    disks.hanging.clear()
    disks.heal.set()
    wait_until(lambda: by_place(source)["/datasets"].responding is True)
    assert by_place(source)["/datasets"].space == SOME_SPACE


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_the_deadline_is_kept(source: FilesystemSource, disks: Disks):
    """A reading waits for a hung mount only until the deadline."""
    disks.hanging.add(b"/datasets")
    started_at = time.monotonic()
    source.read(started_at + 0.05)
    assert time.monotonic() - started_at < 0.2


def test_a_local_disk_below_a_hung_mount_does_not_hang_the_reading(
    roots: Roots, source: FilesystemSource, disks: Disks
):
    """A local mount that hangs has a `trouble`, but no value for `responding`."""
    with (roots.procfs / "self/mountinfo").open("a") as mountinfo:
        mountinfo.write("60 37 8:9 / /datasets/cache rw - ext4 /dev/sdc rw\n")
    disks.hanging.add(b"/datasets/cache")
    found = by_place(source, time.monotonic() + 0.1)
    assert found["/datasets/cache"].trouble == "does not answer"
    assert found["/datasets/cache"].responding is None
    assert found["/datasets"].responding is True


def test_an_error_of_the_disk_is_told(source: FilesystemSource, disks: Disks):
    """If `statvfs` fails, the error is reported, and a remote file system is not responding."""
    disks.answers[b"/data"] = OSError(errno.EIO, "Input/output error")
    disks.answers[b"/datasets"] = OSError(errno.ESTALE, "Stale file handle")
    found = by_place(source)
    assert (found["/data"].space, found["/data"].trouble) == (None, "Input/output error")
    assert found["/data"].responding is None
    assert found["/datasets"].trouble == "Stale file handle"
    assert found["/datasets"].responding is False


def test_a_place_that_we_may_not_look_at_is_no_trouble(source: FilesystemSource, disks: Disks):
    """If access is denied, the values and the response state are unknown, without a trouble."""
    disks.answers[b"/datasets"] = PermissionError(errno.EACCES, "Permission denied")
    found = by_place(source)["/datasets"]
    assert (found.space, found.responding, found.trouble) == (None, None, None)


def test_a_mount_that_comes_is_there_and_one_that_goes_is_gone(
    roots: Roots, source: FilesystemSource
):
    """A new mount is included in the next reading, and a removed mount is not."""
    path = roots.procfs / "self/mountinfo"
    before = path.read_text()
    assert "/backup" not in by_place(source)
    path.write_text(before + "60 29 8:9 / /backup rw - ext4 /dev/sdc rw\n")
    assert "/backup" in by_place(source)
    path.write_text(before)
    assert "/backup" not in by_place(source)


def test_file_systems_beyond_the_bound_are_counted(roots: Roots, disks: Disks):
    """File systems beyond the limit count as dropped; the root and shared memory come first."""
    reading = FilesystemSource(roots=roots, statvfs=disks, limit=2).read(NO_DEADLINE)
    assert [one.mountpoint for one in reading.filesystems] == ["/", "/dev/shm"]
    assert reading.dropped == 3


def test_a_line_that_cannot_be_understood_is_counted(roots: Roots, source: FilesystemSource):
    """An invalid line counts as dropped, and the other file systems are read."""
    before = source.read(NO_DEADLINE).filesystems
    with (roots.procfs / "self/mountinfo").open("a") as mountinfo:
        mountinfo.write("60 37 8:9 / /backup\n")
    reading = source.read(NO_DEADLINE)
    assert (reading.filesystems, reading.dropped) == (before, 1)


def test_the_dead_volume_of_a_pod_is_seen(roots: Roots, source: FilesystemSource, disks: Disks):
    """A hung NFS volume of a pod is reported, as the volume explains why the pod hangs."""
    place = "/var/lib/kubelet/pods/1f/volumes/kubernetes.io~nfs/datasets"
    with (roots.procfs / "self/mountinfo").open("a") as mountinfo:
        mountinfo.write(f"60 37 0:90 / {place} rw - nfs4 nas:/x rw,hard\n")
    disks.hanging.add(place.encode())
    found = by_place(source, time.monotonic() + 0.1)
    assert (found[place].responding, found[place].device) == (False, "nas:/x")


def test_in_a_container_the_host_is_asked_below_its_root(roots: Roots, disks: Disks):
    """The queried paths begin with the prefix of the host's root, and the mount points do not."""
    source = FilesystemSource(roots=replace(roots, rootfs=Path("/host")), statvfs=disks)
    found = by_place(source)
    source.close()
    assert "/data" in found
    assert sorted(disks.asked) == [
        b"/host/",
        b"/host/data",
        b"/host/datasets",
        b"/host/dev/shm",
        b"/host/run",
    ]


def test_in_a_container_the_hosts_own_list_of_mounts_says_what_is_read_only(
    roots: Roots, disks: Disks
):
    """In a container, the read-only flags come from the host's list of mounts.

    All file systems are read-only if they are seen through a read-only bind mount.
    """
    read_only = os.statvfs_result((4096, 4096, 1000, 300, 250, 100, 40, 40, os.ST_RDONLY, 255))
    for place in (b"/", b"/data", b"/datasets", b"/dev/shm", b"/run"):
        disks.answers[b"/host" + place] = read_only
    mountinfo = roots.procfs / "1/mountinfo"
    source = FilesystemSource(roots=replace(roots, rootfs=Path("/host")), statvfs=disks)
    assert read_only_places(source) == {"/datasets"}
    text = mountinfo.read_text(encoding="ascii")
    broken = text.replace("/dev/nvme0n1p1 rw", "/dev/nvme0n1p1 ro,errors=remount-ro")
    mountinfo.write_text(broken, encoding="ascii")
    assert read_only_places(source) == {"/", "/datasets"}
    source.close()


def read_only_places(source: FilesystemSource) -> set[str]:
    """Return the mount points of the read-only file systems."""
    found = by_place(source).values()
    return {one.mountpoint for one in found if one.space is not None and one.space.readonly}


def test_this_machine_agrees_with_psutil():
    """The size and the free space of the root file system agree with psutil's values."""
    source = FilesystemSource()
    root = by_place(source)["/"]
    source.close()
    assert root.space is not None
    assert root.space.size_bytes == pytest.approx(psutil.disk_usage("/").total, rel=0.001)
    assert root.space.avail_bytes == pytest.approx(psutil.disk_usage("/").free, rel=0.05)
