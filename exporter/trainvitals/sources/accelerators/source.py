"""All accelerators of the machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from trainvitals.crew import Crew
from trainvitals.sources.accelerators.driver import Driver, Vendor
from trainvitals.sources.accelerators.reading import AcceleratorsReading, Kind
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots


class AcceleratorSource:
    """Reads every accelerator of the machine.

    Args:
        vendors: Whose devices to look for.
        expected: How many of each kind there should be.
        roots: Where the drivers' traces are looked for.
        is_isolated: Have drivers always opened by processes of their own.
        environ: The environment of such processes; our own when None.
    """

    def __init__(
        self,
        *,
        vendors: Sequence[Vendor] = VENDORS,
        expected: Mapping[Kind, int] | None = None,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        is_isolated: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._drivers = [
            Driver(vendor, roots=roots, is_isolated=is_isolated, environ=environ)
            for vendor in vendors
        ]
        self._expected = tuple((expected or {}).items())
        self._crew = Crew(name="vendor", limit=len(self._drivers))
        for driver in self._drivers:
            driver.start()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of devices that are looked for."""
        return tuple(driver.vendor.kind for driver in self._drivers)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that hold the drivers open."""
        return tuple(pid for driver in self._drivers for pid in driver.pids)

    def read(self, deadline: float) -> AcceleratorsReading:
        """Read every device of every vendor by the deadline (monotonic)."""
        present = [driver for driver in self._drivers if not driver.is_absent]
        if len(present) > 1:  # so that one that hangs does not keep the other
            tasks = {driver.vendor.name: partial(driver.read, deadline) for driver in present}
            outcomes = self._crew.gather(tasks, deadline - time.monotonic())
            found = [outcome.value or [] for outcome in outcomes.values()]
        else:
            found = [driver.read(deadline) for driver in self._drivers]
        devices = [reading for readings in found for reading in readings]
        complaints = [driver.complaint for driver in self._drivers if driver.complaint]
        return AcceleratorsReading(
            devices=tuple(devices),
            expected=self._expected,
            complaint="; ".join(complaints) or None,
            omitted_processes=sum(driver.omitted_processes for driver in self._drivers),
        )

    def let_go(self) -> None:
        """Have every driver let go of at the next reading, so that it can be unloaded."""
        for driver in self._drivers:
            driver.let_go()

    def close(self) -> None:
        """End the processes that hold the drivers open."""
        for driver in self._drivers:
            driver.close()
