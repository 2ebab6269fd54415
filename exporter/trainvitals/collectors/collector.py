"""What every collector is."""

from __future__ import annotations

from typing import Protocol, TypeVar

from trainvitals.families import Block

Reading = TypeVar("Reading")  # invariant: it goes out of `read` and into `express`


class Collector(Protocol[Reading]):
    """Turns one part of the machine into metric families.

    The runner calls `read` and then `express` on a worker thread, never two at a time for the
    same collector, and catches whatever they raise.

    Attributes:
        name: The value of the label `collector` and the stem of its flags.
    """

    name: str

    def read(self, deadline: float) -> Reading:
        """Read the machine.

        Args:
            deadline: The `time.monotonic` at which the scrape stops waiting.

        Raises:
            SourceError: What is there could not be read; it is reported as the reason.
        """
        ...

    def express(self, reading: Reading) -> tuple[Block, ...]:
        """Name what was read; a value that is None has no sample."""
        ...

    def complaint(self, reading: Reading) -> str | None:
        """Say what is missing from a reading that is not whole; None when nothing is."""
        ...

    def omitted(self, reading: Reading) -> int:
        """Count the devices, mounts or processes that a bound left out of the reading."""
        ...

    def close(self) -> None:
        """Let go of what is kept open."""
        ...
