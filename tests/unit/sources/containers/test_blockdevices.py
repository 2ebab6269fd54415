"""A transfer through several stacked block devices is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.sources.containers.blockdevices import BlockDevices

DISK, OTHER, VOLUME, ARRAY, PLAIN = "8:0", "8:16", "253:0", "9:127", "259:0"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A sysfs with a logical volume on an array of two disks' partitions, and a separate disk."""
    block = tmp_path / "dev/block"
    names = {DISK: "sda", OTHER: "sdb", VOLUME: "dm-0", ARRAY: "md127", PLAIN: "nvme0n1"}
    block.mkdir(parents=True)
    for number, name in names.items():
        folder = tmp_path / "devices" / name
        (folder / "slaves").mkdir(parents=True)
        (folder / "dev").write_text(f"{number}\n")
        (block / number).symlink_to(folder)
    for name, number in (("sda", "8:1"), ("sdb", "8:17")):
        partition = tmp_path / f"devices/{name}/{name}1"
        partition.mkdir()
        (partition / "dev").write_text(f"{number}\n")
        (tmp_path / f"devices/md127/slaves/{name}1").symlink_to(partition)
    (tmp_path / "devices/dm-0/slaves/md127").symlink_to(tmp_path / "devices/md127")
    return tmp_path


@pytest.mark.parametrize(
    ("transfers", "expected"),
    [
        ({}, 0),
        ({DISK: 7}, 7),
        ({DISK: 7, PLAIN: 5}, 12),
        # one write, seen at the volume, at the array and at both disks of a mirror
        ({VOLUME: 100, ARRAY: 100, DISK: 100, OTHER: 100}, 200),
        # one read of that mirror
        ({VOLUME: 100, ARRAY: 100, DISK: 60, OTHER: 40, PLAIN: 5}, 105),
        # a write to an encrypted volume, which the kernel does not count at the disks
        ({ARRAY: 100, DISK: 0, OTHER: 0, PLAIN: 5}, 105),
        # a disk with another partition that does not belong to the array
        ({ARRAY: 100, DISK: 130, OTHER: 20}, 150),
        ({VOLUME: 100, PLAIN: 5}, 105),
    ],
)
def test_a_transfer_counts_once(sysfs: Path, transfers: dict[str, int], expected: int):
    """A transfer is counted once, even if the kernel counts it for several stacked devices."""
    devices = BlockDevices(sysfs)
    assert devices.add_up(transfers) == expected
    assert devices.add_up(transfers) == expected


def test_without_sysfs_all_devices_count(tmp_path: Path):
    """Without sysfs, the transfers of all devices are added, whatever their device numbers."""
    assert BlockDevices(tmp_path).add_up({"8:0": 1, "8:16": 2, "../..": 4}) == 7
