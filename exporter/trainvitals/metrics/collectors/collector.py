"""The interface of a collector."""

from __future__ import annotations

from typing import Protocol, TypeVar

from trainvitals.metrics.families import Block

Reading = TypeVar("Reading")  # invariant: `read` returns this type and `express` accepts it
Read_co = TypeVar("Read_co", covariant=True)


class Collector(Protocol[Reading]):
    """Reads one part of the machine and turns readings into metric families.

    The runner calls `read` and then `express` in a worker thread, never concurrently for the same
    collector, and catches exceptions.

    Attributes:
        name: The label `collector` and the stem of its flags.
    """

    name: str

    def read(self, deadline: float) -> Reading:
        """Read this part of the machine.

        Args:
            deadline: The time at which the scrape stops waiting, as `time.monotonic` returns it.

        Raises:
            SourceError: The part could not be read; the message is reported as the reason.
        """
        ...

    def express(self, reading: Reading) -> tuple[Block, ...]:
        """Return a reading's metric families; a value that is None has no sample."""
        ...

    def complaint(self, reading: Reading) -> str | None:  # noqa: ARG002 - for subclasses
        """Return the missing parts of a partial reading; by default None, for a complete one."""
        return None

    def omitted(self, reading: Reading) -> int:  # noqa: ARG002 - for subclasses
        """Return the number of items that a limit or a parse error left out; 0 by default."""
        return 0

    def close(self) -> None:
        """Release all open files and libraries."""
        ...


class Source(Protocol[Read_co]):
    """Reads one part of the machine without calls that may block indefinitely."""

    def read(self) -> Read_co:
        """Read this part now."""
        ...

    def close(self) -> None:
        """Close the source's files."""
        ...


class SourceCollector(Collector[Reading]):
    """A collector whose reading is the result of a source.

    Args:
        source: The source, which needs no deadline because none of its calls can block
            indefinitely.
    """

    def __init__(self, source: Source[Reading]) -> None:
        self._source = source

    def read(self, deadline: float) -> Reading:  # noqa: ARG002 - no call can hang
        """Read the source.

        Raises:
            SourceError: The source could not be read.
        """
        return self._source.read()

    def close(self) -> None:
        """Close the source."""
        self._source.close()
