"""One vendor's driver: found, opened by a reader, asked, and taken up again after any trouble.

The first reader runs on a thread of the exporter, which costs least; every later one runs in a
child process, because after trouble only a fresh load of the library, and something that can be
killed, will do.

- No library, no driver: nothing to report; looked for again now and then.
- The driver was unloaded, replaced or restarted: its reader says so and ends; a child, with a
  fresh load of the library, is tried every few seconds.
- A child died: a new one is started at once, or soon if the last one was started just before.
- A device was lost, added or removed: a second reader is started beside the first, and takes over
  when it can read other devices; nothing is missing meanwhile. See `lookout`.
- Opening hangs, or a reader does not answer: it is left alone, and replaced after a minute.
- Told to let go: the reader is ended, so that the driver can be unloaded.

What a killed child still holds in a driver call is the kernel's to end; it is reaped when it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainvitals.sources.accelerators.devices import Devices
from trainvitals.sources.accelerators.lookout import Lookout
from trainvitals.sources.accelerators.process import ReaderProcess
from trainvitals.sources.accelerators.reader import UNEXPECTED_END, Opener, Reader
from trainvitals.sources.accelerators.reading import AcceleratorReading, Kind
from trainvitals.sources.accelerators.thread import ReaderThread
from trainvitals.sources.accelerators.traces import Traces
from trainvitals.sources.files import Roots

_RETRY_SECONDS = 4.0
_RETRY_ABSENT_SECONDS = 60.0
_HANGS_SECONDS = 60.0
_OPENING_SECONDS = 3.0
_SHORT_WAIT_SECONDS = 0.25
_FIRST_ANSWER_SECONDS = 1.0
_LONGEST_MARGIN_SECONDS = 0.1
_MARGIN_RATIO = 0.2
_MOST_DYING = 2
LET_GO_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor whose devices can be read.

    Attributes:
        name: The vendor, in lower case.
        kind: What its devices are called in the label `kind`.
        opener: What a child runs to read them.
        is_installed: Tells whether the vendor's library or tool can be found, without running it.
        traces: Files and directories that change when the driver or its devices come or go;
            each path begins with `proc/` or `sys/`.
        is_isolated: Its reader always runs in a process of its own.
    """

    name: str
    kind: Kind
    opener: Opener
    is_installed: Callable[[], bool]
    traces: tuple[str, ...]
    is_isolated: bool = False


class Driver:
    """One vendor's driver and all its devices.

    Args:
        vendor: Whose.
        roots: Where the vendor's traces are looked for.
        is_isolated: Have the reader always run in a process of its own.
        environ: The environment of such processes; the exporter's own when None.

    Attributes:
        complaint: What the latest reading lacked, and why; None when it was whole.
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
        self._lookout = Lookout()
        self._reader: Reader | None = None
        self._rival: Reader | None = None
        self._dying: list[Reader] = []
        self._welcomed: Reader | None = None
        self._answered: Reader | None = None
        self._asked_at = 0.0
        self._is_stale = False
        self._retry_at = float("-inf")
        self._let_go_until = float("-inf")
        self._tellings: deque[float] = deque()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start opening the driver, if it is installed, without waiting for it."""
        if self.vendor.is_installed():
            self._reader = self._start_reader()
        else:
            self._stand_absent("there is no library")

    def read(self, deadline: float) -> list[AcceleratorReading]:
        """Read every device.

        Args:
            deadline: The `time.monotonic` by which to be back.

        Returns:
            A reading for every device that was ever seen, in the order of their indices;
            `complaint` says afterwards what was not whole.
        """
        with self._lock:
            readings = self._read(deadline)
        self._do_as_told()
        return readings

    @property
    def is_absent(self) -> bool:
        """Whether there is no such driver, nor was there ever."""
        return self._reader is None and not self._devices

    @property
    def omitted_processes(self) -> int:
        """How many processes the bound left out of the latest reading."""
        return self._devices.omitted_processes

    @property
    def pids(self) -> tuple[int, ...]:
        """The children, so that what they cost is counted as the exporter's."""
        return tuple(pid for reader in self._readers() if (pid := reader.pid) is not None)

    def let_go(self, seconds: float = LET_GO_SECONDS) -> None:
        """Let go of the driver so that it can be unloaded, or take it up again if it was let go.

        It is taken up again by itself after so many seconds. This never waits, so that a signal
        handler may call it: a reading under way is broken off, and does it when it ends.
        """
        self._tellings.append(seconds)
        for reader in self._readers():
            reader.hang_up()
        self._do_as_told()

    def close(self) -> None:
        """End the readers for good."""
        self._let_go_until = float("inf")
        for reader in self._readers():
            reader.hang_up()
        with self._lock:
            self._end_readers()

    def _do_as_told(self) -> None:
        while self._tellings and self._lock.acquire(blocking=False):
            try:
                while self._tellings:
                    self._turn(self._tellings.popleft())
            finally:
                self._lock.release()

    def _turn(self, seconds: float) -> None:
        if time.monotonic() < self._let_go_until:
            self._let_go_until = self._retry_at = float("-inf")
            return
        self._end_readers()
        self._let_go_until = time.monotonic() + seconds
        if self._devices:
            self._stand_gone(f"let go of for {seconds:.0f} s as told by SIGUSR1")

    def _read(self, deadline: float) -> list[AcceleratorReading]:
        self._reap()
        if self._traces.have_changed():
            self._retry_at = float("-inf")
            self._lookout.note_change(time.monotonic())
        self._compare_rival()
        if self._attend(deadline):
            self._attend(deadline)
        if self._look_afresh(deadline):
            self._attend(deadline)
        if self._reader is not None:
            self._devices.count(self._reader.take_xids())
        return self._devices.read()

    def _attend(self, deadline: float) -> bool:
        """Have a reader read; tell whether it ended over it, so that another may do."""
        reader = self._take_up(deadline)
        return reader is not None and self._ask(reader, deadline)

    def _take_up(self, deadline: float) -> Reader | None:
        """Give a reader that has the driver open; None when there is none now."""
        now = time.monotonic()
        if self._reader is None and now >= max(self._retry_at, self._let_go_until):
            self._retry_at = now + _RETRY_SECONDS
            if not self.vendor.is_installed():
                self._stand_absent("there is no library")
                return None
            self._reader = self._start_reader()
        reader = self._reader
        if reader is None:
            return None
        if not reader.opened:
            reader.wait_until_opened(self._choose_patience(reader, now, deadline))
        if reader.absent is not None:
            self._stand_absent(reader.absent)
        elif reader.gone is not None:
            self._replace(reader.gone)
        elif reader.opened:
            self._welcome(reader)
            return reader
        else:
            self._stand_opening(reader, now)
        return None

    def _choose_patience(self, reader: Reader, now: float, deadline: float) -> float:
        """Until when to wait for the driver to open: the very first time is worth more."""
        moment = now + _SHORT_WAIT_SECONDS
        if self._welcomed is None:
            moment = max(moment, reader.started_at + _OPENING_SECONDS)
        return min(moment, deadline - _margin(deadline - now))

    def _welcome(self, reader: Reader) -> None:
        if reader is self._welcomed:
            return
        self._welcomed = reader
        self._devices.welcome(reader)
        _log.info("%s driver open, %d devices", self.vendor.name, len(reader.identities))

    def _ask(self, reader: Reader, deadline: float) -> bool:
        """Have it read all devices and enter the answer; tell whether it ended instead."""
        now = time.monotonic()
        margin = _margin(deadline - now)
        until = deadline - margin / 2
        if reader.is_busy:
            reader.take_answer(now)
        if reader.is_busy:  # it has kept silent since an earlier request
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
            self._stand_silent(reader, now)
            return False
        self._answered = reader
        self._devices.enter(answer, reader.unreadable)
        self._complain(answer.troubles)
        self._is_stale = not answer.is_current
        if self._is_stale:
            self._lookout.note_change(now)
        self._lookout.note_missing(now, is_missing=self._devices.are_missing(reader))
        return False

    def _complain(self, troubles: list[str]) -> None:
        hung = ", ".join(f"{who.kind} {who.index}" for who in self._devices.hung)
        complaints = [*([f"a driver call hangs on {hung}"] if hung else []), *troubles]
        self.complaint = "; ".join(complaints) or None

    def _look_afresh(self, deadline: float) -> bool:
        """Start a second reader when that is due; tell whether it has taken over already."""
        now = time.monotonic()
        if self._rival is not None or self._reader is None or not self._reader.opened:
            return False
        if not self._lookout.is_due(now):
            return False
        is_change = self._lookout.has_change
        self._lookout.note_look(now)
        self._rival = self._start_reader()
        if self._rival is None or not is_change:
            return False
        self._rival.wait_until_opened(
            min(now + _SHORT_WAIT_SECONDS, deadline - _margin(deadline - now))
        )
        return self._compare_rival()

    def _compare_rival(self) -> bool:
        """Let the second reader take over when it can read more than the first, or newer devices.

        Both hear of every error; those of devices that the first has open were counted with it.
        """
        rival, reader = self._rival, self._reader
        if rival is None:
            return False
        rival.wait_until_opened(time.monotonic())
        if not rival.opened:
            if rival.gone or rival.absent or _is_overdue(rival):
                self._rival = None
                self._end(rival)
            return False
        self._rival = None
        readable = self._devices.readable(reader) if reader is not None else set()
        found = {identity.uuid for identity in rival.identities}
        if reader is not None and found <= readable and not self._is_stale:
            self._end(rival)
            return False
        heard = {identity.uuid for identity in reader.identities} if reader is not None else set()
        if reader is not None:
            self._dismiss(reader)
        self._reader = rival
        self._is_stale = False
        self._welcome(rival)
        self._devices.count(rival.take_xids(), but_of=heard)
        return True

    def _stand_absent(self, reason: str) -> None:
        """There is no driver: nothing to report, unless there was one."""
        self._end_readers()
        if self._devices:
            self._stand_gone(reason)
            return
        self._retry_at = time.monotonic() + _RETRY_ABSENT_SECONDS
        self.complaint = None
        _log.debug("no %s driver here: %s", self.vendor.name, reason)

    def _stand_gone(self, reason: str) -> None:
        self._devices.miss_all("no_driver")
        self.complaint = f"{self.vendor.name}: {reason}"

    def _stand_opening(self, reader: Reader, now: float) -> None:
        """Known devices stay in the state they were last in, which was not ok, until it lasts."""
        lasts = now - reader.started_at > _OPENING_SECONDS
        if lasts or self.complaint is None:
            self.complaint = f"opening the {self.vendor.name} driver takes long"
        if lasts:
            self._devices.miss_all("hung")
        if _is_overdue(reader):
            self._dismiss(reader)
            self._reader = None

    def _stand_silent(self, reader: Reader, now: float) -> None:
        self._devices.miss_all("hung")
        self.complaint = f"the {self.vendor.name} driver reader does not answer"
        if now - self._asked_at > _HANGS_SECONDS:
            self._dismiss(reader)
            self._reader = None

    def _replace(self, reason: str) -> None:
        """The reader ended: another may be started at once, or soon if this one was young."""
        if self._reader is not None:
            self._dismiss(self._reader)
        self._reader = None
        self._devices.miss_all("no_driver", keep_samples=reason == UNEXPECTED_END)
        self.complaint = f"{self.vendor.name}: {reason}"

    def _readers(self) -> list[Reader]:
        return [reader for reader in (self._reader, self._rival) if reader is not None]

    def _start_reader(self) -> Reader | None:
        self._reap()
        if len(self._dying) >= _MOST_DYING:  # killed, and held by the kernel: more would pile up
            return None
        if self._is_first and not self._is_isolated:
            self._is_first = False
            return ReaderThread(self.vendor.opener)
        try:
            return ReaderProcess(self.vendor.opener, environ=self._environ)
        except OSError as error:  # no processes or descriptors are left; later there may be
            self.complaint = f"cannot start the {self.vendor.name} driver reader: {error.strerror}"
            return None

    def _end_readers(self) -> None:
        reader, rival = self._reader, self._rival
        self._reader = self._rival = None
        if reader is not None:
            self._dismiss(reader)
        if rival is not None:
            self._end(rival)

    def _dismiss(self, reader: Reader) -> None:
        self._devices.count(reader.take_xids())
        self._end(reader)

    def _end(self, reader: Reader) -> None:
        reader.end()
        self._dying.append(reader)
        self._reap()

    def _reap(self) -> None:
        self._dying = [reader for reader in self._dying if not reader.reap()]


def _margin(seconds: float) -> float:
    """How much of the time that is left is kept for what follows the answer."""
    return min(_LONGEST_MARGIN_SECONDS, _MARGIN_RATIO * max(seconds, 0.0))


def _is_overdue(reader: Reader) -> bool:
    return time.monotonic() - reader.started_at > _HANGS_SECONDS
