"""The interface of a collector."""

from __future__ import annotations

from typing import Protocol, TypeVar

from trainvitals.metrics.families import Block

Reading = TypeVar("Reading")  # invariant: `read` returns it and `express` takes it
Read_co = TypeVar("Read_co", covariant=True)


class Collector(Protocol[Reading]):
    """Turns the readings of one part of the machine into metric families.

    The runner calls `read` and then `express` on a worker thread, never twice at a time for the
    same collector, and catches their exceptions.

    Attributes:
        name: The label `collector` and the stem of its flags.
    """

    name: str

    def read(self, deadline: float) -> Reading:
        """Read the machine.

        Args:
            deadline: The `time.monotonic` at which the scrape stops waiting.

        Raises:
            SourceError: That part could not be read; its message is reported as the reason.
        """
        ...

    def express(self, reading: Reading) -> tuple[Block, ...]:
        """Return the families of a reading; a value that is None has no sample."""
        ...

    def complaint(self, reading: Reading) -> str | None:  # noqa: ARG002 - for those that override it
        """Return the missing parts of a partial reading; None, the default, if it is complete."""
        return None

    def omitted(self, reading: Reading) -> int:  # noqa: ARG002 - for those that override it
        """Return how many devices or mounts are beyond a bound or not understood; 0 by default."""
        return 0

    def close(self) -> None:
        """Release open files and libraries."""
        ...


class Source(Protocol[Read_co]):
    """Reads one part of the machine without calls that may hang."""

    def read(self) -> Read_co:
        """Read it now."""
        ...

    def close(self) -> None:
        """Close its files."""
        ...


class SourceCollector(Collector[Reading]):
    """A collector that returns what its source reads.

    Args:
        source: The source, which ignores the deadline because nothing in it can hang.
    """

    def __init__(self, source: Source[Reading]) -> None:
        self._source = source

    def read(self, deadline: float) -> Reading:  # noqa: ARG002 - nothing can hang
        """Read the source.

        Raises:
            SourceError: It could not be read.
        """
        return self._source.read()

    def close(self) -> None:
        """Close the source."""
        self._source.close()
