"""Pressure stall information: how long tasks waited for CPU, memory and I/O.

From `/proc/pressure/*`, in Linux 4.20 and newer where it is switched on.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.sources.files import KeptFile, Roots, not_understood

RESOURCES = ("cpu", "io", "memory")
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Stall:
    """How long tasks have been stalled on one resource since boot.

    Attributes:
        resource: `cpu`, `io` or `memory`.
        some_seconds: At least one task waited.
        full_seconds: All tasks waited at once, so that nothing was done; None for the CPU, where
            the kernel says that it means nothing for a whole machine.
    """

    resource: str
    some_seconds: float
    full_seconds: float | None


@dataclass(frozen=True, slots=True)
class PressureReading:
    """The stalls of the host; none where the kernel does not count them."""

    stalls: tuple[Stall, ...]


class PressureSource:
    """Reads the host's pressure stall information.

    Args:
        roots: Where `/proc` is.
    """

    def __init__(self, *, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        self._files = tuple(
            (resource, KeptFile(roots.procfs / "pressure" / resource, single=True))
            for resource in RESOURCES
        )

    def read(self) -> PressureReading:
        """Read the stalls as they are now.

        Raises:
            SourceError: A file is there but cannot be read or understood.
        """
        stalls = []
        for resource, file in self._files:
            data = file.read()
            if data is None:
                continue
            try:
                stalls.append(_parse(resource, data))
            except (ValueError, OverflowError) as error:
                raise not_understood(file.path) from error
        return PressureReading(tuple(stalls))

    def close(self) -> None:
        """Close the files."""
        for _, file in self._files:
            file.close()


def _parse(resource: str, data: bytes) -> Stall:
    some, _, full = data.partition(b"\n")
    _, some_found, some_total = some.rpartition(b" total=")
    _, full_found, full_total = full.rpartition(b" total=")
    if not some.startswith(b"some ") or not some_found:
        raise ValueError(data)
    full_seconds = None
    if resource != "cpu" and full_found:
        full_seconds = int(full_total) / _MICROSECONDS
    return Stall(resource, int(some_total) / _MICROSECONDS, full_seconds)
