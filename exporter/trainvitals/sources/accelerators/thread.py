"""A vendor's reader in the exporter's process, in which worker threads read the devices.

A reader in the exporter's process needs no second interpreter, but cannot be killed. A call that
hangs blocks its worker thread. After the driver was replaced, the driver cannot be used until a
reader in a child process is started.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from importlib import import_module

from trainvitals.sources.accelerators.device_pool import DevicePool
from trainvitals.sources.accelerators.reader import (
    UNEXPECTED_END,
    Answer,
    Opener,
    Reader,
    XidEvent,
)
from trainvitals.sources.accelerators.reading import Identity
from trainvitals.sources.accelerators.row import DriverAbsentError, DriverGoneError
from trainvitals.sources.accelerators.vendor import Session


class ReaderThread(Reader):
    """A reader in the exporter's process; the constructor does not wait for the driver to open.

    After a call of `end`, the reader closes the driver within 15 s, because a wait for errors may
    take that long.

    Args:
        opener: The function that opens the driver.
    """

    def __init__(self, opener: Opener) -> None:
        super().__init__()
        self._opener = opener
        self._session: Session | None = None
        self._pool: DevicePool | None = None
        self._settled = threading.Event()
        self._is_ending = threading.Event()
        self._xids: deque[XidEvent] = deque()
        self._request: tuple[float, Mapping[str, int | None]] = (0.0, {})
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self._thread.start()

    @property
    def opened(self) -> bool:
        """Whether the reader has opened the driver."""
        return self._pool is not None

    @property
    def gone(self) -> str | None:
        """The reason why the driver no longer responds or could not be opened.

        The reason is None if the driver has not failed.
        """
        if self._gone is None and self._absent is None and not self._thread.is_alive():
            return UNEXPECTED_END
        return self._gone

    def wait_until_opened(self, until: float) -> None:
        """Wait until the driver is open, opening fails, or the monotonic deadline passes."""
        self._settled.wait(max(0.0, until - time.monotonic()))

    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Store a request for a reading of every device; see `DevicePool.read`."""
        self._request = (patience, since)

    def take_answer(self, until: float) -> Answer | None:
        """Read every device by the monotonic deadline.

        Returns:
            The reading; None if the driver is not open or no longer responds.
        """
        patience, since = self._request
        if self._pool is None or self._gone is not None:
            return None
        try:
            found = self._pool.read(min(patience, until - time.monotonic()), since)
        except DriverGoneError as error:
            self._gone = str(error)
            return None
        return Answer(*found)  # type: ignore[arg-type]  # as a child sends them

    def take_xids(self) -> list[XidEvent]:
        """Return the Xid errors that were reported since the last call."""
        return [self._xids.popleft() for _ in range(len(self._xids))]

    def end(self) -> None:
        """End the reader and close the driver, without waiting until the reader has ended."""
        self._is_ending.set()
        if self._session is not None:
            self._session.stop_watching()

    def reap(self) -> bool:
        """Return whether the reader has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            session = self._open()
        finally:
            self._settled.set()
        if session is None:
            return
        try:
            if not self._is_ending.is_set():
                session.watch(self._report_xid)
            self._is_ending.wait()
        finally:
            if self._pool is not None:
                self._pool.close()
            session.close()

    def _open(self) -> Session | None:
        opener = getattr(import_module(self._opener.module), self._opener.name)
        try:
            session: Session = opener()
        except DriverAbsentError as error:
            self._absent = str(error)
            return None
        except DriverGoneError as error:
            self._gone = str(error)
            return None
        self._identities = [Identity(*device.identity) for device in session.devices]  # type: ignore[arg-type]  # as a child sends them
        self._unreadable = [(Identity(*fields), state) for fields, state in session.unreadable]  # type: ignore[arg-type,misc]
        self._session = session
        self._pool = DevicePool(session)
        return session

    def _report_xid(self, uuid: str, code: int) -> None:
        self._xids.append(XidEvent(uuid, code, time.time()))
