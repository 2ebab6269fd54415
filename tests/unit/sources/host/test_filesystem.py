"""How full the file systems are."""

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
    """Answers in place of `statvfs`; an answer may be an error, or never come."""

    def __init__(self) -> None:
        self.answers: dict[bytes, os.statvfs_result | OSError] = {}
        self.asked: list[bytes] = []
        self.hanging: set[bytes] = set()
        self.heal = threading.Event()

    def __call__(self, path: bytes) -> os.statvfs_result:
        """Answer, raise or hang."""
        self.asked.append(path)
        if path in self.hanging:
            self.heal.wait()
        answer = self.answers.get(path, SOME)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
def disks() -> Iterator[Disks]:
    """File systems that all answer alike until a test says otherwise."""
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
    """Read and give the file systems by mount point."""
    return {one.mountpoint: one for one in source.read(deadline).filesystems}


def test_the_fake_machine_is_read_in_bytes(source: FilesystemSource):
    """Blocks become bytes; only the remote file system says whether it responds."""
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
    """The flag comes from the file system itself, since the list of mounts does not change."""
    assert by_place(source)["/data"].space == SOME_SPACE
    disks.answers[b"/data"] = os.statvfs_result((4096, 4096, 1000, 300, 250, 100, 40, 40, 1, 255))
    assert by_place(source)["/data"].space == replace(SOME_SPACE, readonly=True)


def test_a_file_system_without_a_bound_on_files_has_no_number(
    source: FilesystemSource, disks: Disks
):
    """Btrfs and FAT answer 0, which is not a number of files."""
    disks.answers[b"/data"] = os.statvfs_result((4096, 4096, 1000, 300, 250, 0, 0, 0, 0, 255))
    space = by_place(source)["/data"].space
    assert space is not None
    assert (space.files, space.files_free) == (None, None)


def test_a_file_system_without_size_is_left_out(source: FilesystemSource, disks: Disks):
    """What has no blocks is an interface of the kernel's."""
    disks.answers[b"/run"] = EMPTY
    assert "/run" not in by_place(source)


def test_a_hung_mount_takes_its_own_values_only(source: FilesystemSource, disks: Disks):
    """The others are complete, it does not respond, and the reading takes a quarter second."""
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
    """Fifty readings of a hung mount ask it once and start fewer threads than readings."""
    disks.hanging.add(b"/datasets")
    threads = threading.active_count()
    for _ in range(50):
        source.read(time.monotonic() + 0.02)
    assert disks.asked.count(b"/datasets") == 1
    # On a busy machine other mounts are slow too, and the pool grows for each that waits.
    assert threading.active_count() < threads + 25


def test_a_mount_that_answers_again_is_back(source: FilesystemSource, disks: Disks):
    """Nothing has to be restarted."""
    disks.hanging.add(b"/datasets")
    assert by_place(source)["/datasets"].responding is False
    disks.hanging.clear()
    disks.heal.set()
    wait_until(lambda: by_place(source)["/datasets"].responding is True)
    assert by_place(source)["/datasets"].space == SOME_SPACE


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_the_deadline_is_kept(source: FilesystemSource, disks: Disks):
    """With little time left, a hung mount is waited for that long and no longer."""
    disks.hanging.add(b"/datasets")
    started_at = time.monotonic()
    source.read(started_at + 0.05)
    assert time.monotonic() - started_at < 0.2


def test_a_local_disk_below_a_hung_mount_does_not_hang_the_reading(
    roots: Roots, source: FilesystemSource, disks: Disks
):
    """It is asked by a worker too, and is in trouble without being remote."""
    with (roots.procfs / "self/mountinfo").open("a") as mountinfo:
        mountinfo.write("60 37 8:9 / /datasets/cache rw - ext4 /dev/sdc rw\n")
    disks.hanging.add(b"/datasets/cache")
    found = by_place(source, time.monotonic() + 0.1)
    assert found["/datasets/cache"].trouble == "does not answer"
    assert found["/datasets/cache"].responding is None
    assert found["/datasets"].responding is True


def test_an_error_of_the_disk_is_told(source: FilesystemSource, disks: Disks):
    """The values are absent and the reason is there; for a remote one, it does not respond."""
    disks.answers[b"/data"] = OSError(errno.EIO, "Input/output error")
    disks.answers[b"/datasets"] = OSError(errno.ESTALE, "Stale file handle")
    found = by_place(source)
    assert (found["/data"].space, found["/data"].trouble) == (None, "Input/output error")
    assert found["/data"].responding is None
    assert found["/datasets"].trouble == "Stale file handle"
    assert found["/datasets"].responding is False


def test_a_place_that_we_may_not_look_at_is_no_trouble(source: FilesystemSource, disks: Disks):
    """Its values are unknown, and so is whether it responds."""
    disks.answers[b"/datasets"] = PermissionError(errno.EACCES, "Permission denied")
    found = by_place(source)["/datasets"]
    assert (found.space, found.responding, found.trouble) == (None, None, None)


def test_a_mount_that_comes_is_there_and_one_that_goes_is_gone(
    roots: Roots, source: FilesystemSource
):
    """The list follows the machine."""
    path = roots.procfs / "self/mountinfo"
    before = path.read_text()
    assert "/backup" not in by_place(source)
    path.write_text(before + "60 29 8:9 / /backup rw - ext4 /dev/sdc rw\n")
    assert "/backup" in by_place(source)
    path.write_text(before)
    assert "/backup" not in by_place(source)


def test_file_systems_beyond_the_bound_are_counted(roots: Roots, disks: Disks):
    """The root and shared memory come first."""
    reading = FilesystemSource(roots=roots, statvfs=disks, limit=2).read(NO_DEADLINE)
    assert [one.mountpoint for one in reading.filesystems] == ["/", "/dev/shm"]
    assert reading.dropped == 3


def test_a_line_that_cannot_be_understood_is_counted(roots: Roots, source: FilesystemSource):
    """The file systems of the other lines are there."""
    before = source.read(NO_DEADLINE).filesystems
    with (roots.procfs / "self/mountinfo").open("a") as mountinfo:
        mountinfo.write("60 37 8:9 / /backup\n")
    reading = source.read(NO_DEADLINE)
    assert (reading.filesystems, reading.dropped) == (before, 1)


def test_the_dead_volume_of_a_pod_is_seen(roots: Roots, source: FilesystemSource, disks: Disks):
    """It is the server's fault that the pod hangs."""
    place = "/var/lib/kubelet/pods/1f/volumes/kubernetes.io~nfs/datasets"
    with (roots.procfs / "self/mountinfo").open("a") as mountinfo:
        mountinfo.write(f"60 37 0:90 / {place} rw - nfs4 nas:/x rw,hard\n")
    disks.hanging.add(place.encode())
    found = by_place(source, time.monotonic() + 0.1)
    assert (found[place].responding, found[place].device) == (False, "nas:/x")


def test_in_a_container_the_host_is_asked_below_its_root(roots: Roots, disks: Disks):
    """The path has the prefix, the mount point has not."""
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
    """Seen through a read-only bind mount everything is, for the host only what it lists so."""
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
    """Return the mount points that can only be read."""
    found = by_place(source).values()
    return {one.mountpoint for one in found if one.space is not None and one.space.readonly}


def test_this_machine_agrees_with_psutil():
    """The root's size is psutil's."""
    source = FilesystemSource()
    root = by_place(source)["/"]
    source.close()
    assert root.space is not None
    assert root.space.size_bytes == pytest.approx(psutil.disk_usage("/").total, rel=0.001)
    assert root.space.avail_bytes == pytest.approx(psutil.disk_usage("/").free, rel=0.05)
