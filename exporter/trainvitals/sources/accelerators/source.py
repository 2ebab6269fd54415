"""All accelerators of the machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

from trainvitals.crew import Crew
from trainvitals.sources.accelerators.driver import Driver, Vendor
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Kind,
)
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots

_log = logging.getLogger(__name__)


class AcceleratorSource:
    """Reads every accelerator of the machine.

    Args:
        vendors: Whose devices to look for.
        expected: How many of each kind there should be.
        memory_limit_bytes: How much memory of each may be used; None for all of it.
        roots: Where the drivers' traces are looked for.
        is_isolated: Have drivers always opened by processes of their own.
        environ: The environment of such processes; our own when None.

    Attributes:
        latest: The latest reading; None before the first.
    """

    def __init__(
        self,
        *,
        vendors: Sequence[Vendor] = VENDORS,
        expected: Mapping[Kind, int] | None = None,
        memory_limit_bytes: int | None = None,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        is_isolated: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._drivers = [
            Driver(vendor, roots=roots, is_isolated=is_isolated, environ=environ)
            for vendor in vendors
        ]
        self.latest: AcceleratorsReading | None = None
        self._expected = tuple((expected or {}).items())
        self._memory_limit_bytes = memory_limit_bytes
        self._crew = Crew(name="vendor", limit=len(self._drivers))
        self._told_absence = not self._drivers
        for driver in self._drivers:
            driver.start()
        self._tell_absence()

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
        troubles: list[str] = []
        if len(present) > 1:  # so that one that hangs does not keep the other
            devices = self._read_beside(present, deadline, troubles)
        else:
            devices = [reading for driver in self._drivers for reading in driver.read(deadline)]
        self._tell_absence()
        complaints = [driver.complaint for driver in self._drivers if driver.complaint] + troubles
        self.latest = AcceleratorsReading(
            devices=tuple(devices),
            expected=self._expected,
            complaint="; ".join(complaints) or None,
            omitted_processes=sum(driver.omitted_processes for driver in self._drivers),
            memory_limit_bytes=self._memory_limit_bytes,
        )
        return self.latest

    def let_go(self) -> None:
        """Let go of every driver, or take them up again; see `Driver.let_go`."""
        for driver in self._drivers:
            driver.let_go()

    def close(self) -> None:
        """End the processes that hold the drivers open."""
        for driver in self._drivers:
            driver.close()

    def _read_beside(
        self, drivers: Sequence[Driver], deadline: float, troubles: list[str]
    ) -> list[AcceleratorReading]:
        tasks = {driver.vendor.name: partial(driver.read, deadline) for driver in drivers}
        outcomes = self._crew.gather(tasks, deadline - time.monotonic())
        for name, outcome in outcomes.items():
            if outcome.late:
                troubles.append(f"{name}: its devices could not be read in time")
            elif outcome.error is not None:
                troubles.append(f"{name}: {type(outcome.error).__name__}: {outcome.error}")
        return [reading for outcome in outcomes.values() for reading in outcome.value or []]

    def _tell_absence(self) -> None:
        """Say once that there is nothing to read, so that nobody wonders."""
        if not self._told_absence and all(driver.is_absent for driver in self._drivers):
            self._told_absence = True
            _log.info("no accelerator driver found; it is looked for again every minute")
