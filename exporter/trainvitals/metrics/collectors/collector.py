"""The interface that every collector implements."""

from __future__ import annotations

from typing import Protocol, TypeVar

from trainvitals.metrics.families import Block

Reading = TypeVar("Reading")  # `read` returns this type and `express` accepts it
Read_co = TypeVar("Read_co", covariant=True)


class Collector(Protocol[Reading]):
    """A collector, which reads values from the machine and converts them to metric families.

    The runner calls `read` and then `express` in a worker thread, never concurrently for the same
    collector, and catches the exceptions that these methods raise.

    Attributes:
        name: The name of the collector, which is the value of the label `collector` and part of the
            collector's flags.
    """

    name: str

    def read(self, deadline: float) -> Reading:
        """Read the values that this collector exports.

        Args:
            deadline: The time at which the scrape stops waiting, as `time.monotonic` returns it.

        Raises:
            SourceError: The values could not be read; the error's message is reported as the
                reason for the failure.
        """
        ...

    def express(self, reading: Reading) -> tuple[Block, ...]:
        """Return the metric families of a reading; a value that is None has no sample."""
        ...

    def complaint(self, reading: Reading) -> str | None:  # noqa: ARG002 - for subclasses
        """Return which data a reading lacks; None (the default) if the reading is complete."""
        return None

    def omitted(self, reading: Reading) -> int:  # noqa: ARG002 - for subclasses
        """Return the number of items omitted because of a limit or a parse error; 0 by default."""
        return 0

    def close(self) -> None:
        """Release all files and libraries that the collector has opened."""
        ...


class Source(Protocol[Read_co]):
    """A source of values about the machine, without calls that may block indefinitely."""

    def read(self) -> Read_co:
        """Return a new reading of the source's values."""
        ...

    def close(self) -> None:
        """Close the files that the source has opened."""
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
        """Return a new reading of the source.

        Raises:
            SourceError: The source could not be read.
        """
        return self._source.read()

    def close(self) -> None:
        """Close the source of the collector."""
        self._source.close()
