"""Reads all accelerators of the machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

from trainvitals.sources.accelerators.driver import Driver
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Kind,
)
from trainvitals.sources.accelerators.vendor import Vendor
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelLog
from trainvitals.workers import WorkerPool

_log = logging.getLogger(__name__)


class AcceleratorSource:
    """Reads every accelerator of the machine.

    Args:
        vendors: The vendors whose accelerators are read.
        expected: The configured number of devices of each kind.
        memory_limit_bytes: The memory limit for each device, in bytes; None if no limit is set.
        temperature_limit_celsius: The temperature limit for each chip; None if no limit is set.
        roots: The file systems that contain the kernel log and the paths in `Vendor.traces`.
        is_isolated: Whether drivers are always opened in child processes.
        environ: The environment variables of child processes; None if child processes inherit this
            process's environment.

    Attributes:
        latest: The latest reading; None before the first reading.
    """

    def __init__(
        self,
        *,
        vendors: Sequence[Vendor] = VENDORS,
        expected: Mapping[Kind, int] | None = None,
        memory_limit_bytes: int | None = None,
        temperature_limit_celsius: float | None = None,
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
        self._temperature_limit_celsius = temperature_limit_celsius
        self._pool = WorkerPool(name="vendor", limit=len(self._drivers))
        self._kernel_log = KernelLog(roots.rootfs / "dev/kmsg", most_lines=0)
        self._since = time.time()
        if self._drivers:
            self._kernel_log.skip()
        self._told_absence = not self._drivers
        for driver in self._drivers:
            driver.start()
        self._log_absence()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of devices that the source reads."""
        return tuple(driver.vendor.kind for driver in self._drivers)

    @property
    def pids(self) -> tuple[int, ...]:
        """The PIDs of the child processes that hold the drivers open."""
        return tuple(pid for driver in self._drivers for pid in driver.pids)

    def read(self, deadline: float) -> AcceleratorsReading:
        """Read every device of every vendor, and return by the monotonic deadline."""
        present = [driver for driver in self._drivers if not driver.is_absent]
        troubles: list[str] = []
        if present:
            self._note_logged_errors()
        if len(present) > 1:  # so that a hung driver does not delay the others
            devices = self._read_beside(present, deadline, troubles)
        else:
            devices = [reading for driver in self._drivers for reading in driver.read(deadline)]
        self._log_absence()
        complaints = [driver.complaint for driver in self._drivers if driver.complaint] + troubles
        self.latest = AcceleratorsReading(
            devices=tuple(devices),
            expected=self._expected,
            complaint="; ".join(complaints) or None,
            omitted_processes=sum(driver.omitted_processes for driver in self._drivers),
            memory_limit_bytes=self._memory_limit_bytes,
            temperature_limit_celsius=self._temperature_limit_celsius,
        )
        return self.latest

    def release(self) -> None:
        """Release every driver, or reopen a released driver; see `Driver.release`."""
        for driver in self._drivers:
            driver.release()

    def close(self) -> None:
        """End the readers that hold the drivers open, and close the kernel log."""
        for driver in self._drivers:
            driver.close()
        self._kernel_log.close()

    def _note_logged_errors(self) -> None:
        """Pass new GPU errors in the kernel log to the GPU drivers, if the log can be read."""
        xids = self._kernel_log.read().xids
        errors = [error for error in xids if error.time >= self._since]
        for driver in self._drivers:
            if driver.vendor.kind == "gpu":
                driver.note_logged(errors)

    def _read_beside(
        self, drivers: Sequence[Driver], deadline: float, troubles: list[str]
    ) -> list[AcceleratorReading]:
        tasks = {driver.vendor.name: partial(driver.read, deadline) for driver in drivers}
        outcomes = self._pool.gather(tasks, deadline - time.monotonic())
        for name, outcome in outcomes.items():
            if outcome.late:
                troubles.append(f"{name}: its devices could not be read in time")
            elif outcome.error is not None:
                troubles.append(f"{name}: {type(outcome.error).__name__}: {outcome.error}")
        return [reading for outcome in outcomes.values() for reading in outcome.value or []]

    def _log_absence(self) -> None:
        """Log once that the machine has no accelerator driver."""
        if not self._told_absence and all(driver.is_absent for driver in self._drivers):
            self._told_absence = True
            _log.info("no accelerator driver found; it is looked for again every minute")
