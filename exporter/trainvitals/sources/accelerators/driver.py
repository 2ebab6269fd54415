"""The driver of one vendor.

Readers open the driver, read values from it, and reopen it after a failure. The first reader runs
on a thread of the exporter, which uses the least memory. Every later reader runs in a child
process, because the library must be loaded again after a failure, and because the reader may have
to be killed.

- The library or the driver is absent: the exporter reports no devices, and checks for the driver
  every minute.
- The driver was unloaded, replaced or restarted: the reader reports the change and ends. Until the
  driver can be opened, a new child process, which loads the library again, is started every few
  seconds.
- A child process exited unexpectedly: a new child process is started immediately, or a few seconds
  later if the previous child process had just been started.
- A device was lost, added or removed: a second reader, which lists the devices again, is started in
  a child process. If the second reader can read other devices than the first reader, it replaces
  the first reader. Until then, the first reader continues to read its devices; see the module
  `rescan`.
- Opening the driver hangs, or a reader does not answer: the reader is replaced after a minute.
- The driver is released on request: the reader is ended, so that the driver can be unloaded.

A child process that is killed during a driver call stays in uninterruptible sleep, and exits only
when the call returns. Therefore, a killed child is reaped later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

from trainvitals.sources.accelerators.devices import Devices
from trainvitals.sources.accelerators.process import ReaderProcess
from trainvitals.sources.accelerators.reader import UNEXPECTED_END, Reader
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.accelerators.rescan import RescanSchedule, Traces
from trainvitals.sources.accelerators.thread import ReaderThread
from trainvitals.sources.accelerators.vendor import Vendor
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_lines import XidError

_RETRY_SECONDS = 4.0
_RETRY_ABSENT_SECONDS = 60.0
_HANGS_SECONDS = 60.0
_OPENING_SECONDS = 3.0
_SHORT_WAIT_SECONDS = 0.25
_FIRST_ANSWER_SECONDS = 1.0
_LONGEST_MARGIN_SECONDS = 0.1
_MARGIN_RATIO = 0.2
_MOST_ENDING = 2
_MOST_LOGGED = 256
RELEASE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Driver:
    """One vendor's driver and all its devices.

    Args:
        vendor: The vendor of the driver.
        roots: The file systems that contain the files and directories in `Vendor.traces`.
        is_isolated: Whether the reader always runs in a child process.
        environ: The environment variables of child processes; None if child processes inherit the
            exporter's environment.

    Attributes:
        complaint: The error that made the latest reading incomplete; None if the latest reading is
            complete.
    """

    def __init__(
        self,
        vendor: Vendor,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        is_isolated: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.vendor = vendor
        self.complaint: str | None = None
        self._is_isolated = is_isolated or vendor.is_isolated
        self._is_first = True
        self._traces = Traces(vendor.traces, roots)
        self._environ = environ
        self._devices = Devices()
        self._rescan = RescanSchedule()
        self._reader: Reader | None = None
        self._successor: Reader | None = None
        self._ending: list[Reader] = []
        self._registered: Reader | None = None
        self._answered: Reader | None = None
        self._asked_at = 0.0
        self._is_stale = False
        self._retry_at = float("-inf")
        self._released_until = float("-inf")
        self._release_requests: deque[float] = deque()
        self._logged: deque[XidError] = deque(maxlen=_MOST_LOGGED)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start to open an installed driver, without waiting until the driver is open."""
        if self.vendor.is_installed():
            self._reader = self._start_reader()
        else:
            self._report_absent("there is no library")

    def read(self, deadline: float) -> list[AcceleratorReading]:
        """Read every device of the driver.

        Args:
            deadline: The `time.monotonic` value by which the method returns.

        Returns:
            A reading for every device that was ever found, sorted by index. The method also sets
            `complaint`.
        """
        with self._lock:
            readings = self._read(deadline)
        self._apply_release_requests()
        return readings

    def note_logged(self, errors: Iterable[XidError]) -> None:
        """Store GPU errors from the kernel log, which the next reading counts; see `XidCounts`."""
        self._logged.extend(errors)

    @property
    def is_absent(self) -> bool:
        """Whether the driver is absent and has never been present."""
        return self._reader is None and not self._devices

    @property
    def omitted_processes(self) -> int:
        """The number of processes that the latest reading omits because of the limit per device."""
        return self._devices.omitted_processes

    @property
    def pids(self) -> tuple[int, ...]:
        """The PIDs of the reader processes; their usage is added to the exporter's usage."""
        return tuple(pid for reader in self._readers() if (pid := reader.pid) is not None)

    def release(self, seconds: float = RELEASE_SECONDS) -> None:
        """Release the driver, so that it can be unloaded, or reopen a released driver.

        The method never blocks, so a signal handler may call the method. A reading in progress is
        cut short, and the driver is released or reopened when that reading ends.

        Args:
            seconds: The time after which a released driver is reopened, in seconds.
        """
        self._release_requests.append(seconds)
        for reader in self._readers():
            reader.hang_up()
        self._apply_release_requests()

    def close(self) -> None:
        """End the driver's readers permanently."""
        self._released_until = float("inf")
        for reader in self._readers():
            reader.hang_up()
        with self._lock:
            self._end_readers()

    def _apply_release_requests(self) -> None:
        while self._release_requests and self._lock.acquire(blocking=False):
            try:
                while self._release_requests:
                    self._toggle_release(self._release_requests.popleft())
            finally:
                self._lock.release()

    def _toggle_release(self, seconds: float) -> None:
        if time.monotonic() < self._released_until:
            self._released_until = self._retry_at = float("-inf")
            return
        self._end_readers()
        self._released_until = time.monotonic() + seconds
        if self._devices:
            self._report_gone(f"released for {seconds:.0f} s by SIGUSR1")

    def _read(self, deadline: float) -> list[AcceleratorReading]:
        self._reap()
        if self._traces.have_changed():
            self._retry_at = float("-inf")
            self._rescan.note_change(time.monotonic())
        self._compare_successor()
        if self._read_once(deadline):
            self._read_once(deadline)
        if self._start_rescan(deadline):
            self._read_once(deadline)
        if self._reader is not None:
            self._devices.count(self._reader.take_xids())
        self._devices.witness(self._logged.popleft() for _ in range(len(self._logged)))
        return self._devices.read()

    def _read_once(self, deadline: float) -> bool:
        """Read the devices; return whether the reader has ended, so that another can start."""
        reader = self._find_open_reader(deadline)
        return reader is not None and self._ask(reader, deadline)

    def _find_open_reader(self, deadline: float) -> Reader | None:
        """Return the reader that has opened the driver; None if the driver is not open."""
        now = time.monotonic()
        if self._reader is None and now >= max(self._retry_at, self._released_until):
            self._retry_at = now + _RETRY_SECONDS
            if not self.vendor.is_installed():
                self._report_absent("there is no library")
                return None
            self._reader = self._start_reader()
        reader = self._reader
        if reader is None:
            return None
        if not reader.opened:
            reader.wait_until_opened(self._choose_patience(reader, now, deadline))
        if reader.absent is not None:
            self._report_absent(reader.absent)
        elif reader.gone is not None:
            self._replace(reader.gone)
        elif reader.opened:
            self._register(reader)
            return reader
        else:
            self._report_opening(reader, now)
        return None

    def _choose_patience(self, reader: Reader, now: float, deadline: float) -> float:
        """Return the monotonic time at which the wait for the driver to open ends.

        The wait is longer until the driver has been opened for the first time.
        """
        moment = now + _SHORT_WAIT_SECONDS
        if self._registered is None:
            moment = max(moment, reader.started_at + _OPENING_SECONDS)
        return min(moment, deadline - _margin(deadline - now))

    def _register(self, reader: Reader) -> None:
        if reader is self._registered:
            return
        self._registered = reader
        self._devices.register(reader)
        _log.info("%s driver open, %d devices", self.vendor.name, len(reader.identities))

    def _ask(self, reader: Reader, deadline: float) -> bool:
        """Read all devices and record the answer; return True if the reader has ended."""
        now = time.monotonic()
        margin = _margin(deadline - now)
        until = deadline - margin / 2
        if reader.is_busy:
            reader.take_answer(now)
        if reader.is_busy:  # it has not answered an earlier request
            until = min(until, now + _SHORT_WAIT_SECONDS)
        else:
            patience = deadline - now - margin
            if self._answered is not None and self._answered is not reader:
                patience = min(patience, _FIRST_ANSWER_SECONDS)
            self._asked_at = now
            reader.ask(patience, self._devices.since)
        answer = reader.take_answer(until)
        if reader.gone is not None:
            self._replace(reader.gone)
            return True
        if answer is None:
            self._report_silent(reader, now)
            return False
        self._answered = reader
        self._devices.enter(answer, reader.unreadable)
        self._complain(answer.troubles)
        self._is_stale = not answer.is_current
        if self._is_stale:
            self._rescan.note_change(now)
        self._rescan.note_missing(now, is_missing=self._devices.are_missing(reader))
        return False

    def _complain(self, troubles: list[str]) -> None:
        hung = ", ".join(f"{who.kind} {who.index}" for who in self._devices.hung)
        complaints = [*([f"a driver call hangs on {hung}"] if hung else []), *troubles]
        self.complaint = "; ".join(complaints) or None

    def _start_rescan(self, deadline: float) -> bool:
        """Start a second reader if a rescan is due.

        Returns:
            Whether the second reader has replaced the first reader.
        """
        now = time.monotonic()
        if self._successor is not None or self._reader is None or not self._reader.opened:
            return False
        if not self._rescan.is_due(now):
            return False
        is_change = self._rescan.has_change
        self._rescan.note_rescan(now)
        self._successor = self._start_reader()
        if self._successor is None or not is_change:
            return False
        self._successor.wait_until_opened(
            min(now + _SHORT_WAIT_SECONDS, deadline - _margin(deadline - now))
        )
        return self._compare_successor()

    def _compare_successor(self) -> bool:
        """Replace the first reader if the second reader can read other devices.

        The first reader is also replaced if its device list is out of date. The driver reports
        every Xid to both readers. Therefore, the second reader's Xids are counted only for devices
        that the first reader did not open.

        Returns:
            Whether the first reader was replaced.
        """
        successor, reader = self._successor, self._reader
        if successor is None:
            return False
        successor.wait_until_opened(time.monotonic())
        if not successor.opened:
            if successor.gone or successor.absent or _is_overdue(successor):
                self._successor = None
                self._end(successor)
            return False
        self._successor = None
        readable = self._devices.readable(reader) if reader is not None else set()
        found = {identity.uuid for identity in successor.identities}
        if reader is not None and found <= readable and not self._is_stale:
            self._end(successor)
            return False
        counted = {identity.uuid for identity in reader.identities} if reader is not None else set()
        if reader is not None:
            self._retire(reader)
        self._reader = successor
        self._is_stale = False
        self._register(successor)
        self._devices.count(successor.take_xids(), but_of=counted)
        return True

    def _report_absent(self, reason: str) -> None:
        """Report that the driver is absent, which is a fault only if devices were found before."""
        self._end_readers()
        if self._devices:
            self._report_gone(reason)
            return
        self._retry_at = time.monotonic() + _RETRY_ABSENT_SECONDS
        self.complaint = None
        _log.debug("no %s driver here: %s", self.vendor.name, reason)

    def _report_gone(self, reason: str) -> None:
        self._devices.miss_all("no_driver")
        self.complaint = f"{self.vendor.name}: {reason}"

    def _report_opening(self, reader: Reader, now: float) -> None:
        """Report that opening the driver takes a long time.

        Every device keeps its last state until `_OPENING_SECONDS` have passed. After that, all
        devices are hung.
        """
        lasts = now - reader.started_at > _OPENING_SECONDS
        if lasts or self.complaint is None:
            self.complaint = f"opening the {self.vendor.name} driver takes long"
        if lasts:
            self._devices.miss_all("hung")
        if _is_overdue(reader):
            self._retire(reader)
            self._reader = None

    def _report_silent(self, reader: Reader, now: float) -> None:
        self._devices.miss_all("hung")
        self.complaint = f"the {self.vendor.name} driver reader does not answer"
        if now - self._asked_at > _HANGS_SECONDS:
            self._retire(reader)
            self._reader = None

    def _replace(self, reason: str) -> None:
        """Discard the reader that has ended; the next reading starts another reader."""
        if self._reader is not None:
            self._retire(self._reader)
        self._reader = None
        self._devices.miss_all("no_driver", keep_samples=reason == UNEXPECTED_END)
        self.complaint = f"{self.vendor.name}: {reason}"

    def _readers(self) -> list[Reader]:
        return [reader for reader in (self._reader, self._successor) if reader is not None]

    def _start_reader(self) -> Reader | None:
        self._reap()
        if len(self._ending) >= _MOST_ENDING:  # killed but not reaped yet: more would accumulate
            return None
        if self._is_first and not self._is_isolated:
            self._is_first = False
            return ReaderThread(self.vendor.opener)
        try:
            return ReaderProcess(self.vendor.opener, environ=self._environ)
        except OSError as error:  # the system is out of processes or descriptors for now
            self.complaint = f"cannot start the {self.vendor.name} driver reader: {error.strerror}"
            return None

    def _end_readers(self) -> None:
        reader, successor = self._reader, self._successor
        self._reader = self._successor = None
        if reader is not None:
            self._retire(reader)
        if successor is not None:
            self._end(successor)

    def _retire(self, reader: Reader) -> None:
        self._devices.count(reader.take_xids())
        self._end(reader)

    def _end(self, reader: Reader) -> None:
        reader.end()
        self._ending.append(reader)
        self._reap()

    def _reap(self) -> None:
        self._ending = [reader for reader in self._ending if not reader.reap()]


def _margin(seconds: float) -> float:
    """Return the part of the remaining time, in seconds, that is reserved to process the answer."""
    return min(_LONGEST_MARGIN_SECONDS, _MARGIN_RATIO * max(seconds, 0.0))


def _is_overdue(reader: Reader) -> bool:
    return time.monotonic() - reader.started_at > _HANGS_SECONDS
