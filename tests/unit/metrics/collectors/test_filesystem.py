"""Tests for the filesystem collector."""

from __future__ import annotations

import errno
import math
import os
import threading
import time

from trainvitals.metrics.collectors.filesystem import FilesystemCollector
from trainvitals.sources.files import Roots

# 1000 blocks of 4096 bytes, 300 free, 250 of these for users; 100 files, 40 free
SOME = os.statvfs_result((4096, 4096, 1000, 300, 250, 100, 40, 40, 0, 255))
READ_ONLY = os.statvfs_result((4096, 4096, 1000, 300, 250, 0, 0, 0, 1, 255))
PLACES = ("/", "/dev/shm", "/data", "/datasets", "/run")


def answer(path: bytes) -> os.statvfs_result:
    """Replace `statvfs`: `/data` is read-only and has no limit on files."""
    return READ_ONLY if path == b"/data" else SOME


def test_the_fake_machine_has_these_samples(roots: Roots, samples):
    """Each file system has its metrics; those that do not apply are absent."""
    collector = FilesystemCollector(roots=roots, statvfs=answer)
    reading = collector.read(math.inf)
    expected = {}
    for place in PLACES:
        expected[f'host_filesystem_size_bytes{{mountpoint="{place}"}}'] = 4_096_000
        expected[f'host_filesystem_avail_bytes{{mountpoint="{place}"}}'] = 1_024_000
        expected[f'host_filesystem_readonly{{mountpoint="{place}"}}'] = int(place == "/data")
        if place != "/data":
            expected[f'host_filesystem_files{{mountpoint="{place}"}}'] = 100
            expected[f'host_filesystem_files_free{{mountpoint="{place}"}}'] = 40
    for info in (
        'mountpoint="/",device="/dev/nvme0n1p1",fstype="ext4"',
        'mountpoint="/dev/shm",device="tmpfs",fstype="tmpfs"',
        'mountpoint="/data",device="/dev/mapper/vg-data",fstype="xfs"',
        'mountpoint="/datasets",device="storage:/datasets",fstype="nfs4"',
        'mountpoint="/run",device="tmpfs",fstype="tmpfs"',
    ):
        expected[f"host_filesystem_info{{{info}}}"] = 1
    expected['host_filesystem_responding{mountpoint="/datasets"}'] = 1
    assert samples(collector.express(reading)) == expected
    assert collector.complaint(reading) is None
    collector.close()


def test_a_hung_mount_keeps_its_info_and_does_not_respond(roots: Roots, samples):
    """A hung mount has no values and is named in the complaint; other mounts have values."""
    heal = threading.Event()

    def hang(path: bytes) -> os.statvfs_result:
        if path == b"/datasets":
            heal.wait()
        return SOME

    collector = FilesystemCollector(roots=roots, statvfs=hang)
    reading = collector.read(time.monotonic() + 0.05)
    found = samples(collector.express(reading))
    assert found['host_filesystem_responding{mountpoint="/datasets"}'] == 0
    assert 'host_filesystem_size_bytes{mountpoint="/datasets"}' not in found
    assert found['host_filesystem_size_bytes{mountpoint="/data"}'] == 4_096_000
    assert collector.complaint(reading) == (
        "cannot ask /datasets (nfs4 storage:/datasets): does not answer; "
        "check its server or disk, or unmount it"
    )
    heal.set()
    collector.close()


def test_a_place_that_we_may_not_look_at_is_no_complaint(roots: Roots, samples):
    """A mount point without permission has only its info metric and causes no complaint."""

    def refuse(path: bytes) -> os.statvfs_result:
        if path == b"/data":
            raise PermissionError(errno.EACCES, "Permission denied")
        return SOME

    collector = FilesystemCollector(roots=roots, statvfs=refuse)
    reading = collector.read(math.inf)
    found = [key for key in samples(collector.express(reading)) if '"/data"' in key]
    assert found == [
        'host_filesystem_info{mountpoint="/data",device="/dev/mapper/vg-data",fstype="xfs"}'
    ]
    assert collector.complaint(reading) is None
    collector.close()


def test_file_systems_beyond_the_bound_are_omitted(roots: Roots, samples):
    """With a limit of two file systems, the other three count as omitted."""
    collector = FilesystemCollector(roots=roots, statvfs=answer, limit=2)
    reading = collector.read(math.inf)
    assert len([key for key in samples(collector.express(reading)) if "info" in key]) == 2
    assert collector.omitted(reading) == 3
    collector.close()


def test_a_mount_that_goes_leaves_no_series(roots: Roots, samples):
    """An unmounted file system has no series, and the other file systems keep theirs."""
    collector = FilesystemCollector(roots=roots, statvfs=answer)
    before = collector.express(collector.read(math.inf))
    path = roots.procfs / "self/mountinfo"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(
        "".join(line for line in lines if " /data " not in line and "scratch" not in line)
    )
    after = collector.express(collector.read(math.inf))
    found = samples(after)
    assert not [key for key in found if '"/data"' in key]
    assert found['host_filesystem_size_bytes{mountpoint="/"}'] == 4_096_000
    assert after[0].shape != before[0].shape
    collector.close()
