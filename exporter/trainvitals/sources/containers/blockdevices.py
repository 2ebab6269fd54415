"""The block devices below each block device, so that one transfer is not counted twice.

A write to an encrypted or a logical volume is counted at the volume and at the disk below it.
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
    """Finds the devices below each block device, in `/sys/dev/block/MAJOR:MINOR/slaves`.

    Args:
        sysfs: The path of `/sys`.
    """

    __slots__ = ("_below", "_sysfs")

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._below: dict[str, frozenset[str]] = {}

    def add_up(self, transfers: Mapping[str, int]) -> int:
        """Return the sum of the transfers to top-level devices, or to bottom-level ones.

        Both sums are equal, unless a volume's own thread does the transfer below it (which counts
        at the volume alone), or a disk has partitions without a volume (which count at the disk
        alone); so the larger sum is the correct one.

        Args:
            transfers: Bytes by the device's number, such as `8:0`.
        """
        if len(transfers) < 2:  # noqa: PLR2004 - nothing can lie on nothing
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
        names = os.listdir(folder)  # noqa: PTH208 - as everywhere here
    except OSError:
        return []
    # Of a partition, what counts is its disk; of a disk, the folder above has no such file.
    places = [place for name in names for place in (f"{folder}/{name}", f"{folder}/{name}/..")]
    return [
        data.decode("ascii", "replace").strip()
        for place in places
        if (data := read_data(place, "dev")) is not None
    ]
