"""Find the underlying devices of each block device, so that no transfer is counted twice.

If data is written to an encrypted or logical volume, the kernel counts the transfer twice: for the
volume and for the underlying disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from trainvitals.sources.containers.cgroup_files import read_data

_NUMBER = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
_MOST_KNOWN = 1024


class BlockDevices:
    """Finds the underlying devices of each block device in `/sys/dev/block/MAJOR:MINOR/slaves`.

    Args:
        sysfs: The path of `/sys`.
    """

    __slots__ = ("_below", "_sysfs")

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._below: dict[str, frozenset[str]] = {}

    def add_up(self, transfers: Mapping[str, int]) -> int:
        """Return the number of transferred bytes, without counting a transfer twice.

        The transfers are summed over the top-level devices and over the bottom-level devices. The
        two sums are equal, with two exceptions. If a volume's thread transfers data to the
        underlying device, the transfer is counted only for the volume. A transfer to a partition
        without a volume is counted only for the disk. Therefore, the larger sum is returned.

        Args:
            transfers: The number of transferred bytes, by device number, such as `8:0`.
        """
        if len(transfers) < 2:  # noqa: PLR2004 - a single device has no others below it
            return sum(transfers.values())
        below = {number: self._find_below(number) & transfers.keys() for number in transfers}
        covered = frozenset().union(*below.values())
        upper = sum(size for number, size in transfers.items() if number not in covered)
        lower = sum(size for number, size in transfers.items() if not below[number])
        return max(upper, lower)

    def _find_below(self, number: str) -> frozenset[str]:
        known = self._below.get(number)
        if known is None:
            known = frozenset(_read_below(self._sysfs, number))
            if len(self._below) < _MOST_KNOWN:
                self._below[number] = known
        return known


def _read_below(sysfs: Path, number: str) -> list[str]:
    if not _NUMBER.fullmatch(number):
        return []
    folder = f"{sysfs}/dev/block/{number}/slaves"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - paths are text here
    except OSError:
        return []
    # The parent folder of a partition is the disk; the parent folder of a disk has no file `dev`.
    places = [place for name in names for place in (f"{folder}/{name}", f"{folder}/{name}/..")]
    return [
        data.decode("ascii", "replace").strip()
        for place in places
        if (data := read_data(place, "dev")) is not None
    ]
