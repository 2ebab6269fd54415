"""Pressure stall information: how long tasks waited for CPU, memory, I/O and interrupts.

The information is read from `/proc/pressure/*`. These files exist since Linux 4.20, if pressure
stall information is enabled.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots, not_understood

RESOURCES = ("cpu", "io", "irq", "memory")
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Stall:
    """The time since boot during which tasks waited for one resource.

    Attributes:
        resource: The resource: `cpu`, `io`, `irq` (interrupts, since Linux 6.1) or `memory`.
        some_seconds: The time during which at least one task waited; None for interrupts, because
            an interrupt stops all tasks on a core.
        full_seconds: The time during which all tasks waited simultaneously; None for the CPU,
            because the kernel does not define this time for a whole machine.
    """

    resource: str
    some_seconds: float | None
    full_seconds: float | None


@dataclass(frozen=True, slots=True)
class PressureReading:
    """The host's stall times; `stalls` is empty if the kernel does not count stall times."""

    stalls: tuple[Stall, ...]


class PressureSource:
    """Reads the host's pressure stall information.

    Args:
        roots: The path of `/proc`.
    """

    def __init__(self, *, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        self._files = tuple(
            (resource, KeptFile(roots.procfs / "pressure" / resource, single=True))
            for resource in RESOURCES
        )

    def read(self) -> PressureReading:
        """Read the current stall times; a resource is omitted if its file cannot be read.

        Raises:
            SourceError: Pressure files exist, but none of them can be read.
        """
        found = [_read(resource, file) for resource, file in self._files]
        stalls = tuple(each for each in found if isinstance(each, Stall))
        failures = [each for each in found if isinstance(each, SourceError)]
        if failures and not stalls:
            raise failures[0]
        return PressureReading(stalls)

    def close(self) -> None:
        """Close the source's open files in `/proc/pressure`."""
        for _, file in self._files:
            file.close()


def _read(resource: str, file: KeptFile) -> Stall | SourceError | None:
    """Read one resource's stall times.

    If the file cannot be read or parsed, the error is returned. If the file does not exist, the
    result is None.
    """
    try:
        data = file.read()
        return None if data is None else _parse(resource, data)
    except SourceError as error:
        return error
    except (ValueError, OverflowError):
        return not_understood(file.path)


def _parse(resource: str, data: bytes) -> Stall:
    seconds = dict(map(_parse_line, data.splitlines()))
    if not seconds.keys() & {b"some", b"full"}:
        raise ValueError(data)
    full = None if resource == "cpu" else seconds.get(b"full")
    return Stall(resource, seconds.get(b"some"), full)


def _parse_line(line: bytes) -> tuple[bytes, float]:
    """Return the first word of a pressure line, `some` or `full`, and the stall time in seconds."""
    head, _, total = line.rpartition(b" total=")
    if not total.isdigit():
        raise ValueError(line)
    return head.partition(b" ")[0], int(total) / _MICROSECONDS
