"""The filesystem collector: the space and the responsiveness of the host's file systems."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.families import Block, Family, label_samples
from trainvitals.sources.files import Roots
from trainvitals.sources.host.filesystem import FilesystemReading, FilesystemSource

# Mount point, device and type; whether the space, the file count and `responding` are known.
_Key = tuple[str, str, str, bool, bool, bool]


class FilesystemCollector(Collector[FilesystemReading]):
    """The filesystem collector: the space of file systems, and whether remote file systems respond.

    Args:
        roots: The root directories of the file systems to read.
        statvfs: A function that returns the state of a file system.
        limit: The maximum number of file systems to read.
    """

    name = "filesystem"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        statvfs: Callable[[bytes], os.statvfs_result] = os.statvfs,
        limit: int = 32,
    ) -> None:
        self._source = FilesystemSource(roots=roots, statvfs=statvfs, limit=limit)

    def read(self, deadline: float) -> FilesystemReading:
        """Read the file systems, with a short timeout for file systems that do not respond.

        Raises:
            SourceError: The mount table could not be read.
        """
        return self._source.read(deadline)

    def express(self, reading: FilesystemReading) -> tuple[Block, ...]:
        """Return the metric families of a file system reading.

        A file system whose space is unknown has only an info series and, if known, a series that
        states whether it responds.
        """
        filesystems = reading.filesystems
        if not filesystems:
            return ()
        spaces = [one.space for one in filesystems if one.space is not None]
        counted = [space for space in spaces if space.files is not None]
        values: list[float] = [space.size_bytes for space in spaces]
        values += [space.avail_bytes for space in spaces]
        values += [space.files or 0 for space in counted]
        values += [space.files_free or 0 for space in counted]
        values += [int(space.readonly) for space in spaces]
        values += [1] * len(filesystems)
        values += [int(one.responding) for one in filesystems if one.responding is not None]
        shape = tuple(
            [
                (
                    one.mountpoint,
                    one.device,
                    one.fstype,
                    one.space is not None,
                    one.space is not None and one.space.files is not None,
                    one.responding is not None,
                )
                for one in filesystems
            ]
        )
        return (Block((self.name, shape), partial(_describe, shape), values),)

    def complaint(self, reading: FilesystemReading) -> str | None:
        """Return the file systems that do not respond or fail; None if all file systems respond."""
        troubled = [
            f"{one.mountpoint} ({one.fstype} {one.device}): {one.trouble}"
            for one in reading.filesystems
            if one.trouble is not None
        ]
        if not troubled:
            return None
        return f"cannot ask {', '.join(troubled)}; check its server or disk, or unmount it"

    def omitted(self, reading: FilesystemReading) -> int:
        """Return the number of file systems omitted because of a limit or a parse error."""
        return reading.dropped

    def close(self) -> None:
        """Close the mount table, and release the worker threads."""
        self._source.close()


def _describe(keys: tuple[_Key, ...]) -> tuple[Family, ...]:
    spaces = label_samples("mountpoint", [key[0] for key in keys if key[3]])
    counted = label_samples("mountpoint", [key[0] for key in keys if key[4]])
    families = (
        Family(
            "host_filesystem_size_bytes",
            "gauge",
            "Size of a file system. Source: statvfs f_blocks.",
            spaces,
        ),
        Family(
            "host_filesystem_avail_bytes",
            "gauge",
            "What users other than root can still write. Source: statvfs f_bavail.",
            spaces,
        ),
        Family(
            "host_filesystem_files",
            "gauge",
            "How many files fit. Source: statvfs f_files.",
            counted,
        ),
        Family(
            "host_filesystem_files_free",
            "gauge",
            "How many more files fit. Source: statvfs f_ffree.",
            counted,
        ),
        Family(
            "host_filesystem_readonly",
            "gauge",
            "Whether it can only be read. Source: statvfs f_flag.",
            spaces,
        ),
        Family(
            "host_filesystem_info",
            "info",
            "What is mounted where. Source: /proc/self/mountinfo.",
            tuple(
                ("", (("mountpoint", key[0]), ("device", key[1]), ("fstype", key[2])))
                for key in keys
            ),
        ),
        Family(
            "host_filesystem_responding",
            "gauge",
            "Whether what is behind it answers. Source: statvfs.",
            label_samples("mountpoint", [key[0] for key in keys if key[5]]),
        ),
    )
    return tuple(family for family in families if family.samples)
