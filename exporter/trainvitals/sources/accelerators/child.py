"""The far end of a vendor's reader: where its driver is open, and what it says to the exporter.

It runs in a child process or, for the first opening of a driver that deserves it, on a thread of
the exporter (see `driver`); what follows speaks of parent and child for both. They share a SOCK_SEQPACKET pair; each message is one packet, a tuple in `marshal`
form (both ends are the same interpreter).

From the parent:
    ("read", number, patience_seconds, {uuid: since})   read every device

From the child:
    ("opened", [identity, ...], [(identity, state), ...])
        the driver is open; an identity is the tuple of the fields of `Identity`
    ("absent", reason)   there is no such driver here; the child ends
    ("gone", reason)     the driver does not answer, or not any more; the child ends
    ("read", number, [(uuid, row, busy, processes), ...], [(uuid, state), ...], is_current)
        the answer: each a UUID and a `row.DeviceRow`; then the devices that
        could not be read; `is_current` is false when the driver shows other devices than it did
    ("xid", uuid, code, unix_seconds)   an error, as soon as the driver tells it

The child ends when the parent's end of the pair closes.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from functools import partial

from trainvitals.crew import Crew, Outcome
from trainvitals.sources.accelerators.row import DeviceError, DriverAbsentError, DriverGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Callable, Mapping
    from typing import Any

    from trainvitals.sources.accelerators.row import DeviceRow
    from trainvitals.sources.accelerators.vendor import Device, Session

LARGEST_MESSAGE_BYTES = 1 << 20
PATIENCE_FACTOR = 20.0
SHORTEST_PATIENCE_SECONDS = 0.25
_SWITCH_INTERVAL_SECONDS = 0.0001
_REMEMBERED_DURATIONS = 8


def main(opener: Callable[[], Session], descriptor: int) -> None:
    """Be the child: open the driver and answer the parent until it goes away.

    Args:
        opener: Opens the vendor's driver.
        descriptor: This end of the socket pair.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    run_reader(opener, socket.socket(fileno=descriptor))
    os._exit(0)  # a call that hangs must not keep the process from ending


def run_reader(opener: Callable[[], Session], connection: socket.socket) -> Session | None:
    """Open the driver and answer until the other end closes or the driver is gone.

    Returns:
        The session, for who goes on living to close it; None when it could not be opened.
    """
    line = _Line(connection)
    try:
        session = opener()
    except DriverAbsentError as error:
        line.send(("absent", str(error)))
        return None
    except DriverGoneError as error:
        line.send(("gone", str(error)))
        return None
    identities = [device.identity for device in session.devices]
    line.send(("opened", identities, list(session.unreadable)))
    watcher = threading.Thread(
        target=session.watch, args=(line.report_xid,), name="xid-watcher", daemon=True
    )
    watcher.start()
    _answer(session, line)
    return session


def _answer(session: Session, line: _Line) -> None:
    crew = Crew(name="device", limit=min(session.parallel, len(session.devices) + 1))
    posts = [_Post(device) for device in session.devices]
    try:
        _answer_all(session, line, crew, posts)
    finally:
        crew.close()


def _answer_all(session: Session, line: _Line, crew: Crew, posts: list[_Post]) -> None:
    while request := line.receive():
        _, number, patience, since = request
        outcomes = _read_all(crew, posts, patience, since)
        gone = next((o.error for o in outcomes if isinstance(o.error, DriverGoneError)), None)
        if gone is not None:
            line.send(("gone", str(gone)))
            return
        rows, states = _sort(posts, outcomes)
        try:
            is_current = session.is_current()
        except DriverGoneError as error:
            line.send(("gone", str(error)))
            return
        line.send(("read", number, rows, states, is_current))


def _read_all(
    crew: Crew, posts: list[_Post], patience: float, since: Mapping[str, int | None]
) -> list[Outcome[DeviceRow]]:
    tasks = {post.uuid: partial(post.read, since.get(post.uuid)) for post in posts}
    known = [wait for post in posts if (wait := post.patience()) is not None]
    if len(known) == len(posts) and posts:
        patience = min(patience, max(known))
    outcomes = crew.gather(tasks, patience)
    return [outcomes[post.uuid] for post in posts]


def _sort(
    posts: list[_Post], outcomes: list[Outcome[DeviceRow]]
) -> tuple[list[tuple[object, ...]], list[tuple[str, str]]]:
    rows: list[tuple[object, ...]] = []
    states: list[tuple[str, str]] = []
    for post, outcome in zip(posts, outcomes, strict=True):
        if outcome.value is not None:
            rows.append((post.uuid, *outcome.value))
        elif outcome.late:
            states.append((post.uuid, "hung"))
        elif isinstance(outcome.error, DeviceError):
            states.append((post.uuid, outcome.error.state))
        elif outcome.error is not None:
            raise outcome.error
    return rows, states


class _Post:
    """A device and how long its readings took."""

    def __init__(self, device: Device) -> None:
        self.uuid = device.identity[2]
        self._device = device
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)

    def read(self, since: int | None) -> DeviceRow:
        started_at = time.monotonic()
        try:
            return self._device.read(since)
        finally:
            self._durations.append(time.monotonic() - started_at)

    def patience(self) -> float | None:
        """How long to wait, from how long it took lately; None before the first reading."""
        if not self._durations:
            return None
        return max(SHORTEST_PATIENCE_SECONDS, PATIENCE_FACTOR * max(self._durations))


class _Line:
    """The child's end of the pair; both its threads send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # the parent is gone; `receive` will say so
            self._connection.sendall(marshal.dumps(message))

    def report_xid(self, uuid: str, code: int) -> None:
        self.send(("xid", uuid, code, time.time()))

    def receive(self) -> tuple[str, int, float, dict[str, int | None]] | None:
        try:
            packet = self._connection.recv(LARGEST_MESSAGE_BYTES)
        except OSError:
            return None
        if not packet:
            return None
        message: tuple[str, int, float, dict[str, int | None]] = marshal.loads(packet)  # noqa: S302 - from our parent
        return message
