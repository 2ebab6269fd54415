"""Tests for the disk source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.disk import Disk, DiskReading, DiskSource

SDA = Disk("sda", False, 10_000, 409_600_000, 5.0, 20_000, 819_200_000, 12.0, 2, 9.0, 17.0)  # noqa: FBT003
NVME = Disk("nvme0n1", False, 50_000, 20_480_000_000, 25.0, 1_000, 40_960_000, 0.5, 0, 15.0, 25.5)  # noqa: FBT003
DM = Disk("dm-0", True, 9_000, 358_400_000, 4.5, 19_000, 768_000_000, 11.0, 1, 8.0, 15.5)  # noqa: FBT003


def keep_lines(roots: Roots, *devices: str) -> None:
    """Remove all devices except the given ones from `/proc/diskstats`."""
    path = roots.procfs / "diskstats"
    lines = [line for line in path.read_text().splitlines() if line.split()[2] in devices]
    path.write_text("\n".join(lines) + "\n")


def add_lines(roots: Roots, *devices: str) -> None:
    """Add devices to /proc/diskstats, each with ten reads and writes of 100 sectors."""
    with (roots.procfs / "diskstats").open("a") as diskstats:
        diskstats.writelines(f" 230 0 {device} 10 0 100 5 10 0 100 5 0 9 9\n" for device in devices)


def read_layered(roots: Roots) -> dict[str, bool]:
    """Return for each disk whether it is layered on other disks."""
    return {disk.device: disk.layered for disk in DiskSource(roots=roots).read().disks}


def test_the_fake_machine_has_two_disks_and_a_volume(roots: Roots):
    """Partitions, loop devices and empty drives are left out; the volume's bytes count once."""
    assert DiskSource(roots=roots).read() == DiskReading(
        disks=(SDA, NVME, DM), dropped=0, read_bytes=20_889_600_000, written_bytes=860_160_000
    )


def test_without_sys_partitions_are_known_by_their_names(roots: Roots):
    """Without `/sys`, partitions are recognized by their names, and the same disks are returned."""
    source = DiskSource(roots=Roots(procfs=roots.procfs, sysfs=Path("/nowhere")))
    assert source.read().disks == (SDA, NVME, DM)


def test_a_machine_of_volumes_alone_counts_them(roots: Roots):
    """If a volume is visible but its disks are not, the totals are those of the volume."""
    keep_lines(roots, "dm-0")
    reading = DiskSource(roots=roots).read()
    assert reading.disks == (DM,)
    assert (reading.read_bytes, reading.written_bytes) == (358_400_000, 768_000_000)


def test_a_disk_that_is_pulled_is_gone_and_one_that_comes_is_there(roots: Roots):
    """A removed disk is missing from the next reading, and an added disk is included."""
    source = DiskSource(roots=roots)
    path = roots.procfs / "diskstats"
    whole = path.read_text()
    keep_lines(roots, "nvme0n1")
    assert source.read().disks == (NVME,)
    path.write_text(whole)
    assert source.read().disks == (SDA, NVME, DM)


def test_disks_beyond_the_bound_are_counted_and_stay_in_the_totals(roots: Roots):
    """Disks beyond the limit are counted as dropped, and their bytes stay in the totals."""
    reading = DiskSource(roots=roots, limit=1).read()
    assert reading.disks == (SDA,)
    assert reading.dropped == 2
    assert reading.read_bytes == 20_889_600_000


def test_the_paths_of_a_multipath_disk_are_not_counted(roots: Roots):
    """The device `nvme0c0n1` is a path to `nvme0n1`, which already includes its bytes."""
    path = roots.procfs / "diskstats"
    path.write_text(path.read_text().replace(" sda ", " nvme0c0n1 "))
    (roots.sysfs / "block/nvme0c0n1").mkdir()
    assert DiskSource(roots=roots).read().disks == (NVME, DM)


def test_a_line_that_appears_twice_counts_once(roots: Roots):
    """A disk may be listed twice if another is removed during the read; it counts once."""
    path = roots.procfs / "diskstats"
    path.write_text(path.read_text() * 2)
    assert DiskSource(roots=roots).read().disks == (SDA, NVME, DM)


@pytest.mark.parametrize(
    "device", ["md0", "md127", "md_d1", "md_home", "zd0", "zd16", "drbd1", "bcache0", "emcpowera"]
)
@pytest.mark.parametrize("has_sys", [True, False])
def test_what_is_made_of_disks_counts_beside_none_of_them(
    roots: Roots,
    device: str,
    has_sys: bool,  # noqa: FBT001 - a parameter of the test
):
    """A device made of disks is listed after the disks, and its bytes are not in the totals.

    Its partition is not listed.
    """
    before = DiskSource(roots=roots).read()
    part = f"{device}p1" if device[-1].isdigit() else f"{device}1"
    add_lines(roots, device, part)
    if has_sys:
        (roots.sysfs / "block" / device).mkdir()
    sysfs = roots.sysfs if has_sys else Path("/nowhere")
    reading = DiskSource(roots=Roots(procfs=roots.procfs, sysfs=sysfs)).read()
    assert [(disk.device, disk.layered) for disk in reading.disks] == [
        ("sda", False),
        ("nvme0n1", False),
        ("dm-0", True),
        (device, True),
    ]
    assert (reading.read_bytes, reading.written_bytes) == (before.read_bytes, before.written_bytes)


def test_the_kernel_says_what_a_disk_of_any_name_is_made_of(roots: Roots):
    """A disk of any name is layered if its `slaves` folder in `/sys` is not empty."""
    add_lines(roots, "vendor0")
    slaves = roots.sysfs / "block/vendor0/slaves"
    slaves.mkdir(parents=True)
    assert read_layered(roots)["vendor0"] is False
    (slaves / "sda").touch()
    assert read_layered(roots)["vendor0"] is True


def test_without_sys_a_name_with_a_number_is_a_disk_where_no_disk_has_the_name_before_it(
    roots: Roots,
):
    """The device `xvda1` is a disk if `xvda` does not exist, as on some Xen machines."""
    add_lines(roots, "xvda1", "xvdb", "xvdb1", "rbd0", "rbd0p1", "dasda", "dasda1", "mmcblk0")
    names = read_layered(Roots(procfs=roots.procfs, sysfs=Path("/nowhere")))
    assert list(names) == ["sda", "nvme0n1", "xvda1", "xvdb", "rbd0", "dasda", "mmcblk0", "dm-0"]


@pytest.mark.parametrize(
    "line",
    [
        "   8       0 sdz 1 2 3\n",
        "   8       0 sdz x 0 0 0 0 0 0 0 0 0 0\n",
        "   8       0 sdz -1 0 0 0 0 0 0 0 0 0 0\n",
        "   8\n",
    ],
)
def test_a_line_that_cannot_be_understood_costs_itself_alone(roots: Roots, line: str):
    """An invalid line is counted as dropped, and the other disks are read."""
    before = DiskSource(roots=roots).read()
    (roots.sysfs / "block/sdz").mkdir()
    with (roots.procfs / "diskstats").open("a") as diskstats:
        diskstats.write(line)
    assert DiskSource(roots=roots).read() == replace(before, dropped=1)


def test_a_list_without_a_line_that_is_understood_is_an_error(roots: Roots):
    """The error for a `/proc/diskstats` without any valid line names the file."""
    (roots.procfs / "diskstats").write_text("nothing\n")
    with pytest.raises(SourceError, match="diskstats"):
        DiskSource(roots=roots).read()


def test_a_kernel_that_does_not_count_has_no_disks(roots: Roots):
    """If `/proc/diskstats` is missing, the reading has no disks, and no error is raised."""
    (roots.procfs / "diskstats").unlink()
    assert DiskSource(roots=roots).read() == DiskReading((), 0, None, None)


def test_this_machine_agrees_with_psutil():
    """Each disk's counters lie between psutil's values before and after the reading."""
    before = psutil.disk_io_counters(perdisk=True, nowrap=False)
    reading = DiskSource().read()
    after = psutil.disk_io_counters(perdisk=True, nowrap=False)
    for disk in reading.disks:
        assert before[disk.device].read_bytes <= disk.read_bytes <= after[disk.device].read_bytes
        assert before[disk.device].write_count <= disk.writes_completed
        assert disk.writes_completed <= after[disk.device].write_count
