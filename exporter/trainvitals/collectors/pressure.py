"""The pressure collector: how long tasks waited for CPU, memory and I/O."""

from __future__ import annotations

from functools import partial

from trainvitals.families import Block, Family
from trainvitals.sources.files import Roots
from trainvitals.sources.pressure import PressureReading, PressureSource


class PressureCollector:
    """Tells how long tasks waited for CPU, memory and I/O.

    Args:
        roots: Where `/proc` is.
    """

    name = "pressure"

    def __init__(self, *, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        self._source = PressureSource(roots=roots)

    def read(self, deadline: float) -> PressureReading:  # noqa: ARG002 - nothing here can hang
        """Read the stalls.

        Raises:
            SourceError: They could not be read.
        """
        return self._source.read()

    def express(self, reading: PressureReading) -> tuple[Block, ...]:
        """Name what was read; nothing where the kernel does not count stalls."""
        keys = []
        values = []
        for stall in reading.stalls:
            keys.append((stall.resource, "some"))
            values.append(stall.some_seconds)
            if stall.full_seconds is not None:
                keys.append((stall.resource, "full"))
                values.append(stall.full_seconds)
        if not values:
            return ()
        shape = tuple(keys)
        return (Block((self.name, shape), partial(_describe, shape), values),)

    def complaint(self, reading: PressureReading) -> str | None:  # noqa: ARG002 - whole or an error
        """Give None: a kernel that does not count stalls is no fault."""
        return None

    def omitted(self, reading: PressureReading) -> int:  # noqa: ARG002 - nothing grows here
        """Give 0: no bound leaves anything out."""
        return 0

    def close(self) -> None:
        """Close the files."""
        self._source.close()


def _describe(keys: tuple[tuple[str, str], ...]) -> tuple[Family, ...]:
    samples = tuple(("", (("resource", resource), ("level", level))) for resource, level in keys)
    return (
        Family(
            "host_pressure_stalled_seconds_total",
            "counter",
            "Time in which some or all tasks waited for a resource. Source: /proc/pressure total.",
            samples,
        ),
    )
