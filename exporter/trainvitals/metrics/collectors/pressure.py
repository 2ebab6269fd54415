"""The pressure collector: the time for which tasks waited for CPU, memory, I/O and interrupts."""

from __future__ import annotations

from functools import partial

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.families import Block, Family
from trainvitals.sources.files import Roots
from trainvitals.sources.host.pressure import PressureReading, PressureSource


class PressureCollector(SourceCollector[PressureReading]):
    """The pressure collector: the time for which tasks waited for CPU, memory, I/O and interrupts.

    If the kernel does not provide pressure stall information, there are no series. This is not an
    error.

    Args:
        roots: The root directories of the file systems to read.
    """

    name = "pressure"

    def __init__(self, *, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        super().__init__(PressureSource(roots=roots))

    def express(self, reading: PressureReading) -> tuple[Block, ...]:
        """Return the metric families of a pressure reading.

        The result is empty if the kernel provides no pressure stall information.
        """
        found = {
            (stall.resource, level): seconds
            for stall in reading.stalls
            for level, seconds in (("some", stall.some_seconds), ("full", stall.full_seconds))
        }
        known = {key: seconds for key, seconds in found.items() if seconds is not None}
        if not known:
            return ()
        shape, values = tuple(known), list(known.values())
        return (Block((self.name, shape), partial(_describe, shape), values),)


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
