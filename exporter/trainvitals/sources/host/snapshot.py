"""A snapshot of the machine: memory, the disks that containers use, and the largest processes."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from trainvitals.errors import SourceError
from trainvitals.sources.containers.evidence import Disk, Host
from trainvitals.sources.files import Roots, read_small
from trainvitals.sources.host.filesystem import Filesystem, FilesystemSource
from trainvitals.sources.host.memory import read_memory

_ALWAYS = ("/", "/dev/shm")  # noqa: S108 - a mount point
_MOST_DISKS = 16
_MOST_PROCESSES = 5
_PATIENCE_SECONDS = 1.0
_RESIDENT = 1


def read_host(
    paths: Iterable[str] = (),
    *,
    roots: Roots = Roots(),  # noqa: B008 - immutable
    clock: Callable[[], float] = time.time,
) -> Host:
    """Read the machine's memory, disks and largest processes.

    Args:
        paths: Directories whose file systems are reported in addition to `/` and `/dev/shm`: the
            engine's data directory and the container's mounts.
        roots: The paths of the machine's `/proc` and file systems.
        clock: A function that returns the time of day, in seconds since 1970.
    """
    try:
        memory = read_memory(roots)
    except SourceError:
        memory = None
    return Host(
        time=clock(),
        memory_total_bytes=None if memory is None else memory.total_bytes,
        memory_available_bytes=None if memory is None else memory.available_bytes,
        swap_free_bytes=None if memory is None else memory.swap_free_bytes,
        disks=tuple(_read_disks([*_ALWAYS, *paths], roots)),
        biggest=tuple(find_biggest(roots.procfs)),
    )


def find_biggest(
    procfs: Path = Path("/proc"),
    *,
    page_bytes: int = os.sysconf("SC_PAGE_SIZE"),
) -> list[tuple[str, int]]:
    """Return the largest processes: pairs of the name with the PID, and the resident bytes."""
    try:
        pids = [name for name in os.listdir(procfs) if name.isdecimal()]  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []
    sizes = ((_read_resident(procfs / pid) * page_bytes, pid) for pid in pids)
    biggest = heapq.nlargest(_MOST_PROCESSES, ((size, int(pid)) for size, pid in sizes if size))
    return [
        (f"{read_small(procfs / str(pid) / 'comm') or '?'} ({pid})", size) for size, pid in biggest
    ]


def _read_resident(process: Path) -> int:
    columns = (read_small(process / "statm") or "").split()
    return int(columns[_RESIDENT]) if len(columns) > _RESIDENT else 0


def _read_disks(paths: Sequence[str], roots: Roots) -> Iterable[Disk]:
    source = FilesystemSource(roots=roots)
    try:
        there = source.read(time.monotonic() + _PATIENCE_SECONDS).filesystems
    except SourceError:
        return
    finally:
        source.close()
    for path in list(dict.fromkeys(paths))[:_MOST_DISKS]:
        found = _find_filesystem(path, there)
        if found is not None and found.space is not None:
            space = found.space
            yield Disk(path, space.avail_bytes, space.size_bytes, space.files_free)


def _find_filesystem(path: str, there: Iterable[Filesystem]) -> Filesystem | None:
    """Return the file system whose mount point is the deepest directory that contains the path."""
    above = {path, *map(str, PurePosixPath(path).parents)}
    on = [each for each in there if each.mountpoint in above]
    return max(on, key=lambda each: len(each.mountpoint), default=None)
